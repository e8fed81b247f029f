internal import EventLoops
internal import Platform
internal import PushAPI

/// Takes jobs that the gateway posts to its hook, in place of leasing them.
enum HookIntake {
    /// Standard Webhooks asks receivers to refuse old calls; the gateway signs each attempt anew.
    private static let toleranceSeconds: Int64 = 300
    /// The gateway posts at most 500 jobs in one call.
    static let bodyByteLimit = 8 << 20

    /// Before its body is kept, a call must look like one of the gateway's.
    static func judge(_ head: HTTPRequestHead) -> HTTPJudgement {
        guard head.method == .post else { return refusal(405, "POST only", headers: [allow]) }
        guard head.header("webhook-id") != nil, head.header("webhook-signature") != nil,
            let time = head.header("webhook-timestamp").flatMap({ Int64(String(decoding: $0, as: UTF8.self)) }),
            isFresh(time)
        else { return refusal(401, "the signature does not fit") }
        return .take(byteLimit: bodyByteLimit, isProven: false)
    }

    private static let allow = (name: "Allow", value: "POST")

    private static func refusal(
        _ status: Int, _ text: String, headers: [(name: String, value: String)] = []
    ) -> HTTPJudgement {
        .refuse(HTTPReply(status: status, headers: headers, body: Array((text + "\n").utf8)))
    }

    private static func isFresh(_ time: Int64) -> Bool {
        let now = Int64(SystemClock.wallMilliseconds / 1_000)
        return time > now - toleranceSeconds && time < now + toleranceSeconds
    }

    static func handle(_ exchange: HTTPExchange, _ sender: Sender, _ link: GatewayLink, secrets: [HookSecret]) {
        guard exchange.method == .post else { return refuse(exchange, 405, "POST only", headers: [allow]) }
        let body = Array(exchange.body)
        guard isSigned(exchange, body, secrets) else { return refuse(exchange, 401, "the signature does not fit") }
        // 503: the gateway keeps the batch and posts it again.
        guard !sender.isStopping, link.room > 0 else { return refuse(exchange, 503, "no room, retry") }
        do throws(HandoffJobReader.Failure) {
            // The call was signed in the gateway's time, as the leases are. It may have been on its way for long, which
            // only this machine's clock tells.
            let signedAt = (exchange.header("webhook-timestamp").flatMap { Int64($0) } ?? 0) * 1_000
            let delay = max(0, sender.wallMilliseconds - signedAt)
            link.took(
                try sender.take(body) {
                    let length = min(max(0, $0.leasedUntil), 1 << 52) - signedAt
                    return JobLease(left: length - delay, length: length)
                })
        } catch {
            return refuse(exchange, 400, error.description)
        }
        // Results follow by the handoff API.
        exchange.respond(status: 202)
    }

    private static func isSigned(_ exchange: HTTPExchange, _ body: [UInt8], _ secrets: [HookSecret]) -> Bool {
        guard let id = exchange.header("webhook-id"), let given = exchange.header("webhook-signature"),
            let time = exchange.header("webhook-timestamp").flatMap({ Int64($0) })
        else { return false }
        guard isFresh(time) else { return false }
        let signatures = given.split(separator: " ").map { Array($0.utf8) }
        return secrets.contains { secret in
            let expected = Array(secret.signature(id: id, timestamp: time, body: body).utf8)
            return signatures.contains { isEqual($0, expected) }
        }
    }

    /// Looks at every byte, so that the time taken tells nothing of where two differ.
    static func isEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
        guard left.count == right.count else { return false }
        return zip(left, right).reduce(0) { $0 | $1.0 ^ $1.1 } == 0
    }

    private static func refuse(
        _ exchange: HTTPExchange, _ status: Int, _ text: String, headers: [(name: String, value: String)] = []
    ) {
        exchange.respond(
            status: status, contentType: "text/plain;charset=utf-8", headers: headers, body: Array((text + "\n").utf8))
    }
}
