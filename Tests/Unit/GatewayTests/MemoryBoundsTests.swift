import Configuration
import EventLoops
import Testing

@testable import Gateway

/// Checks the maximum memory in docs/use/Operations.md, "The most memory", against the limits.
@Suite("Most memory")
struct MemoryBoundsTests {
    private static let mebibyte = 1 << 20

    @Test("the page has every line and the sum, for the defaults and two loops")
    func page() throws {
        let root = #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        let page = String(
            decoding: try FileText.read("/\(root)/docs/use/Operations.md", limit: 1 << 20).bytes, as: UTF8.self)
        let lines = page.split(separator: "\n")
        let bounds = MemoryBounds(GatewayLimits(), loops: 2)
        for line in bounds.lines {
            let start = "| `\(line.name)` | \((line.byteCount + Self.mebibyte - 1) / Self.mebibyte) | "
            #expect(lines.contains { $0.hasPrefix(start) }, "\(start)")
        }
        let sum = (bounds.byteCount + Self.mebibyte - 1) / Self.mebibyte
        #expect(lines.contains { $0.hasPrefix("| sum | \(sum) | ") }, "\(sum)")
    }

    @Test("every use of the peers' byte budget has a line, and every limit counts")
    func grows() {
        let before = MemoryBounds(GatewayLimits(), loops: 2).byteCount
        for name in [
            "httpBodyBytes", "peerBytes", "connections", "senderConnections", "httpConnections", "adminConnections",
            "waitingCommands", "uncommittedBytes", "journalBytes", "cachedDevices",
        ] {
            var limits = GatewayLimits()
            let key = LimitKey.all.first { $0.name == name }
            #expect(key != nil, "\(name)")
            key?.write(&limits, 2 * (key?.read(limits) ?? 0))
            #expect(MemoryBounds(limits, loops: 2).byteCount > before, "\(name)")
        }
        let rules = GatewayLimits().peerRules
        #expect(rules.byteCount == GatewayLimits().httpBodyBytes + GatewayLimits().peerBytes)
        #expect(rules.strangersRequests < rules.requests && rules.strangersStreams < rules.streams)
    }
}
