// Strict parsing of the handoff API's bodies. A misspelled key is an error and does not silently select a default.

internal import APNs
internal import Delivery
internal import JSON
internal import Wire

struct StrictObject {
    private let object: JSONValue
    private let place: String

    /// Accepts an object that has only known keys; `place` is its name in error messages.
    init(_ value: JSONValue, known: [StaticString], at place: String = "") throws(AdminFault) {
        guard value.kind == .object else {
            throw .invalid(place.isEmpty ? "the body is an object" : "\(place) is an object")
        }
        (object, self.place) = (value, place.isEmpty ? "" : place + ".")
        for (key, _) in value.members where !known.contains(where: { key.equals($0) }) {
            throw .invalid("\(self.place)\(key.string?.prefix(64) ?? "") is unknown here")
        }
    }

    /// Returns the body if it is an array, or else the array under `name`.
    static func list(_ body: JSONValue, _ name: StaticString) throws(AdminFault) -> JSONValue {
        if body.kind == .array { return body }
        _ = try StrictObject(body, known: [name])
        guard let list = body[name], list.kind == .array else { throw .invalid("\(name) is an array") }
        return list
    }

    func text(_ name: StaticString) throws(AdminFault) -> String? {
        guard let value = object[name] else { return nil }
        guard let text = value.string else { throw .invalid("\(place)\(name) is a string") }
        return text
    }

    func integer(_ name: StaticString, in range: ClosedRange<Int64>) throws(AdminFault) -> Int64? {
        guard let value = object[name] else { return nil }
        guard let number = value.integer, range.contains(number) else {
            throw .invalid("\(place)\(name) is an integer from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    func job() throws(AdminFault) -> MessageID {
        guard let bytes = object["jobId"]?.stringBytes, let job = MessageID(hex: bytes), job.bucket != nil else {
            throw .invalid("\(place)jobId is 32 lower-case hex digits, as leased")
        }
        return job
    }

    func lease() throws(AdminFault) -> (UInt64, UInt64) {
        // A lease id has the form of a msgId, 32 hex digits, so `MessageID` can parse it.
        guard let bytes = object["leaseId"]?.stringBytes, let words = MessageID(hex: bytes) else {
            throw .invalid("\(place)leaseId is 32 lower-case hex digits, as leased")
        }
        return (words.high, words.low)
    }

    /// Parses one result; the item names its lease, except in a hook's answer, where `leaseID` is the job's own lease.
    static func result(
        _ item: JSONValue, at place: String, leaseID: (UInt64, UInt64)?
    ) throws(AdminFault) -> JobResult {
        let fields = try StrictObject(
            item, known: ["jobId", "leaseId", "outcome", "reason", "vendorId", "timestamp", "retryAfterSeconds"],
            at: place)
        let job = try fields.job()
        let lease: (UInt64, UInt64)
        if let leaseID { lease = leaseID } else { lease = try fields.lease() }
        let named = try fields.text("outcome")
        guard let outcome = JobResult.Outcome.allCases.first(where: { "\($0.name)" == named }) else {
            let names = JobResult.Outcome.allCases.map { "\($0.name)" }.joined(separator: ", ")
            throw .invalid("\(place).outcome is one of \(names)")
        }
        let reason = try fields.text("reason") ?? ""
        let vendorID = try fields.text("vendorId") ?? ""
        let timestamp = try fields.integer("timestamp", in: 0...(1 << 52)) ?? 0
        let retryAfter = try fields.integer("retryAfterSeconds", in: HandoffBounds.retryAfterSeconds) ?? 0
        return JobResult(
            job: job, leaseID: lease, outcome: outcome, reason: truncated(reason), vendorID: truncated(vendorID),
            timestamp: timestamp, retryAfterMilliseconds: retryAfter * 1_000)
    }

    static func receipt(
        _ item: JSONValue, at place: String
    ) throws(AdminFault) -> VendorReceipt {
        let fields = try StrictObject(item, known: ["msgId", "appId", "channel", "kind", "token", "at"], at: place)
        guard let text = try fields.text("msgId"),
            let message = Array(text.utf8).withUnsafeBytes({ MessageID(hex: $0) })
        else { throw .invalid("\(place).msgId is 32 lower-case hex digits") }
        let named = try fields.text("kind")
        guard let kind = VendorReceipt.Kind.allCases.first(where: { "\($0)" == named }) else {
            let names = VendorReceipt.Kind.allCases.map { "\($0)" }.joined(separator: ", ")
            throw .invalid("\(place).kind is one of \(names)")
        }
        let token = try fields.text("token") ?? ""
        guard token.utf8.count <= Wire.Limits.tokenByteCount else {
            throw .invalid("\(place).token has at most \(Wire.Limits.tokenByteCount) bytes")
        }
        let channel = try fields.text("channel")
        guard channel.map({ VendorChannel(named: $0) != nil }) ?? true else {
            throw .invalid("\(place).channel is no channel of a vendor")
        }
        return VendorReceipt(
            message: message, app: try fields.text("appId").map { AppKey(appID: $0) },
            channel: channel.flatMap { VendorChannel(named: $0) }, kind: kind, token: token,
            at: try fields.integer("at", in: 0...(1 << 52)) ?? 0)
    }

    /// Returns at most `Limits.vendorReasonByteCount` bytes of the text, cut between characters.
    private static func truncated(_ text: String) -> String {
        guard text.utf8.count > Limits.vendorReasonByteCount else { return text }
        var count = 0
        let kept = text.unicodeScalars.prefix { scalar in
            count += UTF8.width(scalar)
            return count <= Limits.vendorReasonByteCount
        }
        return String(kept)
    }
}

extension JobResult.Outcome {
    /// The name in results and in a device's `vendorFailure`.
    var name: StaticString {
        switch self {
        case .accepted: "accepted"
        case .retry: "retry"
        case .rejected: "rejected"
        case .badToken: "badToken"
        case .unsent: "unsent"
        }
    }
}
