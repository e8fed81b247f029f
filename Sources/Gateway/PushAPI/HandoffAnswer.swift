// The handoff API's answers. The hook's requests have the same format for jobs.

package import Delivery
internal import JSON
internal import Wire

package enum HandoffAnswer {
    /// Returns the leased jobs; empty after a timeout.
    package static func lease(_ jobs: [Job], registry: AppRegistry) -> APIResponse {
        var writer = JSONWriter(capacity: 64 + 1_024 * jobs.count)
        writer.object { writer in
            writer.array("jobs") { writer in
                for job in jobs { write(job, registry: registry, to: &writer) }
            }
        }
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// Returns the verdicts on results or extensions, in request order.
    package static func verdicts(_ verdicts: [ResultVerdict]) -> APIResponse {
        var writer = JSONWriter(capacity: 64 + 80 * verdicts.count)
        writer.object { writer in
            writer.objects("results", verdicts) { writer, verdict in
                writer.member("jobId", verdict.job.description)
                writer.member("verdict", verdict.verdict.name)
            }
        }
        return APIResponse(status: 200, body: writer.bytes)
    }

    static func write(_ job: Job, registry: AppRegistry, to writer: inout JSONWriter) {
        writer.object { writer in
            writer.member("channel", job.channel.name)
            writer.member("jobId", job.message.description)
            writer.member("msgId", job.message.description)
            writer.member("taskId", job.task.text)
            writer.member("appId", registry.appID(of: job.app))
            writer.member("cid", job.cid.description)
            writer.member("deviceToken", job.token)
            if job.channel == .apns {
                writer.member("tokenKind", job.tokenKind.name)
                writer.member("environment", job.environment.name)
            }
            writer.member("topic", job.topic)
            if job.channel == .apns {
                writer.member("pushType", job.pushType.name)
                writer.member("priority", job.priority)
            }
            writer.member("expiration", unixSeconds(job.expiration))
            writer.member("collapseId", job.collapseID)
            if job.channel == .apns { writer.member("apnsId", uuid(job.message)) }
            writer.key("body")
            writer.raw(job.body)
            writer.member("attempt", job.attempt)
            writer.member("acceptedAt", job.acceptedAt)
            writer.member("dueAt", job.dueAt)
            writer.member("leaseId", hex(job.leaseID))
            writer.member("leasedUntil", job.leasedUntil)
        }
    }

    /// Returns a job's expiration in Unix seconds; 0 means that the vendor must not store the message.
    private static func unixSeconds(_ milliseconds: GatewayTime) -> Int64 { max(0, milliseconds) / 1_000 }

    static func hex(_ words: (UInt64, UInt64)) -> String { MessageID(high: words.0, low: words.1).description }

    /// Returns a msgId in UUID format, as apns-id requires.
    static func uuid(_ message: MessageID) -> String {
        var text = Array(message.description.utf8)
        for place in [20, 16, 12, 8] { text.insert(UInt8(ascii: "-"), at: place) }
        return String(decoding: text, as: UTF8.self)
    }
}

extension ResultVerdict.Verdict {
    package var name: StaticString {
        switch self {
        case .recorded: "recorded"
        case .stale: "stale"
        case .cancelled: "cancelled"
        case .unknownJob: "unknownJob"
        case .storeFailed: "storeFailed"
        }
    }
}

extension TokenKind {
    package var name: StaticString {
        switch self {
        case .alert: "alert"
        case .voip: "voip"
        case .liveActivity: "liveActivity"
        case .liveActivityStart: "liveActivityStart"
        }
    }
}

extension TokenEnvironment {
    package var name: StaticString {
        switch self {
        case .production: "production"
        case .sandbox: "sandbox"
        }
    }
}

extension PushType {
    package var name: StaticString {
        switch self {
        case .alert: "alert"
        case .background: "background"
        case .voip: "voip"
        case .liveActivity: "liveactivity"
        }
    }
}
