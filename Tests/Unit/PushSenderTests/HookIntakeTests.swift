import Testing

@testable import PushSender

@Suite("Accepted calls of the hook") struct HookIntakeTests {
    /// A reference to the memory of calls, for use in expectations.
    private final class Calls {
        private var taken: TakenCalls

        init(limit: Int) { taken = TakenCalls(keepMilliseconds: 100, limit: limit) }

        var count: Int { taken.count }
        var hasRoom: Bool { taken.hasRoom }
        func note(_ id: String, _ now: UInt64) { taken.note(id, now: now) }
        func recognise(_ id: String, _ now: UInt64) -> Bool { taken.recognise(id, now: now) }
    }

    @Test("a call is remembered for as long as it may be repeated, and dropped after that")
    func repeats() {
        let calls = Calls(limit: 10)
        #expect(!calls.recognise("a", 1_000))
        calls.note("a", 1_000)
        calls.note("b", 1_050)
        #expect(calls.recognise("a", 1_099))
        #expect(!calls.recognise("c", 1_099))
        // The repeated call is remembered for a new period. The other one expires.
        #expect(calls.recognise("a", 1_198))
        #expect(!calls.recognise("b", 1_198))
        #expect(!calls.recognise("a", 1_298))
        #expect(calls.count == 0)
    }

    @Test("without room further calls are refused, because their repetition could not be detected")
    func bound() {
        let calls = Calls(limit: 3)
        for number in 0..<3 {
            #expect(calls.hasRoom)
            calls.note("call \(number)", UInt64(number))
        }
        #expect(!calls.hasRoom)
        #expect(calls.recognise("call 2", 50))
        #expect(!calls.recognise("new", 101))
        #expect(calls.hasRoom)
        #expect(calls.count == 1)
    }
}

@Suite("A proxy for connections to Apple") struct ProxyTests {
    @Test("a proxy's address is parsed with its credentials, and other texts are refused")
    func addresses() throws {
        let plain = try #require(Proxy(url: "http://proxy.example.com:3128/"))
        #expect((plain.host, plain.port, plain.authorization) == ("proxy.example.com", 3_128, ""))
        let proven = try #require(Proxy(url: "HTTP://us%40er:p%3Aw@[::1]:8080"))
        #expect((proven.host, proven.port, proven.name) == ("::1", 8_080, "[::1]:8080"))
        // us@er:p:w
        #expect(proven.authorization == "Basic dXNAZXI6cDp3")
        #expect(Proxy(url: "http://10.0.0.1")?.port == 80)
        for text in [
            "", "http://", "proxy:1", "https://p:1", "socks5://p:1", "http://p:0", "http://p:65536", "http://p/x",
            "http://a b:1", "http://[::1:1", "http://u%0a@p:1", "http://u%zz@p:1", "http://@p:1",
        ] {
            #expect(Proxy(url: text) == nil, "\(text)")
        }
    }

    @Test("exceptions are names, domains of a name, and all")
    func exceptions() {
        let host = "api.push.apple.com"
        for list in ["*", host, "apple.com", ".apple.com", "*.apple.com", "x, Push.Apple.Com:443"] {
            #expect(Proxy.isExcepted(host, by: list), "\(list)")
        }
        for list in ["", "pple.com", "example.com", "i.push.apple.com.cn", ".", "*."] {
            #expect(!Proxy.isExcepted(host, by: list), "\(list)")
        }
    }
}
