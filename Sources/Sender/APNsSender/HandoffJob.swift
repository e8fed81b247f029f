internal import APNs
internal import JSON

/// A leased handoff job in the sender's hands, until its result is on its way to the gateway.
final class HandoffJob {
    let id: String
    /// Of the newest lease.
    var leaseID: String
    let appID: String
    /// How often the gateway has leased it, this lease included.
    let attempt: Int
    /// In the gateway's time; of the lease that it came with.
    let leasedUntil: Int64
    /// When it fell due, in the gateway's time; 0: not known.
    let dueAt: Int64
    /// The job is the gateway's again then, in the loop's milliseconds.
    var deadline: UInt64 = .max
    let notification: Notification
    let facts: BodyFacts

    /// Where it goes now; the other environment may be tried after the one that the token was registered with.
    var environment: Environment
    /// Requests begun for it in this lease.
    var tries = 0
    /// Requests that Apple sent back unread.
    var refusals = 0
    /// A request of this lease ended without an answer: Apple may have the notification.
    var mayBeTaken = false
    var hasTriedOther = false
    var hasRenewedToken = false
    /// When it came, in the loop's milliseconds.
    var takenAt: UInt64 = 0
    /// How long it had been due when it was leased, in milliseconds.
    private(set) var waited: UInt64 = 0

    init(
        id: String, leaseID: String, appID: String, attempt: Int, leasedUntil: Int64, dueAt: Int64 = 0,
        notification: Notification, facts: BodyFacts
    ) {
        (self.id, self.leaseID, self.appID) = (id, leaseID, appID)
        (self.attempt, self.leasedUntil, self.dueAt) = (attempt, leasedUntil, dueAt)
        (self.notification, self.facts, environment) = (notification, facts, notification.environment)
    }

    /// Notes how long the job was due before its lease of `lease` milliseconds.
    ///
    /// `dueAt` and `leasedUntil` are the gateway's, since its clock may differ from ours. Times that no clock has count as nothing.
    func noteWait(lease: Int64) {
        guard dueAt > 0, dueAt <= leasedUntil, leasedUntil < 1 << 53 else { return }
        waited = UInt64(min(max(0, leasedUntil - lease - dueAt), 7 * 86_400_000))
    }
}

/// How long a job is ours.
struct JobLease: Equatable {
    /// From now on, in milliseconds; below zero: the lease is over.
    var left: Int64
    /// From its begin to its end, in milliseconds.
    var length: Int64

    init(left: Int64, length: Int64? = nil) { (self.left, self.length) = (left, length ?? left) }
}

/// A job that cannot be read: only its ids are known, so that its result can say why.
struct UnreadableJob: Equatable {
    var id: String
    var leaseID: String
    var field: String
}

/// Reads jobs as the handoff API and the hook give them.
struct HandoffJobReader {
    private(set) var jobs: [HandoffJob] = []
    private(set) var unreadable: [UnreadableJob] = []
    /// Jobs without an id: nothing can be said about them, and their leases lapse.
    private(set) var namelessCount = 0

    /// Why an answer is none of the handoff API's.
    struct Failure: Error, Equatable, CustomStringConvertible {
        let description: String
    }

    /// Reads an object with an array `jobs`.
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
        // A job whose ids cannot be read returns when its lease lapses.
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
