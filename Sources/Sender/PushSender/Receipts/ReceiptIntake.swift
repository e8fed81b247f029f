internal import Configuration
internal import Cryptography
internal import EventLoops
internal import Platform
internal import TextForms
internal import Vendors

/// The HTTP endpoint of the vendors' receipts: `/receipts/VENDOR/CREDENTIAL`, followed by `/SECRET` if the calls are unsigned.
///
/// Confined to the sender's loop.
final class ReceiptIntake {
    struct Metrics: Sendable, Equatable {
        var taken: [Vendor: UInt64] = [:]
        /// Calls that were refused, by reason.
        var refused: [String: UInt64] = [:]
    }

    var accounts: [ReceiptAccount]
    private(set) var metrics = Metrics()
    private let relay: ReceiptRelay
    /// The digests of the bodies of signed calls, by signature, of this period and the last one.
    private var (newCalls, oldCalls): ([String: [UInt8]], [String: [UInt8]]) = ([:], [:])
    private var newCallsSince: Int64 = 0

    /// Signatures are valid from five minutes before their time to five minutes after it.
    private static let memorySeconds = 2 * Receipts.signatureSeconds
    private static let callLimit = 100_000

    init(_ accounts: [ReceiptAccount], to relay: ReceiptRelay) { (self.accounts, self.relay) = (accounts, relay) }

    private struct Target {
        var vendor: Vendor
        var credential: String
        var secret: [UInt8]

        init?(_ target: String) {
            let parts = target.prefix { $0 != "?" }.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
                .map { $0.utf8.percentDecoded() }
            guard (3...4).contains(parts.count), parts[0].map({ String(decoding: $0, as: UTF8.self) }) == "receipts",
                let vendor = parts[1].flatMap({ Vendor(rawValue: String(decoding: $0, as: UTF8.self)) }),
                let name = parts[2], let secret = parts.count == 4 ? parts[3] : []
            else { return nil }
            (self.vendor, credential, self.secret) = (vendor, String(decoding: name, as: UTF8.self), secret)
        }
    }

    /// The identity of a signed call, whose signature does not cover the body.
    private struct SignedCall {
        var id: String
        var body: [UInt8]

        init?(_ account: ReceiptAccount, _ header: String, _ body: some Sequence<UInt8>) {
            guard case .signature = account.proof, let unique = Receipts.uniquePart(ofSignature: header) else {
                return nil
            }
            (id, self.body) = ("\(account.vendor.rawValue) \(account.name) \(unique)", SHA256.digest(Array(body)).bytes)
        }
    }

    /// Whether the signature came with another body before; the vendor may repeat a call unchanged.
    private func wasUsed(_ call: SignedCall?, now: Int64) -> Bool {
        if now >= newCallsSince + Self.memorySeconds || newCalls.count >= Self.callLimit {
            (oldCalls, newCalls, newCallsSince) = (newCalls, [:], now)
        }
        guard let call, let body = newCalls[call.id] ?? oldCalls[call.id] else { return false }
        return body != call.body
    }

    private func account(of target: Target) -> ReceiptAccount? {
        accounts.first { $0.vendor == target.vendor && $0.name == target.credential }
    }

    /// Checks the path, the secret or the presence of a signature before the body is buffered.
    func judge(_ head: HTTPRequestHead) -> HTTPPrecheck {
        guard head.method == .post else { return .refuse(Self.reply(405, "POST only")) }
        guard let target = Target(String(decoding: head.target, as: UTF8.self)), let account = account(of: target)
        else {
            return refuse(404, "unknown")
        }
        switch account.proof {
        case .secret(let secret):
            guard secret.matches(target.secret) else { return refuse(403, "forged") }
            return .take(byteLimit: Receipts.bodyByteCount, isProven: true)
        case .signature:
            guard head.header("x-huawei-callback-id") != nil else { return refuse(403, "forged") }
            return .take(byteLimit: Receipts.bodyByteCount, isProven: false)
        }
    }

    private func refuse(_ status: Int, _ reason: String) -> HTTPPrecheck {
        metrics.refused[reason, default: 0] += 1
        return .refuse(Self.reply(status, reason))
    }

    private static func reply(_ status: Int, _ text: String) -> HTTPReply {
        HTTPReply(status: status, body: Array((text + "\n").utf8))
    }

    func handle(_ exchange: HTTPExchange) {
        func refuse(_ status: Int, _ reason: String) {
            metrics.refused[reason, default: 0] += 1
            exchange.respond(status: status, contentType: "text/plain;charset=utf-8", body: Array((reason + "\n").utf8))
        }
        guard exchange.method == .post else { return refuse(405, "method") }
        guard let target = Target(exchange.rawTarget), let account = account(of: target) else {
            return refuse(404, "unknown")
        }
        let wall = Int64(SystemClock.wallMilliseconds)
        let header = exchange.header("x-huawei-callback-id") ?? ""
        do throws(ReceiptFailure) {
            let receipts = try account.read(
                Array(exchange.body), secret: target.secret, header: header,
                now: wall / 1_000)
            let signature = SignedCall(account, header, exchange.body)
            guard !wasUsed(signature, now: wall / 1_000) else { return refuse(403, "forged") }
            let entries = receipts.map { ReceiptRelay.Entry(receipt: $0, appID: account.appID) }
            // The vendor repeats a refused call.
            guard relay.take(entries) else { return refuse(503, "full") }
            if let signature { newCalls[signature.id] = signature.body }
            metrics.taken[account.vendor, default: 0] += UInt64(receipts.count)
            exchange.respond(status: 200, contentType: "application/json", body: Receipts.answer)
        } catch {
            switch error {
            case .forged: refuse(403, "forged")
            case .unreadable: refuse(400, "unreadable")
            case .unsupported: refuse(404, "unsupported")
            }
        }
    }
}
