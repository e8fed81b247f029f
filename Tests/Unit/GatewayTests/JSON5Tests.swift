import Configuration
import Testing

@testable import Gateway

@Suite("JSON5")
struct JSON5Tests {
    private func parse(_ text: String) throws(JSON5Error) -> JSON5Node { try JSON5Parser.parse(Array(text.utf8)) }

    @Test("every form of JSON5 is read")
    func everyForm() throws {
        let text = """
            \u{FEFF}// a comment
            { /* another */ plain: 1, 'single': "a\\u0041\\x42\\
            c", "double": 'it\\'s', $_9: [1, 2.5, .5, 5., +7, -0x1F, 1e3, -Infinity,],
              yes: true, no: false, none: null, é: '\\uD83D\\uDE00', }
            """
        guard case .object(let members) = try parse(text).value else {
            Issue.record("no object")
            return
        }
        let values = Dictionary(uniqueKeysWithValues: members.map { ($0.key, $0.node.value) })
        #expect(values["plain"] == .integer(1))
        #expect(values["single"] == .string("aABc"))
        #expect(values["double"] == .string("it's"))
        #expect(values["yes"] == .boolean(true))
        #expect(values["no"] == .boolean(false))
        #expect(values["none"] == .null)
        #expect(values["é"] == .string("😀"))
        guard case .array(let numbers)? = values["$_9"] else {
            Issue.record("no array")
            return
        }
        #expect(
            numbers.map(\.value) == [
                .integer(1), .number(2.5), .number(0.5), .integer(5), .integer(7), .integer(-31), .integer(1000),
                .number(-.infinity),
            ])
    }

    @Test("integers at the ends of their range are exact")
    func integerEnds() throws {
        #expect(try parse("9223372036854775807").value == .integer(.max))
        #expect(try parse("-9223372036854775808").value == .integer(.min))
        #expect(try parse("1e300").value == .number(1e300))
    }

    static let malformed: [(text: String, line: Int, column: Int)] = [
        ("", 1, 1), ("  \n", 2, 1), ("{", 1, 1), ("{a 1}", 1, 4), ("{a: 1 b: 2}", 1, 7), ("[1, 2", 1, 1),
        ("{a: }", 1, 5),
        ("{a: 1}\n x", 2, 2), ("'no end", 1, 1), ("'line\n'", 1, 1), ("{\n  a: 1,\n  a: 2 }", 3, 3),
        ("/* no end", 1, 1),
        ("01", 1, 1), ("1_000", 1, 1), ("0x", 1, 1), ("0xFFFFFFFFFFFFFFFF", 1, 1), ("1e999", 1, 1), ("+", 1, 1),
        (".", 1, 1),
        ("'\\u12'", 1, 6), ("'\\1'", 1, 4), ("{a: maybe}", 1, 5), ("{,}", 1, 2), ("\u{1}", 1, 1),
    ]

    @Test("invalid JSON5 is refused with its position", arguments: malformed)
    func malformedText(text: String, line: Int, column: Int) {
        let error = #expect(throws: JSON5Error.self) { try parse(text) }
        #expect(error?.position == TextPosition(line: line, column: column), "\(error?.reason ?? "")")
    }

    @Test("no prefix and no single changed byte of a valid text traps the parser")
    func mutations() {
        let whole = Array("{a: [1, 'x\\u0041', {b: -0x1F, c: 1.5e-3}], \"d\": null, /* c */ e: true}".utf8)
        for count in 0...whole.count { _ = try? JSON5Parser.parse(Array(whole[..<count])) }
        for index in whole.indices {
            for byte in UInt8.min...UInt8.max {
                var changed = whole
                changed[index] = byte
                _ = try? JSON5Parser.parse(changed)
            }
        }
    }

    @Test("the depth is bounded, so that no text exhausts the stack")
    func depth() {
        #expect(throws: JSON5Error.self) { try parse(String(repeating: "[", count: 100_000)) }
    }
}
