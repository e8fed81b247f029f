import Testing

@testable import EventLoops

@Suite("Clients behind HTTP proxies")
struct ForwardedClientsTests {
    private func client(
        _ elements: [String], _ header: ForwardedClients.Header = .xForwardedFor,
        proxies: [String] = ["10.0.0.0/8", "fd00::/8"]
    ) -> String? {
        let forwarded = ForwardedClients(proxies: proxies.compactMap { AddressRange($0) }, header: header)
        let bytes = elements.map { Array($0.utf8) }
        func with(_ index: Int, _ found: [UnsafeRawBufferPointer]) -> String? {
            guard index < bytes.count else { return forwarded.client(in: found)?.host }
            return bytes[index].withUnsafeBytes { with(index + 1, found + [$0]) }
        }
        return with(0, [])
    }

    @Test("the client is the last element that is no proxy, whatever a client wrote before it")
    func last() {
        #expect(client(["198.51.100.1"]) == "198.51.100.1")
        #expect(client(["1.1.1.1", "198.51.100.1"]) == "198.51.100.1")
        #expect(client(["198.51.100.1", "10.0.0.7"]) == "198.51.100.1")
        #expect(client(["2001:db8::5", "fd00::1"]) == "2001:db8::5")
        #expect(client(["198.51.100.1:4711"]) == "198.51.100.1")
        #expect(client(["[2001:db8::5]:80"]) == "2001:db8::5")
    }

    @Test("an element that is no address names no client, and nothing before it is read")
    func unreadable() {
        for text in ["", "unknown", "example.com", "1.2.3", "1.2.3.4.5", "[2001:db8::5", "::g", "_hidden", "é"] {
            #expect(client(["198.51.100.1", text]) == nil, "\(text)")
        }
        #expect(client([]) == nil && client(["10.0.0.7"]) == nil)
    }

    @Test("Forwarded names the client in its parameter for")
    func standard() {
        #expect(client(["for=198.51.100.1;proto=https;by=10.0.0.1"], .forwarded) == "198.51.100.1")
        #expect(client(["proto=http; For=\"[2001:db8::5]:80\""], .forwarded) == "2001:db8::5")
        #expect(client(["for=1.1.1.1", "for=198.51.100.1"], .forwarded) == "198.51.100.1")
        for text in ["for=unknown", "for=_x", "by=198.51.100.1", "for", "198.51.100.1", "for=\"198.51.100.1"] {
            #expect(client([text], .forwarded) == nil, "\(text)")
        }
    }
}
