// The hook posts jobs to a sender service, as an alternative to leases by the service. These are pure functions; the gateway's
// outbound thread does the I/O.

package import Delivery
internal import JSON
package import Webhooks
package import Wire

/// A batch for the hook; a retry sends the same id and body with a new timestamp and signature.
package struct HookDelivery: Sendable {
    package let id: String
    package let body: [UInt8]
    package let jobs: [Job]

    /// Creates a delivery of freshly leased jobs of one channel, at least one; `leaseID` is also the delivery's id.
    package init(jobs: [Job], channel: VendorChannel, leaseID: (UInt64, UInt64), registry: AppRegistry) {
        id = "msg_" + HandoffAnswer.hex(leaseID)
        self.jobs = jobs
        var writer = JSONWriter(capacity: 128 + 1_024 * jobs.count)
        writer.object { writer in
            writer.member("type", "longwire.handoff")
            writer.member("channel", channel.name)
            writer.array("jobs") { writer in
                for job in jobs { HandoffAnswer.write(job, registry: registry, to: &writer) }
            }
        }
        body = writer.bytes
    }

    package func headers(secret: HookSecret, now: GatewayTime) -> [(String, String)] {
        WebhookHeaders.make(id: id, body: body, keys: [secret], unixSeconds: now / 1_000).map { ($0.name, $0.value) }
    }
}

/// The meaning of the hook's answer.
package enum HookAnswer: Sendable {
    /// One result per job, in the delivery's order, to be settled.
    case settled([JobResult])
    /// 202: the results follow through the handoff API, before the leases expire.
    case deferred
    /// The result is unknown, and the delivery must be repeated later; the reason is for logs and contains no body.
    case retry(reason: String)

    /// Parses an answer.
    ///
    /// An empty 2xx accepts every job. A 2xx body lists outcomes, `[{jobId, outcome, …}]` or `{"results": […]}`. Jobs missing
    /// from the list are accepted, and unknown jobs in it are ignored. An invalid body is not an acceptance: the delivery is
    /// repeated.
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
