import Testing
import Wire

@Suite("The codec and protoc agree")
struct ProtocAgreementTests {
    static let samples = Sample.all(randomCount: 60)

    static let batch: String = {
        let fields = FrameType.allCases.map { type in
            let name = samples.first { $0.frameType == type }?.messageName ?? "missing"
            return "  repeated longwire.v1.\(name) m\(type.rawValue) = \(type.rawValue);\n"
        }
        return "syntax = \"proto3\";\nimport \"\(Protoc.schema)\";\nmessage Batch {\n\(fields.joined())}\n"
    }()

    static let text = samples.map { sample in
        let lines = sample.text.split(separator: "\n").map { "  \($0)\n" }
        return "m\(sample.frameType.rawValue) {\n\(lines.joined())}\n"
    }.joined()

    @Test("protoc's encoding equals ours byte for byte, and decodes to the same values")
    func protocEncodes() throws {
        let bytes = try Protoc.run(["--encode=Batch", "batch.proto"], input: Array(Self.text.utf8), batch: Self.batch)
        let bodies = try RawFields(bytes).fields
        try #require(bodies.count == Self.samples.count)
        for (sample, body) in zip(Self.samples, bodies) {
            #expect(body.number == Int(sample.frameType.rawValue))
            guard case .bytes(let bytes) = body.value else {
                Issue.record("not a message")
                continue
            }
            #expect(bytes == sample.body, "seed \(Generator.seed): \(sample.text)")
            #expect(try sample.isEncoded(bytes), "seed \(Generator.seed): \(sample.text)")
        }
    }

    @Test("protoc decodes our encoding to the same values")
    func protocDecodes() throws {
        var input: [UInt8] = []
        func append(_ value: Int) {
            var rest = value
            while rest >= 0x80 {
                input.append(UInt8(rest & 0x7F | 0x80))
                rest >>= 7
            }
            input.append(UInt8(rest))
        }
        for sample in Self.samples {
            append(Int(sample.frameType.rawValue) << 3 | 2)
            append(sample.body.count)
            input += sample.body
        }
        let output = try Protoc.run(["--decode=Batch", "batch.proto"], input: input, batch: Self.batch)
        let (expected, actual) = (Self.text.split(separator: "\n"), String(decoding: output, as: UTF8.self))
        // Line by line, so that a difference is readable.
        for (line, (expected, actual)) in zip(expected, actual.split(separator: "\n")).enumerated() {
            try #require(expected == actual, "seed \(Generator.seed), line \(line)")
        }
        #expect(Self.text == actual)
    }
}
