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
        let acceptsWrites = context.store.acceptsWrites
        let word =
            switch status.phase {
            case .starting: "starting"
            case .stopping: "stopping"
            case .ready: acceptsWrites ? "ready" : "storeBusy"
            }
        let durability = context.isFsync ? "fsync" : "os"
        let body = """
            {"status":"\(word)","configuration":\(status.configurationVersion),"durability":"\(durability)",\
            "loops":\(context.loopCount),"queueEpoch":"\(context.queueEpoch)"}
            """
        return APIResponse(status: word == "ready" ? 200 : 503, body: Array(body.utf8))
    }
}
