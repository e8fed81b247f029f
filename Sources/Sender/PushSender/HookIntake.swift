internal import Cryptography
internal import EventLoops
internal import Platform
internal import Structures
internal import Webhooks

/// The ids of accepted hook calls, to detect repeated ones.
struct TakenCalls: ~Copyable {
    struct Entry {
        var call: UInt64
        var at: UInt64
    }

    let keepMilliseconds: UInt64
    let limit: Int
    private var lastSeen: [UInt64: UInt64] = [:]
    /// The calls in order of expiry; a repeated call moves to the end.
    var order = Ring<Entry>()

    init(keepMilliseconds: UInt64, limit: Int) { (self.keepMilliseconds, self.limit) = (keepMilliseconds, limit) }

    var count: Int { lastSeen.count }

    /// Returns whether the call was accepted before, and renews its entry.
    mutating func recognise(_ id: String, now: UInt64) -> Bool {
        forget(now)
        let call = Self.name(id)
        guard lastSeen[call] != nil else { return false }
        lastSeen[call] = now
        return true
    }

    /// Whether another call can be remembered; without room no call is accepted, because its repetition would go undetected.
    var hasRoom: Bool { lastSeen.count < limit }

    mutating func note(_ id: String, now: UInt64) {
        let call = Self.name(id)
        lastSeen[call] = now
        order.append(Entry(call: call, at: now))
    }

    private mutating func forget(_ now: UInt64) {
        while let first = order.first, now >= first.at + keepMilliseconds {
            _ = order.popFirst()
            guard let seen = lastSeen[first.call] else { continue }
            if now >= seen + keepMilliseconds {
                lastSeen[first.call] = nil
            } else {
                order.append(Entry(call: first.call, at: seen))
            }
        }
    }

    private static func name(_ id: String) -> UInt64 {
        Array(id.utf8).withUnsafeBytes { SHA256.digest($0).words.0 }
    }
}

/// The receiver of jobs that the gateway posts to the sender's hook, instead of leases.
///
/// Confined to the sender's loop.
final class HookIntake {
    /// The time for which call ids are kept.
    ///
    /// A signed call can be replayed by an attacker while its timestamp is fresh. The gateway repeats an unanswered call with
    /// the same id within five minutes.
    private static let keepMilliseconds: UInt64 = 900_000
    /// 500 calls a second for 900 s, about 20 MB.
    private static let keptCalls = 500_000

    private let intake: JobIntake
    private let secrets: [HookSecret]
    private var taken = TakenCalls(keepMilliseconds: keepMilliseconds, limit: keptCalls)

    init(_ intake: JobIntake, secrets: [HookSecret]) { (self.intake, self.secrets) = (intake, secrets) }

    /// The accepted age of a call, as Standard Webhooks requires; the gateway signs each attempt anew.
    private static let toleranceSeconds: Int64 = 300
    /// Room for 500 jobs, the gateway's maximum per call.
    static let bodyByteLimit = 8 << 20

    /// Checks method and headers before the body is buffered.
    static func judge(_ head: HTTPRequestHead) -> HTTPPrecheck {
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
    ) -> HTTPPrecheck {
        .refuse(HTTPReply(status: status, headers: headers, body: Array((text + "\n").utf8)))
    }

    private static func isFresh(_ time: Int64) -> Bool {
        let now = Int64(SystemClock.wallMilliseconds / 1_000)
        return time > now - toleranceSeconds && time < now + toleranceSeconds
    }

    func handle(_ exchange: HTTPExchange) {
        guard exchange.method == .post else { return refuse(exchange, 405, "POST only", headers: [Self.allow]) }
        let body = Array(exchange.body)
        guard let id = exchange.header("webhook-id"), isSigned(exchange, id, body) else {
            return refuse(exchange, 401, "the signature does not fit")
        }
        let now = intake.register.loop.now
        // The gateway repeats a call whose answer it did not receive. The jobs are already held, or their results are in flight.
        if taken.recognise(id, now: now) {
            intake.repeatedCalls += 1
            return exchange.respond(status: 202)
        }
        let reader: HandoffJobReader
        do throws(HandoffJobReader.Failure) {
            reader = try intake.read(body)
        } catch {
            return refuse(exchange, 400, error.description)
        }
        // After 503 the gateway keeps the batch and posts it again.
        guard !intake.register.isStopping, intake.hasRoom(for: reader), taken.hasRoom else {
            return refuse(exchange, 503, "no room, retry")
        }
        // `leasedUntil` and the signature's time are both of the gateway's clock, so their difference is the lease's length. The
        // delay in transit is measured with this machine's clock.
        let signedAt = (exchange.header("webhook-timestamp").flatMap { Int64($0) } ?? 0) * 1_000
        let delay = max(0, intake.register.wallMilliseconds - signedAt)
        _ = intake.take(reader, leasedBy: nil) {
            let length = min(max(0, $0.leasedUntil), 1 << 52) - signedAt
            return JobLease(left: length - delay, length: length)
        }
        taken.note(id, now: now)
        exchange.respond(status: 202)
    }

    private func isSigned(_ exchange: HTTPExchange, _ id: String, _ body: [UInt8]) -> Bool {
        guard let given = exchange.header("webhook-signature"),
            let time = exchange.header("webhook-timestamp").flatMap({ Int64($0) })
        else { return false }
        guard Self.isFresh(time) else { return false }
        let signatures = given.split(separator: " ").map { Array($0.utf8) }
        return secrets.contains { secret in
            let expected = Array(secret.signature(id: id, timestamp: time, body: body).utf8)
            return signatures.contains { Self.isEqual($0, expected) }
        }
    }

    /// Compares all bytes in constant time, to prevent timing attacks.
    static func isEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
        guard left.count == right.count else { return false }
        return zip(left, right).reduce(0) { $0 | $1.0 ^ $1.1 } == 0
    }

    private func refuse(
        _ exchange: HTTPExchange, _ status: Int, _ text: String, headers: [(name: String, value: String)] = []
    ) {
        exchange.respond(
            status: status, contentType: "text/plain;charset=utf-8", headers: headers, body: Array((text + "\n").utf8))
    }
}
