import Testing

@testable import TextForms

@Suite("JSON strings")
struct JSONStringTests {
    /// A reference implementation that writes one scalar at a time.
    private static func expected(_ text: String, _ escapes: JSONString.Escapes) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            let isMore =
                switch escapes {
                case .required: false
                case .lines: [0x7F, 0x2028, 0x2029].contains(scalar.value)
                case .terminal:
                    (0x7F..<0xA0).contains(scalar.value) || [0x200E, 0x200F, 0x2028, 0x2029].contains(scalar.value)
                        || (0x202A...0x202E).contains(scalar.value) || (0x2066...0x2069).contains(scalar.value)
                }
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where scalar.value < 0x20 || isMore:
                let digits = String(scalar.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }

    @Test(
        "every scalar is written by its rule, at each place of a word of eight bytes",
        arguments: [JSONString.Escapes.required, .lines, .terminal])
    func everyScalar(escapes: JSONString.Escapes) {
        // All scalars up to the marks of direction and their neighbors, then samples of each length.
        let numbers = Array(0..<0x2100 as Range<UInt32>) + [0x4E2D, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x1F600, 0x10FFFF]
        for scalar in numbers.compactMap(Unicode.Scalar.init) {
            for padding in scalar.value < 0x80 ? 0..<9 : 0..<2 {
                let text = String(repeating: "a", count: padding) + String(scalar) + "zzzzzzzz"
                let found = JSONString.quoted(text, escaping: escapes)
                guard found == Self.expected(text, escapes) else {
                    Issue.record("U+\(String(scalar.value, radix: 16)) behind \(padding): \(found)")
                    return
                }
            }
        }
    }

    @Test("random texts are written as by the reference implementation")
    func randomTexts() {
        let scalars: [Unicode.Scalar] = [
            "a", "b", " ", "\"", "\\", "\n", "\u{1}", "\u{1F}", "\u{7F}", "\u{85}", "é", "中", "\u{2028}", "\u{202E}",
            "😀",
        ]
        var state: UInt64 = 7
        for _ in 0..<2_000 {
            var text = ""
            for _ in 0..<(state >> 33) % 24 {
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                text.unicodeScalars.append(scalars[Int((state >> 33) % UInt64(scalars.count))])
            }
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            for escapes in [JSONString.Escapes.required, .lines, .terminal] {
                #expect(JSONString.quoted(text, escaping: escapes) == Self.expected(text, escapes))
            }
        }
    }

    @Test(
        "each byte of invalid UTF-8 becomes U+FFFD",
        arguments: [JSONString.Escapes.required, .lines, .terminal])
    func notUTF8(escapes: JSONString.Escapes) {
        let cases: [(bytes: [UInt8], text: String)] = [
            ([], ""), ([0x80], "\u{FFFD}"), ([0x61, 0xC3], "a\u{FFFD}"), ([0xC0, 0xAF], "\u{FFFD}\u{FFFD}"),
            ([0xED, 0xA0, 0x80], "\u{FFFD}\u{FFFD}\u{FFFD}"), ([0xF5, 0x22], "\u{FFFD}\\\""),
            ([0xE2, 0x80, 0x61], "\u{FFFD}\u{FFFD}a"),
        ]
        for (bytes, text) in cases {
            var output: [UInt8] = []
            bytes.withUnsafeBytes { JSONString.appendContent($0, escaping: escapes, to: &output) }
            #expect(String(decoding: output, as: UTF8.self) == text)
        }
    }
}

@Suite("UTF-8")
struct UTF8TextTests {
    @Test("scalars are counted, and malformed text has no count")
    func counts() {
        func count(_ bytes: [UInt8]) -> Int? { bytes.withUnsafeBytes { scalarCount($0) } }
        #expect(count([]) == 0)
        for text in ["abcdefgh", "abcdefghi", "aé中😀", "éééééééé", "\u{0}\u{7F}\u{10FFFF}"] {
            #expect(count(Array(text.utf8)) == text.unicodeScalars.count)
            #expect(count(Array(text.utf8) + [0x80]) == nil)
        }
        #expect(count([0xF4, 0x90, 0x80, 0x80]) == nil && count([0xE0, 0x80, 0x80]) == nil)
    }
}
