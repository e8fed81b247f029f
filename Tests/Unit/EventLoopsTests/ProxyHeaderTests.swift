import Glibc
import Testing

@testable import EventLoops

@Suite("PROXY protocol")
struct ProxyHeaderTests {
    static let signature: [UInt8] = [13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10]

    static func header(
        command: UInt8 = 0x21, family: UInt8 = 0x11,
        _ addresses: [UInt8] = [192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 0, 80]
    ) -> [UInt8] {
        signature + [command, family, UInt8(addresses.count >> 8), UInt8(addresses.count & 0xFF)] + addresses
    }

    private func parse(_ bytes: [UInt8]) -> ProxyHeader { bytes.withUnsafeBytes { ProxyHeader($0) } }

    @Test("a header has the client's address, whatever follows its addresses")
    func clients() {
        guard case .complete(28, let four?) = parse(Self.header()) else { Issue.record("IPv4"); return }
        #expect(four.description == "192.0.2.7:12345" && !four.isLoopback)
        let host: [UInt8] = [0x20, 1, 0xD, 0xB8] + [UInt8](repeating: 0, count: 11) + [9]
        let six = Self.header(family: 0x21, host + host + [0x30, 0x39, 0, 80] + [3, 0, 4, 1, 2, 3, 4])
        guard case .complete(59, let address?) = parse(six + [1, 2, 3]) else { Issue.record("IPv6"); return }
        #expect(address.description == "[2001:db8::9]:12345")
        #expect(parse(Self.header(command: 0x20, family: 0, [])) == .complete(byteCount: 16, client: nil))
        #expect(
            parse(Self.header(family: 0x31, [UInt8](repeating: 1, count: 216)))
                == .complete(byteCount: 232, client: nil))
    }

    @Test("each prefix of a header is incomplete, with the number of missing bytes")
    func prefixes() {
        let whole = Self.header()
        for count in 0..<whole.count {
            #expect(parse(Array(whole[..<count])) == .incomplete(byteCount: count < 16 ? 16 : 28))
        }
    }

    static let lines: [(text: String, client: String?)] = [
        ("PROXY TCP4 192.0.2.7 10.0.0.1 12345 80", "192.0.2.7:12345"),
        ("PROXY TCP4 0.0.0.0 255.255.255.255 0 65535", "0.0.0.0:0"),
        ("PROXY TCP6 2001:db8::9 2001:db8::1 12345 80", "[2001:db8::9]:12345"),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2", "[::ffff:192.0.2.7]:1"),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
        ),
        ("PROXY UNKNOWN", nil), ("PROXY UNKNOWN ffff:f...f 65535 65535", nil),
        ("PROXY UNKNOWN " + String(repeating: "a", count: 91), nil),
    ]

    @Test("a line of version 1 has the client's address; each of its prefixes is incomplete", arguments: lines)
    func line(text: String, client: String?) throws {
        let whole = Array("\(text)\r\n".utf8)
        guard case .complete(whole.count, let found) = parse(whole + [0x47, 0x0D, 0x0A]) else {
            Issue.record("\(parse(whole))")
            return
        }
        #expect(found?.description == client)
        for count in 1..<whole.count {
            guard case .incomplete(let wanted) = parse(Array(whole[..<count])) else {
                Issue.record("\(count) bytes of \(text)")
                continue
            }
            #expect(wanted > count && wanted <= max(whole.count, 15))
        }
    }

    @Test(
        "an invalid line of version 1 is refused",
        arguments: [
            "PROXY TCP4 192.0.2.7 10.0.0.1 12345 80\n", "PROXY TCP4 192.0.2.7 10.0.0.1 12345 80\rx",
            "PROXY TCP4 192.0.2.7 10.0.0.1 12345\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 12345 80 \r\n", "PROXY TCP4  192.0.2.7 10.0.0.1 12345 80\r\n",
            "PROXY  TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.07 10.0.0.1 1 2\r\n", "PROXY TCP4 192.0.2 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n", "PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n", "PROXY TCP6 1::2::3 ::1 1 2\r\n",
            "PROXY TCP6 [::1] ::1 1 2\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 01 2\r\n", "PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 -1 2\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 +1 2\r\n", "PROXY TCP4 192.0.2.7 10.0.0.1 1 \r\n",
            "PROXY tcp4 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY TCP5 192.0.2.7 10.0.0.1 1 2\r\n", "PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n", "PROXY \r\n",
            "PROXY UNKNOWNX\r\n", "PROXY unknown\r\n",
            "PROXY TCP4 192.0.2.7\u{0} 10.0.0.1 1 2\r\n", "PROXY\tTCP4 192.0.2.7 10.0.0.1 1 2\r\n",
            "proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY UNKNOWN \(String(repeating: "a", count: 92))\r\n",
            "PROXY UNKNOWN \(String(repeating: "a", count: 200))",
        ])
    func badLine(text: String) {
        let fault: ProxyHeader.Fault = text.hasPrefix("PROXY ") ? .line : .missing
        #expect(parse(Array(text.utf8)) == .refused(fault))
    }

    @Test("invalid headers are refused, and no bytes trap")
    func refused() {
        #expect(parse(Array("GET / HTTP/1.1\r\n".utf8)) == .refused(.missing))
        #expect(parse(Self.header(command: 0x11)) == .refused(.otherVersion))
        #expect(parse(Self.header(command: 0x22)) == .refused(.command))
        #expect(parse(Self.header([1, 2, 3])) == .refused(.short))
        #expect(parse(Self.header(family: 0x21)) == .refused(.short))
        #expect(parse(Self.signature + [0x21, 0x11, 0xFF, 0xFF]) == .refused(.tooLong))
        var random = SystemRandomNumberGenerator()
        for _ in 0..<20_000 {
            var bytes =
                Bool.random(using: &random) ? Self.header() : Array("PROXY TCP4 192.0.2.7 10.0.0.1 12345 80\r\n".utf8)
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            _ = parse(Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &random))))
        }
    }

    @Test("ranges contain the addresses that start with their bits")
    func ranges() throws {
        func address(_ text: [UInt8]) throws -> SocketAddress {
            try text.withUnsafeBytes { bytes in
                let port: [UInt8] = [0, 1]
                return try port.withUnsafeBytes { try #require(SocketAddress(host: bytes[...], port: $0[...])) }
            }
        }
        let four = try address([10, 1, 2, 3])
        let mapped = try address([UInt8](repeating: 0, count: 10) + [0xFF, 0xFF, 10, 1, 2, 3])
        for (text, holds) in [
            ("10.1.2.3", true), ("10.1.2.0/30", true), ("10.0.0.0/8", true), ("0.0.0.0/0", true), ("10.1.2.4", false),
            ("10.1.2.4/30", false), ("11.0.0.0/8", false), ("::/0", false), ("::ffff:10.1.2.3", true),
        ] {
            let range = try #require(AddressRange(text), "\(text)")
            #expect(range.contains(four) == holds && range.contains(mapped) == holds, "\(text)")
        }
        for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/08", "host", "::/129", "10.0.0.0/"] {
            #expect(AddressRange(text) == nil, "\(text)")
        }
    }

    @Test("a balancer's connection has its client's address and no header, for any division into pieces")
    func arrivals() throws {
        try withLoop { loop in
            let seen = Probe<String>()
            let handle = try ListeningSocket.group("127.0.0.1:0", count: 1)[0]
            let port = handle.address.port
            let range = try #require(AddressRange("127.0.0.0/8"))
            let started = loop.run {
                do {
                    let listener = try Listener(on: loop, socket: handle.take(), balancers: [range]) { connection in
                        seen.note(connection.peer?.host ?? "none")
                    }
                    return Unchecked<Listener?>(listener)
                } catch { return Unchecked(nil) }
            }
            let listener = try #require(started)
            _ = try #require(listener.value)
            var count = 0
            for cut in [1, 12, 16, 20, 27] {
                let client = try TestClient(port: port)
                try client.send(Array(Self.header()[..<cut]))
                usleep(20_000)
                try client.send(Array(Self.header()[cut...]) + [1, 2, 3])
                count += 1
                seen.wait { $0 == Array(repeating: "192.0.2.7", count: count) }
            }
            let line = Array("PROXY TCP4 192.0.2.7 10.0.0.1 12345 80\r\n".utf8)
            for cut in [1, 5, 6, 15, 20, line.count - 1, line.count] {
                let client = try TestClient(port: port)
                try client.send(Array(line[..<cut]))
                usleep(20_000)
                try client.send(Array(line[cut...]) + [1, 2, 3])
                count += 1
                seen.wait { $0 == Array(repeating: "192.0.2.7", count: count) }
            }
            // A health check sends nothing and ends with a FIN or a reset.
            for isReset in [false, true] {
                let probe = try TestClient(port: port)
                if isReset { probe.reset() } else { probe.close() }
            }
            let probes = Probe<UInt64>()
            _ = loop.run { loop.onTick { _ in probes.note(listener.value?.probeCount ?? 0) } }
            probes.wait { $0.last == 2 }
            #expect(loop.run { listener.value?.refusedHeaderCount } == 0)
            let bad = try TestClient(port: port)
            try bad.send(Array("GET / HTTP/1.1\r\n\r\n".utf8))
            // Bytes that the gateway never read make the kernel reset the connection.
            #expect((try? bad.receive())?.isEmpty ?? true)
            let half = try TestClient(port: port)
            try half.send(Array(Self.header()[..<20]))
            half.shutDownWriting()
            #expect((try? half.receive())?.isEmpty ?? true)
            #expect(loop.run { listener.value?.refusedHeaderCount } == 2)
        }
    }
}
