import TestKit
import Testing

@testable import JSON

@Suite("JSON")
struct JSONTests {
    private func parse<Result>(_ text: String, _ body: (JSONValue) throws -> Result) throws -> Result {
        let parser = JSONParser()
        let bytes = Array(text.utf8)
        return try bytes.withUnsafeBytes { try body(try parser.parse($0)) }
    }

    private func error(_ bytes: [UInt8], byteLimit: Int = 1 << 20, depthLimit: Int = 8) -> JSONError? {
        let parser = JSONParser(byteLimit: byteLimit, depthLimit: depthLimit)
        return bytes.withUnsafeBytes { bytes in
            do throws(JSONError) {
                _ = try parser.parse(bytes)
                return nil
            } catch {
                return error
            }
        }
    }

    @Test("a value is written as it was read, in order and without white space")
    func roundTrip() throws {
        let text = #"{"b":[1,-2,18446744073709551615,0.5,1e+21,true,false,null],"a":{"":"é😀\"\\\n"},"e":[],"o":{}}"#
        let written = try parse(" " + text + "\n ") { value in
            var writer = JSONWriter()
            writer.value(value)
            return String(decoding: writer.bytes, as: UTF8.self)
        }
        #expect(written == text)
    }

    @Test("escapes, surrogate pairs and escaped slashes are resolved")
    func escapes() throws {
        try parse(#"{"k\u0065y":"\/\ud83d\ude00\u4f60"}"#) { value in
            #expect(value["key"]?.string == "/😀你")
        }
    }

    @Test("numbers and their texts are the same integer")
    func lenientIntegers() throws {
        try parse(#"[5,"5","-1","+1",5.0,5.5,"5x","",true,9223372036854775808]"#) { value in
            let numbers = value.elements.map(\.lenientInteger)
            #expect(numbers == [5, 5, -1, 1, 5, nil, nil, nil, nil, nil])
        }
    }

    @Test("a null member counts as absent, and the first of equal names counts")
    func members() throws {
        try parse(#"{"a":null,"b":1,"b":2}"#) { value in
            #expect(value["a"] == nil)
            #expect(value["b"]?.integer == 1)
            #expect(value["c"] == nil)
        }
    }

    @Test(
        "invalid texts are refused with the error",
        arguments: [
            ("", JSONError.empty), ("{", .badStructure), ("[1,]", .badStructure), ("{\"a\":\"", .badString),
            ("[01]", .badNumber), ("[1e]", .badNumber), ("[\"\\ud800\",]", .badString), ("[\"\\", .badString),
            ("[[[[[[[[[1]]]]]]]]]", .tooDeep), ("{} {}", .badStructure), ("[1NaN]", .badNumber),
            ("[1.NaN]", .badNumber),
            ("[1-2.5]", .badNumber), ("[1.-1.5]", .badNumber), ("[0.5e+-1.5]", .badNumber),
            ("[0.0001eNaN]", .badNumber),
            ("{\"a\":0.\(String(repeating: "0", count: 139))1eNaN}", .badNumber), ("{\"t\":1-2.5,\"b\":7}", .badNumber),
            ("[\"a\"NaN]", .badStructure), ("[NaNNaN]", .badStructure), ("[InfinityNaN]", .badStructure),
        ] as [(String, JSONError)])
    func faults(text: String, expected: JSONError) {
        #expect(error(Array(text.utf8)) == expected)
    }

    @Test("every number that is read is one of the text's, whatever bytes are in its place")
    func touchingTokens() {
        let pieces = ["1", "-", ".", "5", "e", "+", "NaN", "Infinity", "0", " ", ",", "1e400", "99999999999999999999"]
        var random = SeededGenerator(seed: 7)
        let parser = JSONParser(byteLimit: 4_096, depthLimit: 8)
        for _ in 0..<20_000 {
            let middle = (0..<Int.random(in: 1...6, using: &random)).map { _ in
                pieces.randomElement(using: &random) ?? ""
            }
            let text = Array("{\"a\":[\(middle.joined())],\"b\":7}".utf8)
            text.withUnsafeBytes { bytes in
                guard let value = try? parser.parse(bytes) else { return }
                #expect(value["b"]?.integer == 7, "\(middle.joined())")
                #expect(value.members.map { $0.key.string ?? "" } == ["a", "b"], "\(middle.joined())")
            }
        }
    }

    @Test("size and depth are bounded exactly, and invalid UTF-8 outside a string is refused")
    func bounds() {
        #expect(error([0x5B, 0xFF, 0x5D]) == .badUTF8)
        #expect(error(Array("[[[[[[[[1]]]]]]]]".utf8)) == nil)
        #expect(error(Array("[1,2]".utf8), byteLimit: 5) == nil)
        #expect(error(Array("[1,2]".utf8), byteLimit: 4) == .tooLarge)
    }

    @Test("an unreadable string or number only invalidates itself")
    func unreadable() throws {
        let bad = [
            #""\ud83d""#, #""a\ude00b""#, #""\ud83d\u0041""#, #""\ud83d\ud83d\ude00""#, #""\x""#, #""\u12G4""#,
            "\"a\u{1}b\"",
            "NaN", "Infinity", "-Infinity",
        ]
        for text in bad {
            try parse(
                #"{"a":[1,"x",2.5],"b":\#(text),"\u0063":"\"\\\u00e9","d":12345678901234567890123,"e":{"f":\#(text)}}"#
            ) {
                value in
                #expect(value["a"]?.elements.map(\.kind) == [.integer, .string, .double], "\(text)")
                #expect(value["b"]?.kind == .unreadable && value["b"]?.string == nil, "\(text)")
                #expect(value["c"]?.string == "\"\\é" && value["e"]?.unreadablePath == ".f", "\(text)")
                #expect(value["d"]?.lenientText == "12345678901234567890123" && value.unreadablePath == ".b", "\(text)")
            }
        }
        let parser = JSONParser()
        let latin: [UInt8] = Array("[\"a".utf8) + [0xE9, 0xFF, 0xED, 0xA0, 0x80] + Array("\",\"b\"]".utf8)
        try latin.withUnsafeBytes { bytes in
            let value = try parser.parse(bytes)
            #expect(value.elements.map(\.kind) == [.unreadable, .string] && parser.hasUnreadable)
        }
        let plain = Array("[1.5]".utf8)
        _ = try plain.withUnsafeBytes { try parser.parse($0) }
        #expect(!parser.hasUnreadable)
    }

    @Test(
        "a number that is no 64-bit integer is written with its original digits",
        arguments: [
            "1234567890123456789012345", "-9223372036854775809", "18446744073709551616", "1e400", "-1E+400", "1.0",
            "1e5",
            "0.1000", "3.14159265358979323846264338327950288", "12345678901234567.89", "-0.0",
        ])
    func digits(number: String) throws {
        let text = #"{"a":\#(number),"b":[7,\#(number),"\#(number)"]}"#
        try parse(text) { value in
            var writer = JSONWriter()
            writer.value(value)
            #expect(String(decoding: writer.bytes, as: UTF8.self) == text)
            #expect(value["a"]?.kind == .double && value["a"]?.integer == nil)
        }
    }

    @Test("a parser accepts small, large and small documents in turn")
    func regrowth() throws {
        let parser = JSONParser()
        for count in [1, 2_000_000, 1, 70_000] {
            let text = Array("\"\(String(repeating: "a", count: count))\"".utf8)
            let length = try text.withUnsafeBytes { try parser.parse($0).stringBytes?.count }
            #expect(length == count)
        }
    }

    @Test("invalid UTF-8 is written as U+FFFD, so the document is valid")
    func invalidUTF8() {
        let cases: [([UInt8], String)] = [
            ([0x61, 0xFF, 0x62], "a\u{FFFD}b"), ([0xC3], "\u{FFFD}"),
            ([0xED, 0xA0, 0x80], "\u{FFFD}\u{FFFD}\u{FFFD}"), ([0xF0, 0x9F, 0x98], "\u{FFFD}\u{FFFD}\u{FFFD}"),
            ([0xE4, 0xBD, 0xA0], "你"), ([0xC0, 0xAF], "\u{FFFD}\u{FFFD}"),
            ([0xF4, 0x90, 0x80, 0x80], "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}"),
        ]
        for (bytes, expected) in cases {
            var writer = JSONWriter()
            bytes.withUnsafeBytes { writer.string(bytes: $0) }
            #expect(String(decoding: writer.bytes, as: UTF8.self) == "\"\(expected)\"")
            #expect(error(writer.bytes) == nil)
        }
    }

    @Test("every control character is escaped and read back")
    func controlCharacters() throws {
        let text = String(String.UnicodeScalarView((0..<0x80).compactMap(Unicode.Scalar.init)))
        var writer = JSONWriter()
        writer.string(text)
        try parse(String(decoding: writer.bytes, as: UTF8.self)) { #expect($0.string == text) }
    }

    @Test("random bytes are parsed or refused, and a parsed document survives rewriting")
    func randomBytes() {
        var generator = SeededGenerator(seed: 2)
        let parser = JSONParser(byteLimit: 4_096, depthLimit: 16)
        let alphabet = Array(#"{}[]:,"\u0eE+-.19truefalsnl \#u{0}"#.utf8) + [0xC3, 0xA9, 0xFF]
        for _ in 0..<20_000 {
            let count = Int(generator.next() % 48)
            let bytes = (0..<count).map { _ in alphabet[Int(generator.next() % UInt64(alphabet.count))] }
            var writer = JSONWriter()
            bytes.withUnsafeBytes { bytes in
                guard let value = try? parser.parse(bytes) else { return }
                writer.value(value)
            }
            guard !writer.bytes.isEmpty else { continue }
            #expect(error(writer.bytes, depthLimit: 16) == nil)
        }
    }
}
