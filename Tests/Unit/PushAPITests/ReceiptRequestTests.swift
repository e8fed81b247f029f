import Quotas
import Cryptography
import Delivery
import Testing
import Wire

@testable import PushAPI

/// `POST receipt`, the call of a service extension.
@Suite("Receipt requests")
struct ReceiptRequestTests {
    private let fixture = Fixture()
    private static let cid = Fixture.cid.description
    private static let message = "00a1b2c3d4e5f60718293a4b5c6d7e8f"
    private static let proof = String(repeating: "Ab", count: 32)

    private func call(
        _ body: String, proof: String? = ReceiptRequestTests.proof, app: String = "demoApp", isLoopback: Bool = false,
        network: UInt64 = 1
    ) -> PublicAction {
        let pieces = [Array("/v2/\(app)/receipt".utf8), Array(body.utf8), Array((proof ?? "").utf8)]
        return pieces[0].withUnsafeBytes { target in
            pieces[1].withUnsafeBytes { body in
                pieces[2].withUnsafeBytes { proofBytes in
                    fixture.api.handle(
                        APIRequest(
                            method: .post, target: target, proof: proof == nil ? nil : proofBytes, body: body,
                            peerIsLoopback: isLoopback, network: network),
                        now: Fixture.now)
                }
            }
        }
    }

    private func body(_ events: String, timestamp: String = "1700000000000") -> String {
        #"{"cid":"\#(Self.cid)","timestamp":\#(timestamp),"events":\#(events)}"#
    }

    private func event(_ fields: String) -> String { #"[{"msgId":"\#(Self.message)",\#(fields)}]"# }

    private func taken(_ body: String) -> ReceiptCommand? {
        guard case .receipt(let request) = call(body) else { return nil }
        return request.command(origin: .none)
    }

    @Test("a call has its device, its time, its events and the bytes covered by its proof")
    func whole() throws {
        let id = try #require(MessageID(Self.message))
        let body = body(
            #"[{"msgId":"\#(Self.message)","event":"shown","at":1699999999000},"#
                + #"{"msgId":"\#(Self.message)","event":"opened"},"#
                + #"{"msgId":"\#(Self.message)","event":"action","action":"90001","at":"1699999999500"}]"#)
        let command = try #require(taken(body))
        #expect(command.cid == Fixture.cid && command.app == fixture.app.key)
        #expect(command.bucket == fixture.app.bucket(of: Fixture.cid))
        #expect(command.timestamp == 1_700_000_000_000)
        #expect(command.transcript == Array("longwire receipt 1\0demoApp\0\(body)".utf8))
        #expect(command.proof == (0..<32).map { _ in 0xAB })
        #expect(
            command.events == [
                ReceiptEvent(kind: .shown, message: id, at: 1_699_999_999_000),
                ReceiptEvent(kind: .opened, message: id),
                ReceiptEvent(kind: .action, message: id, action: 90_001, at: 1_699_999_999_500),
            ])
    }

    @Test("thirty-two full events fit the body limit without a token, and one more is refused")
    func bound() throws {
        let one = #"{"msgId":"\#(Self.message)","event":"action","action":90001,"at":1699999999000}"#
        let most = body("[\(Array(repeating: one, count: Limits.receiptEventCount).joined(separator: ","))]")
        #expect(most.utf8.count <= Limits.openBodyByteCount)
        #expect(taken(most)?.events.count == 32)
        let more = body("[\(Array(repeating: one, count: Limits.receiptEventCount + 1).joined(separator: ","))]")
        #expect(call(more).text.contains("events size over limit, at most 32"))
        let padded = most + String(repeating: " ", count: Limits.openBodyByteCount)
        #expect(call(padded).text.contains("body size over limit, at most 4096 bytes"))
    }

    static let badBodies: [(body: String, message: String)] = [
        ("", "cid cannot be null"),
        (#"{"timestamp":1,"events":[]}"#, "cid cannot be null"),
        (#"{"cid":7,"timestamp":1,"events":[]}"#, "cid type error"),
        (#"{"cid":"x","timestamp":1,"events":[]}"#, "cid is invalid, 32 hex digits"),
        (#"{"cid":"\#(cid)","events":[]}"#, "timestamp cannot be null"),
        (#"{"cid":"\#(cid)","timestamp":"soon","events":[]}"#, "timestamp type error"),
        (#"{"cid":"\#(cid)","timestamp":-1,"events":[]}"#, "timestamp is invalid"),
        (#"{"cid":"\#(cid)","timestamp":9223372036854775807,"events":[]}"#, "timestamp is invalid"),
        (#"{"cid":"\#(cid)","timestamp":1}"#, "events cannot be null"),
        (#"{"cid":"\#(cid)","timestamp":1,"events":[]}"#, "events can not be empty"),
        (#"{"cid":"\#(cid)","timestamp":1,"events":"shown"}"#, "events type error"),
        (#"{"cid":"\#(cid)","timestamp":1,"events":[7]}"#, "events type error"),
        (#"{"cid":"\#(cid)","timestamp":1,"events":[{"event":"shown"}]}"#, "msgId cannot be null"),
    ]

    @Test("a malformed call is refused with its error", arguments: badBodies)
    func malformed(body: String, message: String) {
        #expect(call(body).text.contains(message))
    }

    static let badEvents: [(fields: String, message: String)] = [
        (#""event":"seen""#, "event is invalid, shown, opened or action"),
        (#""event":7"#, "event type error"),
        (#""at":1"#, "event cannot be null"),
        (#""event":"action""#, "action cannot be null"),
        (#""event":"action","action":"one""#, "action type error"),
        (#""event":"shown","at":"now""#, "at type error"),
        (#""event":"shown","at":-1"#, "at is invalid"),
    ]

    @Test("a malformed event is refused with its error", arguments: badEvents)
    func malformedEvent(fields: String, message: String) {
        #expect(call(body(event(fields))).text.contains(message))
        #expect(call(body(#"[{"msgId":"x","event":"shown"}]"#)).text.contains("msgId is invalid, 32 hex digits"))
    }

    @Test("an unreadable event is refused by its place, and the others are recorded")
    func badEventAmongOthers() throws {
        let good = #"{"msgId":"\#(Self.message)","event":"shown"}"#
        let bad = [#"{"msgId":"x","event":"shown"}"#, "7", #"{"msgId":"\#(Self.message)","event":"\ud83d"}"#]
        let list = "[\(bad[0]),\(good),\(bad[1]),\(bad[2]),\(good)]"
        guard case .receipt(let request) = call(body(list)) else {
            return #expect(Bool(false), "\(call(body(list)).text)")
        }
        #expect(request.events.map(\.kind) == [.shown, .shown])
        let text = ReceiptRequest.answer(.taken([.recorded, .retry]), form: request.form).text
        #expect(text.contains(#""results":["ignored","recorded","ignored","ignored","retry"]"#), "\(text)")
        for part in [
            #"{"index":0,"code":20001,"msg":"msgId is invalid, 32 hex digits"}"#, #"{"index":2,"#, #"{"index":3,"#,
        ] {
            #expect(text.contains(part), "\(text)")
        }
        let many = Array(repeating: bad[0], count: Limits.receiptEventCount + 1).joined(separator: ",")
        #expect(call(body("[\(many)]")).text.contains("events size over limit, at most 32"))
    }

    @Test("an action's number out of every range is ignored and never traps")
    func actionNumbers() {
        for (text, number) in [("-1", 0), ("9223372036854775807", UInt32.max), ("7", 7)] as [(String, UInt32)] {
            #expect(taken(body(event(#""event":"action","action":\#(text)"#)))?.events.first?.action == number)
        }
    }

    @Test("without a proof of 64 hex digits nothing is parsed", arguments: [nil, "", "abcd", "0x", "64"])
    func noProof(proof: String?) {
        let given = proof == "64" ? String(repeating: "g", count: 64) : proof
        let answer = call(body(event(#""event":"shown""#)), proof: given)
        #expect(answer.response?.status == 401 && answer.text.hasPrefix(#"{"code":30903,"#))
    }

    @Test("an unknown app is reported, and an app's receipts per minute are limited")
    func appAndRate() {
        let good = body(event(#""event":"shown""#))
        #expect(call(good, app: "nobody").text.contains("appId is invalid"))
        let rates = Book()
        fixture.api.rates = rates
        #expect(taken(good) != nil)
        rates.isUsedUp = true
        #expect(call(good).text == #"{"code":10005,"msg":"receipts of this minute are used up"}"#)
    }

    /// Records the counts of the API.
    private final class Book: RateLimiting {
        var counted: [RateKind] = []
        var isUsedUp = false
        var networks: [UInt64] = []
        var fullNetwork: UInt64 = 0
        func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateLimiter.Verdict {
            counted.append(kind)
            return .granted
        }
        func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool { isUsedUp }
        func takeReceipt(from network: UInt64, app: AppKey, limit: Int, now: GatewayTime) -> Bool {
            networks.append(network)
            return network != fullNetwork && limit == 60_000
        }
    }

    @Test("a receipt is counted only after its proof was verified, so forged ones use no quota")
    func counted() {
        let rates = Book()
        fixture.api.rates = rates
        for _ in 0..<9 { #expect(taken(body(event(#""event":"shown""#))) != nil) }
        #expect(rates.counted.isEmpty)
        fixture.api.proved(fixture.app.key, now: Fixture.now)
        #expect(rates.counted == [.receipt])
        fixture.api.proved(AppKey(appID: "gone"), now: Fixture.now)
        #expect(rates.counted == [.receipt])
    }

    @Test("each address has a share of an app's receipts, counted first; loopback has no limit")
    func networks() {
        let rates = Book()
        rates.fullNetwork = 7
        fixture.api.rates = rates
        let good = body(event(#""event":"shown""#))
        let answer = call(good, network: 7)
        #expect(answer.text == #"{"code":10005,"msg":"receipts of this minute from this address are used up"}"#)
        #expect(call("no JSON", proof: nil, network: 7).text == answer.text)
        guard case .receipt = call(good, network: 8) else { return #expect(Bool(false), "\(call(good, network: 8))") }
        #expect(rates.networks.prefix(3) == [7, 7, 8])
        let before = rates.networks.count
        guard case .receipt = call(good, isLoopback: true, network: 7) else { return #expect(Bool(false), "a proxy") }
        #expect(rates.networks.count == before)
    }

    @Test("answers have the result of each event, or the time to correct the clock")
    func answers() {
        #expect(
            ReceiptRequest.answer(.taken([.recorded, .repeated, .ignored, .retry])).text
                == #"{"code":0,"msg":"success","data":{"results":["recorded","repeated","ignored","retry"]}}"#)
        let skewed = ReceiptRequest.answer(.clockSkew(serverTime: 1_700_000_000_000))
        #expect(skewed.status == 403)
        #expect(skewed.text.hasPrefix(#"{"code":30904,"#))
        #expect(skewed.text.hasSuffix(#""data":{"serverTime":1700000000000}}"#))
        #expect(ReceiptRequest.answer(.refused).status == 401)
        #expect(ReceiptRequest.answer(.busy).text.hasPrefix(#"{"code":30019,"#))
    }

    @Test("the proof of a known call matches an independent computation")
    func vector() {
        let body = Array(#"{"cid":"0123456789abcdef0123456789abcdef","timestamp":1,"events":[]}"#.utf8)
        let transcript = ReceiptRequest.transcript(appID: "demoApp", body: body)
        let code = HMACSHA256.code(key: Array(0..<32), message: transcript)
        #expect(code.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined() == Self.known)
    }

    /// Computed with Python's `hmac`.
    private static let known = "c6527a6c7e5ab54ff3f1dee16d94074e2a9ca2792306dc164750104f51c0c850"
}
