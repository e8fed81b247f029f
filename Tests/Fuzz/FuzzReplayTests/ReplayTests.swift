import FuzzTargets
import Testing

@Suite("Fuzz corpora")
struct ReplayTests {
    @Test("no committed input breaks its target", arguments: FuzzTarget.all.map(\.name))
    func replay(name: String) throws {
        let target = try #require(FuzzTarget.named(name))
        let entries = try Corpus.read(Corpus.path(of: target))
        #expect(entries.count >= 10, "a corpus is not empty")
        // With this frequency the gateway is reopened in each way: unchanged, without an app, from a backup.
        if name == "gateway" { GatewayFuzz.inputsPerOpening = 4 }
        for entry in entries {
            do { try target.run(entry.bytes) } catch { Issue.record("\(name).hex:\(entry.line): \(error)") }
        }
        try target.finish()
    }

    @Test("an input survives encoding and decoding as a corpus line")
    func hexadecimal() {
        let bytes = Array(UInt8.min...UInt8.max)
        #expect(Corpus.decode(Array(Corpus.encode(bytes).utf8)) == bytes)
        #expect(Corpus.decode(Array("0".utf8)) == nil && Corpus.decode(Array("0g".utf8)) == nil)
    }
}
