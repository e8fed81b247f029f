import Foundation
import Testing
import Wire

@testable import LongwireClient

@Suite("Display receipts")
final class DisplayReceiptTests {
    private static let message = MessageID("00a1b2c3d4e5f60718293a4b5c6d7e8f")!
    private let path: String

    init() throws {
        path = FileManager.default.temporaryDirectory.path + "/longwire-\(UUID().uuidString).state"
        var state = ClientState(appID: "demoApp")
        state.cid = DeviceID("0123456789abcdef0123456789abcdef")!
        state.deviceSecret = Array(0..<32)
        state.clockOffset = 5_000
        try FileStateStore(path: path).save(state)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    private func receipts(_ gateway: String = "https://push.example.com/") -> DisplayReceipts {
        DisplayReceipts(gateway: gateway, statePath: path)
    }

    private func reply(_ text: String, status: Int = 200) -> ReceiptReply {
        ReceiptReply(status: status, body: Array(text.utf8))
    }

    private static func timestamp(of call: ReceiptCall) -> Int64? {
        String(decoding: call.body, as: UTF8.self).split(separator: "\"timestamp\":").last
            .flatMap { Int64($0.prefix { $0.isNumber }) }
    }

    @Test("a call has the device, the events, and a proof of each byte")
    func call() throws {
        let state = try #require(try FileStateStore(path: path).load())
        let call = receipts().call(
            [.shown(Self.message), .action(90_001, Self.message)], state, at: 1_700_000_000_000, offset: 5_000)
        #expect(call.url == "https://push.example.com/v2/demoApp/receipt")
        let body =
            #"{"cid":"0123456789abcdef0123456789abcdef","timestamp":1700000005000,"events":["#
            + #"{"msgId":"00a1b2c3d4e5f60718293a4b5c6d7e8f","event":"shown","at":1700000005000},"#
            + #"{"msgId":"00a1b2c3d4e5f60718293a4b5c6d7e8f","event":"action","action":90001,"at":1700000005000}]}"#
        #expect(String(decoding: call.body, as: UTF8.self) == body)
        #expect(call.headers == ["Content-Type": "application/json", "X-Longwire-Proof": Self.known])
    }

    /// Computed with Python's `hmac`.
    private static let known = "238d3d938f8e0531ed632360f68ffad263a8e2bd8e4020645d82420bb62c151e"

    @Test("the answer has the result of each report")
    func answered() async throws {
        let results = try await receipts().report([.shown(Self.message), .action(90_001, Self.message)]) { _ in
            self.reply(#"{"code":0,"msg":"success","data":{"results":["recorded","repeated"]}}"#)
        }
        #expect(results == [.recorded, .repeated])
    }

    @Test("the state's clock offset is used, and a refused clock is corrected once")
    func clock() async throws {
        var calls: [ReceiptCall] = []
        let before = System.now().wall
        let results = try await receipts().report([.shown(Self.message)]) { call in
            calls.append(call)
            guard calls.count == 1 else { return self.reply(#"{"code":0,"data":{"results":["recorded"]}}"#) }
            return self.reply(
                #"{"code": 30904, "msg": "x", "data": {"serverTime": 1500000000000}}"#, status: 403)
        }
        #expect(results == [.recorded])
        let first = try #require(Self.timestamp(of: calls[0]))
        #expect((before + 5_000...System.now().wall + 5_000).contains(first))
        #expect(calls.count == 2 && Self.timestamp(of: calls[1]) == 1_500_000_000_000)
        #expect(calls[0].headers["X-Longwire-Proof"] != calls[1].headers["X-Longwire-Proof"])

        var count = 0
        await #expect(throws: LongwireClientError.self) {
            try await self.receipts().report([.shown(Self.message)]) { _ in
                count += 1
                return self.reply(#"{"code":30904,"msg":"x","data":{"serverTime":1}}"#, status: 403)
            }
        }
        #expect(count == 2, "once, not for ever")
    }

    static let refusals = [
        #"{"code":30903,"msg":"this proof is of no device"}"#, "", "<html>", #"{"code":0,"msg":"success"}"#,
        #"{"code":0,"data":{"results":["recorded","recorded"]}}"#, #"{"code":0,"data":{"results":["new"]}}"#,
        #"{"code":99999999999999999999,"results":["recorded"]}"#, #"{"code"}"#, #"{"code":0,"results":["recorded"#,
    ]

    @Test("any other answer is an error with the gateway's text, never a trap", arguments: refusals)
    func refused(body: String) async throws {
        for count in 0...body.utf8.count {
            let part = String(decoding: body.utf8.prefix(count), as: UTF8.self)
            await #expect(throws: LongwireClientError.self) {
                try await self.receipts().report([.shown(Self.message)]) { _ in self.reply(part, status: 401) }
            }
        }
    }

    @Test("before the registration, and with too many reports, nothing is sent")
    func nothingSent() async throws {
        var count = 0
        let send: (ReceiptCall) -> ReceiptReply = { _ in
            count += 1
            return self.reply("")
        }
        let many = [MessageReport](repeating: .shown(Self.message), count: 33)
        for reports in [[], many] {
            await #expect(throws: LongwireClientError.self) {
                try await self.receipts().report(reports) { send($0) }
            }
        }
        try FileStateStore(path: path).save(ClientState(appID: "demoApp"))
        await #expect(throws: LongwireClientError.self) {
            try await self.receipts().report([.shown(Self.message)]) { send($0) }
        }
        #expect(count == 0)
    }
}
