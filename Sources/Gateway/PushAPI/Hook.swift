// The hook: jobs are posted to a sender service instead of being leased by it. Pure functions; the gateway's outbound
// thread sends what is built here and hands the answer back.

package import Delivery
internal import JSON
package import Webhooks
package import Wire

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
        writer.object { writer in
            writer.member("type", "longwire.handoff")
            writer.member("channel", channel.name)
            writer.array("jobs") { writer in
                for job in jobs { HandoffAnswer.write(job, registry: registry, to: &writer) }
            }
        }
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
