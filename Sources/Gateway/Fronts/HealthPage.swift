internal import MessageStore
internal import Platform
internal import PushAPI

/// `/healthz` says that the process runs; `/readyz` whether it takes work, and with which configuration.
enum HealthPage {
    static func health(_: GatewayContext) -> APIResponse {
        APIResponse(status: 200, body: Array(#"{"status":"ok"}"#.utf8))
    }

    static func readiness(_ context: GatewayContext) -> APIResponse {
        let status = context.status.withLock { $0 }
        let cluster = context.cluster?.health()
        let word =
            switch status.phase {
            case .starting: "starting"
            case .stopping: "stopping"
            case .ready where context.isEmptying: "draining"
            case .ready: cluster?.fault?.rawValue ?? (context.store.isServing ? "ready" : "storeBusy")
            }
        var writer = JSONWriter(capacity: 256)
        writer.beginObject()
        writer.key("status")
        writer.string(word)
        writer.key("configuration")
        writer.integer(status.configurationVersion)
        writer.key("durability")
        writer.string(context.isFsync ? "fsync" : "os")
        writer.key("loops")
        writer.integer(Int64(context.loopCount))
        writer.key("queueEpoch")
        writer.string("\(context.queueEpoch)")
        if let cluster { write(cluster, context.store, to: &writer) }
        writer.endObject()
        return APIResponse(status: word == "ready" ? 200 : 503, body: writer.bytes)
    }

    /// The answer of a start that waits for `reason`; in the envelope of Getui's errors, so that its SDKs try again.
    static func starting(_ reason: String, isHealth: Bool) -> APIResponse {
        var writer = JSONWriter(capacity: 256)
        writer.beginObject()
        writer.key("status")
        writer.string(isHealth ? "ok" : "starting")
        if !isHealth {
            writer.key("reason")
            writer.string(reason)
        }
        writer.endObject()
        return APIResponse(status: isHealth ? 200 : 503, body: writer.bytes)
    }

    private static let busyReason = "Redis refuses or holds up the writes of some parts: see storeBusy in the log"

    /// What the cluster adds; `reason` also tells what is missing on a gateway that is ready.
    private static func write(_ cluster: ClusterHealth, _ store: any StoreService, to writer: inout JSONWriter) {
        writer.key("node")
        writer.integer(Int64(cluster.node))
        writer.key("partsOwned")
        writer.integer(Int64(cluster.ownedParts))
        writer.key("partsWithoutOwner")
        writer.beginArray()
        for part in cluster.partsWithoutOwner { writer.integer(Int64(part)) }
        writer.endArray()
        if let since = cluster.redisAwaySince {
            writer.key("redisAwaySince")
            writer.integer(since)
        }
        if !cluster.linksDown.isEmpty {
            writer.key("linksDown")
            writer.beginArray()
            for address in cluster.linksDown { writer.string(address) }
            writer.endArray()
        }
        let refusal = store.acceptsWrites ? nil : store.statistics.refusalReason ?? Self.busyReason
        let reasons = [cluster.reason, refusal].compactMap { $0 }
        if !reasons.isEmpty {
            writer.key("reason")
            writer.string(reasons.joined(separator: "; "))
        }
    }
}
