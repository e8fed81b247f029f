internal import APNs
internal import JSON

struct JobOutcome: Sendable, Equatable {
    /// `unsent`: Apple did not get the notification, and the gateway counts no attempt.
    enum Kind: String, Sendable, CaseIterable { case accepted, retry, rejected, badToken, unsent }

    var jobID: String
    var leaseID: String
    var kind: Kind
    var reason = ""
    var vendorID = ""
    /// The time since which the token is invalid for Apple, in milliseconds, or 0.
    var timestamp: Int64 = 0
    var retryAfterSeconds: Int64?
    /// The number of reports that failed because the gateway could not read its store.
    var failedReports = 0

    /// Whether Apple has decided; a later lease of the job does not change a final result.
    var isFinal: Bool {
        switch kind {
        case .accepted, .rejected, .badToken: true
        case .retry, .unsent: false
        }
    }

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
