// The handoff API's answers; the hook's requests carry the same jobs.

package import Delivery
internal import JSON
internal import Wire

package enum HandoffAnswer {
    /// The leased jobs, none when there were none within the wait.
    package static func lease(_ jobs: [Job], registry: AppRegistry) -> APIResponse {
        .object(["jobs": jobs.map { object($0, registry: registry) }])
    }

    /// What became of results, or of extensions, in the order they were given.
    package static func verdicts(_ verdicts: [ResultVerdict]) -> APIResponse {
        .object(["results": verdicts.map { ["jobId": $0.job.description, "verdict": $0.verdict.name] as JSONObject }])
    }

    static func object(_ job: Job, registry: AppRegistry) -> JSONObject {
        [
            "channel": job.channel.name,
            "jobId": job.message.description,
            "msgId": job.message.description,
            "taskId": job.task.text,
            "appId": registry.appID(of: job.app),
            "cid": job.cid.description,
            "deviceToken": job.token,
            "tokenKind": job.tokenKind.name,
            "environment": job.environment.name,
            "topic": job.topic,
            "pushType": job.pushType.name,
            "priority": job.priority,
            "expiration": apnsExpiration(job.expiration),
            "collapseId": job.collapseID,
            "apnsId": uuid(job.message),
            "body": JSONText(job.body),
            "attempt": job.attempt,
            "acceptedAt": job.acceptedAt,
            "dueAt": job.dueAt,
            "leaseId": hex(job.leaseID),
            "leasedUntil": job.leasedUntil,
        ]
    }

    /// Absolute seconds, as the header apns-expiration wants them; 0: APNs must not store it.
    private static func apnsExpiration(_ milliseconds: GatewayTime) -> Int64 { max(0, milliseconds) / 1_000 }

    static func hex(_ words: (UInt64, UInt64)) -> String { MessageID(high: words.0, low: words.1).description }

    /// A msgId in the form of a UUID, which apns-id requires.
    static func uuid(_ message: MessageID) -> String {
        var text = Array(message.description.utf8)
        for place in [20, 16, 12, 8] { text.insert(UInt8(ascii: "-"), at: place) }
        return String(decoding: text, as: UTF8.self)
    }
}

extension ResultVerdict.Verdict {
    package var name: String { "\(self)" }
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
    /// The value of the header apns-push-type.
    package var name: StaticString {
        switch self {
        case .alert: "alert"
        case .background: "background"
        case .voip: "voip"
        case .liveActivity: "liveactivity"
        }
    }
}
