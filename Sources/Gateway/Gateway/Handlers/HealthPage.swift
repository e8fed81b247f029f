internal import JSON
internal import MessageStore
internal import Platform
internal import PushAPI

/// Health checks: `/healthz` reports that the process runs, `/readyz` whether it serves, and with which configuration.
enum HealthPage {
    static func health(_: GatewayContext) -> APIResponse {
        APIResponse(status: 200, body: Array(#"{"status":"ok"}"#.utf8))
    }

    /// Returns the readiness; with `withFindings` also the names of findings, which only operators should see.
    static func readiness(_ context: GatewayContext, withFindings: Bool = false) -> APIResponse {
        let status = context.status.withLock { $0 }
        let cluster = context.cluster?.health()
        let word =
            switch status.phase {
            case .starting: "starting"
            case .stopping: "stopping"
            case .ready where context.isEmptying && cluster?.isCutOff != true: "draining"
            case .ready: cluster?.fault?.rawValue ?? (context.store.isServing ? "ready" : "storeBusy")
            }
        var writer = JSONWriter(capacity: 256)
        writer.object { writer in
            writer.member("status", word)
            writer.member("configuration", status.configurationVersion)
            writer.member("durability", context.isFsync ? "fsync" : "os")
            writer.member("loops", context.partitionCount)
            writer.member("queueEpoch", "\(context.queueEpoch)")
            if let cluster { write(cluster, to: &writer) }
            let offset = status.clockOffset
            if abs(offset) > ClockLimits.noticedOffset { writer.member("clockOffsetMilliseconds", offset) }
            let isBusy = cluster != nil && !context.store.acceptsWrites
            let busy = isBusy ? context.store.statistics.refusalReason ?? busyReason : nil
            let clock = HealthWatch.clock(status).first.map { "\($0.text). \($0.advice)" }
            let reasons = [cluster?.reason, busy, clock].compactMap { $0 }
            if !reasons.isEmpty { writer.member("reason", reasons.joined(separator: "; ")) }
            guard withFindings else { return }
            let found = Set(context.health.withLock { $0.findings.map(\.name) }).subtracting([.webhookFailing])
            let names = HealthFinding.Name.allCases.filter(found.contains).map(\.rawValue)
            if !names.isEmpty { writer.strings("findings", names) }
        }
        return APIResponse(status: word == "ready" ? 200 : 503, body: writer.bytes)
    }

    /// Returns all findings with their remedies.
    ///
    /// A credential for some apps does not see findings about webhooks, because these findings name apps.
    static func findings(_ context: GatewayContext, isForAllApps: Bool) -> APIResponse {
        let findings = context.health.withLock(\.findings).filter { isForAllApps || $0.name != .webhookFailing }
        var writer = JSONWriter(capacity: 1_024)
        writer.object { writer in
            writer.array("findings") { writer in
                for finding in findings {
                    writer.object { writer in
                        writer.member("name", finding.name.rawValue)
                        writer.member("severity", finding.severity.rawValue)
                        if !finding.subject.isEmpty { writer.member("subject", finding.subject) }
                        writer.member("text", finding.text)
                        writer.member("advice", finding.advice)
                    }
                }
            }
        }
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// Returns the answer to health checks and admin calls while `reason` delays the start.
    static func starting(_ reason: String, isHealth: Bool) -> APIResponse {
        var writer = JSONWriter(capacity: 256)
        writer.object { writer in
            writer.member("status", isHealth ? "ok" : "starting")
            if !isHealth { writer.member("reason", reason) }
        }
        return APIResponse(status: isHealth ? 200 : 503, body: writer.bytes)
    }

    private static let busyReason = "Redis refused or held up the writes of some parts: see redisEvent in the log"

    private static func write(_ cluster: ClusterHealth, to writer: inout JSONWriter) {
        writer.member("node", cluster.node)
        writer.member("partsOwned", cluster.ownedParts)
        writer.array("partsWithoutOwner") { writer in
            for part in cluster.partsWithoutOwner { writer.integer(Int64(part)) }
        }
        if let since = cluster.redisAwaySince { writer.member("redisAwaySince", since) }
        if !cluster.linksDown.isEmpty { writer.strings("linksDown", cluster.linksDown) }
    }
}
