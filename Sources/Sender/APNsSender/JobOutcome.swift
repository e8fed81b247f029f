internal import APNs
internal import JSON

/// A job's result as the gateway gets it.
struct JobOutcome: Sendable, Equatable {
    /// `unsent`: Apple never got the notification, so that the gateway counts no attempt.
    enum Kind: String, Sendable, CaseIterable { case accepted, retry, rejected, badToken, unsent }

    var jobID: String
    var leaseID: String
    var kind: Kind
    var reason = ""
    var vendorID = ""
    /// Apple's own time of an invalid token, in milliseconds; 0: none.
    var timestamp: Int64 = 0
    var retryAfterSeconds: Int64?
    /// How often the gateway could not read its store for it.
    var failedReports = 0

    /// Apple's last word: a later lease of the job changes nothing about it.
    var isFinal: Bool {
        switch kind {
        case .accepted, .rejected, .badToken: true
        case .retry, .unsent: false
        }
    }

    /// The body of `POST /v1/handoff/results`.
    static func body(_ outcomes: some Collection<JobOutcome>) -> [UInt8] {
        var writer = JSONWriter(capacity: 64 + 192 * outcomes.count)
        writer.object { writer in
            writer.objects("results", outcomes) { writer, outcome in
                writer.member("jobId", outcome.jobID)
                writer.member("leaseId", outcome.leaseID)
                writer.member("outcome", outcome.kind.rawValue)
                if !outcome.reason.isEmpty { writer.member("reason", outcome.reason) }
                if !outcome.vendorID.isEmpty { writer.member("vendorId", outcome.vendorID) }
                if outcome.timestamp > 0 { writer.member("timestamp", outcome.timestamp) }
                if let seconds = outcome.retryAfterSeconds {
                    writer.member("retryAfterSeconds", min(max(0, seconds), HandoffBounds.retryAfterSeconds.upperBound))
                }
            }
        }
        return writer.bytes
    }
}
