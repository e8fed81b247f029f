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
        let results = outcomes.map { outcome -> JSONObject in
            [
                "jobId": outcome.jobID, "leaseId": outcome.leaseID, "outcome": outcome.kind.rawValue,
                "reason": outcome.reason.unlessEmpty, "vendorId": outcome.vendorID.unlessEmpty,
                "timestamp": outcome.timestamp > 0 ? outcome.timestamp : nil,
                "retryAfterSeconds": outcome.retryAfterSeconds.map {
                    min(max(0, $0), HandoffBounds.retryAfterSeconds.upperBound)
                },
            ]
        }
        return (["results": results] as JSONObject).bytes
    }
}
