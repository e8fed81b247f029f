internal import APNs
internal import JSON

/// A leased handoff job, until its result is queued for the gateway.
final class HandoffJob {
    let id: String
    /// The id of the newest lease.
    var leaseID: String
    let appID: String
    /// The number of leases of this job, including this one.
    let attempt: Int
    /// The end of its first lease here, in milliseconds of the gateway's clock.
    let leasedUntil: Int64
    /// The time when the job became due, in milliseconds of the gateway's clock, or 0.
    let dueAt: Int64
    /// The time when the lease expires, in the loop's milliseconds.
    var deadline: UInt64 = .max
    let notification: Notification
    let facts: BodyFacts

    /// The current environment; the other one may be tried after the registered one.
    var environment: Environment
    /// The number of requests for the job in this lease.
    var tries = 0
    /// The number of requests that Apple refused unprocessed.
    var refusals = 0
    /// Whether a request of this lease ended without an answer, so that Apple may have the notification.
    var mayBeTaken = false
    var hasTriedOther = false
    var hasRenewedToken = false
    /// The time when the job arrived, in the loop's milliseconds.
    var takenAt: UInt64 = 0
    /// The time between due and lease, in milliseconds.
    private(set) var waited: UInt64 = 0

    init(
        id: String, leaseID: String, appID: String, attempt: Int, leasedUntil: Int64, dueAt: Int64 = 0,
        notification: Notification, facts: BodyFacts
    ) {
        (self.id, self.leaseID, self.appID) = (id, leaseID, appID)
        (self.attempt, self.leasedUntil, self.dueAt) = (attempt, leasedUntil, dueAt)
        (self.notification, self.facts, environment) = (notification, facts, notification.environment)
    }

    /// Computes `waited` for a lease of `lease` milliseconds.
    ///
    /// Both times are the gateway's, because its clock may differ from this machine's. Implausible times are ignored.
    func noteWait(lease: Int64) {
        guard dueAt > 0, dueAt <= leasedUntil, leasedUntil < 1 << 53 else { return }
        waited = UInt64(min(max(0, leasedUntil - lease - dueAt), 7 * 86_400_000))
    }
}

/// The remaining and the total time of a lease.
struct JobLease: Equatable {
    /// The remaining time in milliseconds; negative if the lease has expired.
    var left: Int64
    /// The total time in milliseconds.
    var length: Int64

    init(left: Int64, length: Int64? = nil) { (self.left, self.length) = (left, length ?? left) }
}

/// A job with an unreadable field; its ids are known, so that its result can name the field.
struct UnreadableJob: Equatable {
    var id: String
    var leaseID: String
    var field: String
}

struct HandoffJobReader {
    private(set) var jobs: [HandoffJob] = []
    private(set) var unreadable: [UnreadableJob] = []
    /// The number of jobs without readable ids; they cannot be reported, and their leases expire.
    private(set) var namelessCount = 0

    struct Failure: Error, Equatable, CustomStringConvertible {
        let description: String
    }

    init(_ bytes: [UInt8], parser: JSONParser) throws(Failure) {
        let document: Result<JSONValue, JSONError> = bytes.withUnsafeBytes { bytes in
            do throws(JSONError) { return .success(try parser.parse(bytes)) } catch { return .failure(error) }
        }
        switch document {
        case .failure(let error): throw Failure(description: "the gateway's answer is not JSON: \(error.explanation)")
        case .success(let value):
            guard let list = value["jobs"], list.kind == .array else {
                throw Failure(description: "the gateway's answer has no array jobs")
            }
            for item in list.elements { read(item) }
        }
    }

    private mutating func read(_ item: JSONValue) {
        guard let id = item["jobId"]?.string, let lease = item["leaseId"]?.string else {
            namelessCount += 1
            return
        }
        func fault(_ field: String) -> UnreadableJob { UnreadableJob(id: id, leaseID: lease, field: field) }
        guard let kind = item["tokenKind"]?.string.flatMap(TokenKind.init) else {
            return unreadable.append(fault("tokenKind"))
        }
        guard let environment = item["environment"]?.string.flatMap(Environment.init) else {
            return unreadable.append(fault("environment"))
        }
        guard let type = item["pushType"]?.string.flatMap(PushType.init) else {
            return unreadable.append(fault("pushType"))
        }
        guard let token = item["deviceToken"]?.string else { return unreadable.append(fault("deviceToken")) }
        guard let appID = item["appId"]?.string else { return unreadable.append(fault("appId")) }
        guard let requestID = item["apnsId"]?.string else { return unreadable.append(fault("apnsId")) }
        guard let body = item["body"] else { return unreadable.append(fault("body")) }
        var writer = JSONWriter(capacity: 1_024)
        writer.value(body)
        let notification = Notification(
            token: token, tokenKind: kind, environment: environment, topic: item["topic"]?.string ?? "",
            pushType: type, priority: Int(clamping: item["priority"]?.integer ?? 10),
            expiration: item["expiration"]?.integer ?? 0, collapseID: item["collapseId"]?.string ?? "", id: requestID,
            body: writer.bytes)
        jobs.append(
            HandoffJob(
                id: id, leaseID: lease, appID: appID, attempt: Int(clamping: item["attempt"]?.integer ?? 1),
                leasedUntil: item["leasedUntil"]?.integer ?? .max, dueAt: item["dueAt"]?.integer ?? 0,
                notification: notification, facts: BodyFacts(body, isActivity: type == .liveactivity)))
    }
}
