internal import APNs
internal import JSON
internal import Vendors

/// Reads the jobs of a lease answer or a hook call.
struct HandoffJobReader {
    private(set) var jobs: [HandoffJob] = []
    private(set) var unreadable: [UnreadableJob] = []
    /// The number of jobs without readable ids; they cannot be reported, and their leases expire.
    private(set) var namelessCount = 0

    static func makeParser() -> JSONParser {
        JSONParser(depthLimit: JSONParser.standardDepth + HandoffBounds.jobDepth)
    }

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

    /// The names of the channels that the jobs belong to.
    var channels: Set<String> { Set(jobs.map(\.channel) + unreadable.map(\.channel)) }

    private mutating func read(_ item: JSONValue) {
        guard let id = item["jobId"]?.string, let lease = item["leaseId"]?.string else {
            namelessCount += 1
            return
        }
        let name = item["channel"]?.string ?? Channel.apns.name
        do throws(FieldFault) {
            var fields = HandoffJob.Lease(
                id: id, leaseID: lease, appID: "", attempt: Int(clamping: item["attempt"]?.integer ?? 1),
                leasedUntil: item["leasedUntil"]?.integer ?? .max, dueAt: item["dueAt"]?.integer ?? 0)
            switch Channel(name: name) {
            case .apns: jobs.append(try Self.apple(item, &fields))
            case .vendor(let vendor): jobs.append(try Self.vendor(item, vendor, &fields))
            case nil: jobs.append(HandoffJob(fields, channel: String(name.prefix(64))))
            }
        } catch {
            unreadable.append(UnreadableJob(id: id, leaseID: lease, field: error.field, channel: name))
        }
    }

    private struct FieldFault: Error {
        var field: String
    }

    private static func text(_ item: JSONValue, _ field: StaticString) throws(FieldFault) -> String {
        guard let text = item[field]?.string else { throw FieldFault(field: "\(field)") }
        return text
    }

    private static func apple(_ item: JSONValue, _ lease: inout HandoffJob.Lease) throws(FieldFault) -> AppleJob {
        guard let kind = TokenKind(rawValue: try text(item, "tokenKind")) else { throw FieldFault(field: "tokenKind") }
        guard let environment = Environment(rawValue: try text(item, "environment")) else {
            throw FieldFault(field: "environment")
        }
        guard let type = PushType(rawValue: try text(item, "pushType")) else { throw FieldFault(field: "pushType") }
        let token = try text(item, "deviceToken")
        lease.appID = try text(item, "appId")
        let requestID = try text(item, "apnsId")
        guard let body = item["body"] else { throw FieldFault(field: "body") }
        var writer = JSONWriter(capacity: 1_024)
        writer.value(body)
        let notification = Notification(
            token: token, tokenKind: kind, environment: environment, topic: item["topic"]?.string ?? "",
            pushType: type, priority: Int(clamping: item["priority"]?.integer ?? 10),
            expiration: item["expiration"]?.integer ?? 0, collapseID: item["collapseId"]?.string ?? "", id: requestID,
            body: writer.bytes)
        return AppleJob(
            lease, notification: notification, facts: BodyFacts(body, isActivity: type == .liveactivity))
    }

    private static func vendor(
        _ item: JSONValue, _ vendor: Vendor, _ lease: inout HandoffJob.Lease
    ) throws(FieldFault) -> VendorJob {
        let token = try text(item, "deviceToken")
        lease.appID = try text(item, "appId")
        let messageID = try text(item, "msgId")
        let taskID = try text(item, "taskId")
        guard let body = item["body"] else { throw FieldFault(field: "body") }
        let content: PushContent
        do throws(PushContent.Failure) {
            content = try PushContent(body, vendor: vendor)
        } catch {
            throw FieldFault(field: error.field)
        }
        let message = VendorMessage(
            token: token, packageName: item["topic"]?.string ?? "", messageID: messageID, taskID: taskID,
            collapseID: item["collapseId"]?.string ?? "", content: content, secondsToLive: 0)
        return VendorJob(lease, vendor, message, expiration: item["expiration"]?.integer ?? 0)
    }
}
