// The hook: jobs are posted to a sender service instead of being leased by it. Pure functions; the gateway's outbound
// thread sends what is built here and hands the answer back.
//
// Signed as Standard Webhooks 1.0 asks (standardwebhooks.com): `v1,` and the base 64 of
// HMAC-SHA256(secret, id ‖ "." ‖ timestamp in seconds ‖ "." ‖ body).

internal import Cryptography
package import Delivery
internal import TextForms
package import Wire

/// The key shared with the sender service, written `whsec_` and base 64.
package struct HookSecret: Sendable {
    /// 24 to 64 bytes, the key of the HMAC.
    package let key: [UInt8]

    /// `nil` unless the text is `whsec_` followed by the base 64 of 24 to 64 bytes, as the specification asks; some tools
    /// leave the padding out.
    package init?(_ text: String) {
        let prefix = "whsec_"
        guard text.hasPrefix(prefix) else { return nil }
        var digits = Array(text.utf8.dropFirst(prefix.utf8.count))
        if digits.last != UInt8(ascii: "=") {
            while digits.count % 4 != 0 { digits.append(UInt8(ascii: "=")) }
        }
        guard let key = Base64.decode(digits, .standard), (24...64).contains(key.count) else { return nil }
        self.key = key
    }

    /// The header `webhook-signature`.
    package func signature(id: String, timestamp: Int64, body: [UInt8]) -> String {
        let signed = Array("\(id).\(timestamp).".utf8) + body
        return "v1," + Base64.encode(HMACSHA256.code(key: key, message: signed), .standard)
    }
}

/// The headers of one attempt to post a body, signed with each secret in force.
package enum WebhookHeaders {
    package static func make(
        id: String, body: [UInt8], keys: [HookSecret], unixSeconds: Int64
    ) -> [(name: String, value: String)] {
        // Signatures stand apart by a space, so that the receiver may change its secret at leisure.
        let signatures = keys.map { $0.signature(id: id, timestamp: unixSeconds, body: body) }
        return [
            ("content-type", "application/json;charset=utf-8"), ("webhook-id", id),
            ("webhook-timestamp", String(unixSeconds)), ("webhook-signature", signatures.joined(separator: " ")),
        ]
    }
}

/// One batch on its way to the hook.
///
/// A retry sends the same id and body with a new timestamp and signature.
package struct HookDelivery: Sendable {
    package let id: String
    package let body: [UInt8]
    package let jobs: [Job]

    /// Takes freshly leased jobs of a channel, at least one; their lease names the delivery, too.
    package init(jobs: [Job], channel: VendorChannel, leaseID: (UInt64, UInt64), registry: AppRegistry) {
        id = "msg_" + HandoffAnswer.hex(leaseID)
        self.jobs = jobs
        var writer = JSONWriter(capacity: 128 + 1_024 * jobs.count)
        writer.beginObject()
        writer.key("type")
        writer.string("longwire.handoff")
        writer.key("channel")
        writer.string(channel.name)
        writer.key("jobs")
        writer.beginArray()
        for job in jobs { HandoffAnswer.write(job, registry: registry, to: &writer) }
        writer.endArray()
        writer.endObject()
        body = writer.bytes
    }

    /// The request's headers at `now`, name and value.
    package func headers(secret: HookSecret, now: GatewayTime) -> [(String, String)] {
        WebhookHeaders.make(id: id, body: body, keys: [secret], unixSeconds: now / 1_000).map { ($0.name, $0.value) }
    }
}

/// What the hook's answer means.
package enum HookAnswer: Sendable {
    /// One result a job, in the delivery's order: settle them.
    case settled([JobResult])
    /// 202: the results will come through the handoff API; the leases run on.
    case deferred
    /// Nothing is known: send the same delivery again after a while. The reason is for logs and has no body in it.
    case retry(reason: String)

    /// Reads an answer.
    ///
    /// An empty 2xx accepts every job. A 2xx with a body names outcomes, `[{jobId, outcome, …}]` or
    /// `{"results": […]}`, and jobs it does not name are accepted; names of other jobs are ignored. A body that cannot be
    /// read is no acceptance: the delivery is repeated.
    package init(status: Int, body: UnsafeRawBufferPointer, delivery: HookDelivery) {
        guard status != 202 else {
            self = .deferred
            return
        }
        guard (200...299).contains(status) else {
            self = .retry(reason: "status \(status)")
            return
        }
        let isBlank = body.allSatisfy { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
        do throws(AdminFault) {
            self = .settled(try Self.results(isBlank ? nil : body, delivery))
        } catch {
            self = .retry(reason: "status \(status), but \(error.message)")
        }
    }

    private static func results(
        _ body: UnsafeRawBufferPointer?, _ delivery: HookDelivery
    ) throws(AdminFault) -> [JobResult] {
        var results = delivery.jobs.map { JobResult(job: $0.message, leaseID: $0.leaseID, outcome: .accepted) }
        guard let body else { return results }
        var places: [MessageID: Int] = [:]
        for (place, job) in delivery.jobs.enumerated() { places[job.message] = place }

        let parser = JSONParser(byteLimit: Limits.hookAnswerByteCount)
        let root: JSONValue
        do throws(JSONError) {
            root = try parser.parse(body)
        } catch {
            throw AdminFault(.badJSON, "its body is not JSON: \(error.explanation)")
        }
        if root.isNull || (root.kind == .object && root.isEmptyContainer) { return results }
        for (index, item) in try StrictObject.list(root, "results").elements.enumerated() {
            let result = try StrictObject.result(item, at: "results[\(index)]", leaseID: (0, 0))
            guard let place = places[result.job] else { continue }
            var named = result
            named.leaseID = results[place].leaseID
            results[place] = named
        }
        return withExtendedLifetime(parser) { results }
    }
}
