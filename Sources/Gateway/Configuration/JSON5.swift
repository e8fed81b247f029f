// Parses JSON5 (json5.org) into a tree with the position of each value, so that each configuration error can name its line. A
// standard decoder keeps neither positions nor repeated keys, which are needed to report a mistyped key.

package struct JSON5Node: Equatable, Sendable {
    package indirect enum Value: Equatable, Sendable {
        case null
        case boolean(Bool)
        /// A number without a fraction that fits into 64 bits.
        case integer(Int64)
        case number(Double)
        case string(String)
        case array([JSON5Node])
        case object([JSON5Member])
    }
    package var value: Value
    package var position: TextPosition
}

package struct JSON5Member: Equatable, Sendable {
    package var key: String
    package var keyPosition: TextPosition
    package var node: JSON5Node
}

/// A position in a text; lines and columns count from 1, columns in UTF-8 bytes.
package struct TextPosition: Equatable, Sendable {
    package var line: Int
    package var column: Int
    package init(line: Int, column: Int) { (self.line, self.column) = (line, column) }
}

package struct JSON5Error: Error, Equatable, Sendable {
    package var position: TextPosition
    package var reason: String
}

/// A one-pass parser of UTF-8 bytes; nesting is limited, so that no text can exhaust the stack.
package struct JSON5Parser {
    private let bytes: [UInt8]
    private var offset = 0
    private var line = 1
    private var lineStart = 0

    /// Parses `bytes`, which must contain exactly one value.
    package static func parse(_ bytes: [UInt8]) throws(JSON5Error) -> JSON5Node {
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw JSON5Error(position: TextPosition(line: 1, column: 1), reason: "the file is not UTF-8 text")
        }
        var parser = JSON5Parser(bytes: bytes)
        try parser.skipSpace()
        guard parser.offset < bytes.count else { throw parser.error("the file is empty") }
        let node = try parser.value(depth: 0)
        try parser.skipSpace()
        guard parser.offset == bytes.count else { throw parser.error("something follows the end of the value") }
        return node
    }

    private init(bytes: [UInt8]) {
        self.bytes = bytes
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { offset = 3 }  // a byte order mark
    }

    private var position: TextPosition { TextPosition(line: line, column: offset - lineStart + 1) }
    private var current: UInt8? { offset < bytes.count ? bytes[offset] : nil }

    private func error(_ reason: String) -> JSON5Error { JSON5Error(position: position, reason: reason) }

    private func peek(_ distance: Int) -> UInt8? {
        offset + distance < bytes.count ? bytes[offset + distance] : nil
    }

    /// The byte count of a line end at `offset`, or 0: CR, LF, CR LF, U+2028 and U+2029.
    private var lineEndByteCount: Int {
        switch current {
        case UInt8(ascii: "\n"): return 1
        case UInt8(ascii: "\r"): return peek(1) == UInt8(ascii: "\n") ? 2 : 1
        case 0xE2: return peek(1) == 0x80 && (peek(2) == 0xA8 || peek(2) == 0xA9) ? 3 : 0
        default: return 0
        }
    }

    /// The byte count of white space at `offset` other than a line end, or 0.
    private var blankByteCount: Int {
        guard let first = current else { return 0 }
        switch first {
        case 0x09, 0x0B, 0x0C, 0x20: return 1
        case 0xC2: return peek(1) == 0xA0 ? 2 : 0  // no-break space
        case 0xE1, 0xE2, 0xE3, 0xEF:  // the other spaces of Unicode, and the byte order mark
            guard let second = peek(1), let third = peek(2) else { return 0 }
            switch (first, second, third) {
            case (0xE1, 0x9A, 0x80), (0xE2, 0x80, 0x80...0x8A), (0xE2, 0x80, 0xAF), (0xE2, 0x81, 0x9F),
                (0xE3, 0x80, 0x80), (0xEF, 0xBB, 0xBF):
                return 3
            default: return 0
            }
        default: return 0
        }
    }

    private mutating func takeLineEnd() -> Bool {
        let count = lineEndByteCount
        guard count > 0 else { return false }
        offset += count
        line += 1
        lineStart = offset
        return true
    }

    private mutating func skipSpace() throws(JSON5Error) {
        while offset < bytes.count {
            if takeLineEnd() { continue }
            let blanks = blankByteCount
            if blanks > 0 {
                offset += blanks
            } else if current == UInt8(ascii: "/"), peek(1) == UInt8(ascii: "/") {
                while offset < bytes.count, lineEndByteCount == 0 { offset += 1 }
            } else if current == UInt8(ascii: "/"), peek(1) == UInt8(ascii: "*") {
                try skipBlockComment()
            } else {
                return
            }
        }
    }

    private mutating func skipBlockComment() throws(JSON5Error) {
        let start = error("this comment has no end")
        offset += 2
        while offset < bytes.count {
            if current == UInt8(ascii: "*"), peek(1) == UInt8(ascii: "/") {
                offset += 2
                return
            }
            if !takeLineEnd() { offset += 1 }
        }
        throw start
    }

    private mutating func value(depth: Int) throws(JSON5Error) -> JSON5Node {
        guard depth < ConfigurationLimits.nestingDepth else { throw error("nested too deeply") }
        let start = position
        let value: JSON5Node.Value
        guard let first = current else { throw error("a value is missing at the end of the file") }
        switch first {
        case UInt8(ascii: "{"): value = try object(depth: depth)
        case UInt8(ascii: "["): value = try array(depth: depth)
        case UInt8(ascii: "\""), UInt8(ascii: "'"): value = .string(try string())
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."):
            value = try number()
        default: value = try word()
        }
        return JSON5Node(value: value, position: start)
    }

    private mutating func object(depth: Int) throws(JSON5Error) -> JSON5Node.Value {
        let open = error("this { has no }")
        offset += 1
        var members: [JSON5Member] = []
        while true {
            try skipSpace()
            guard let byte = current else { throw open }
            if byte == UInt8(ascii: "}") { break }
            let keyPosition = position
            let key =
                byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'") ? try string() : try identifier()
            if let first = members.first(where: { $0.key == key }) {
                throw JSON5Error(
                    position: keyPosition, reason: "the key \(key) stands already in line \(first.keyPosition.line)")
            }
            try skipSpace()
            guard current == UInt8(ascii: ":") else { throw error("a : is missing after the key \(key)") }
            offset += 1
            try skipSpace()
            members.append(JSON5Member(key: key, keyPosition: keyPosition, node: try value(depth: depth + 1)))
            try skipSpace()
            guard current != UInt8(ascii: "}") else { break }
            guard current == UInt8(ascii: ",") else {
                if current == nil { throw open }
                throw error("a , or } is missing here")
            }
            offset += 1
        }
        offset += 1
        return .object(members)
    }

    private mutating func array(depth: Int) throws(JSON5Error) -> JSON5Node.Value {
        let open = error("this [ has no ]")
        offset += 1
        var nodes: [JSON5Node] = []
        while true {
            try skipSpace()
            guard let byte = current else { throw open }
            if byte == UInt8(ascii: "]") { break }
            nodes.append(try value(depth: depth + 1))
            try skipSpace()
            guard current != UInt8(ascii: "]") else { break }
            guard current == UInt8(ascii: ",") else {
                if current == nil { throw open }
                throw error("a , or ] is missing here")
            }
            offset += 1
        }
        offset += 1
        return .array(nodes)
    }

    private mutating func word() throws(JSON5Error) -> JSON5Node.Value {
        let start = self
        switch try identifier() {
        case "true": return .boolean(true)
        case "false": return .boolean(false)
        case "null": return .null
        case "Infinity": return .number(.infinity)
        case "NaN": return .number(.nan)
        case let other: throw start.error("\(other) is no value; text needs quotes")
        }
    }

    /// Parses an unquoted key: letters, digits, `_`, `$` and non-ASCII characters other than spaces; the first must not be a
    /// digit.
    private mutating func identifier() throws(JSON5Error) -> String {
        let start = offset
        while let byte = current {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
                UInt8(ascii: "$"):
                offset += 1
                continue
            case UInt8(ascii: "0")...UInt8(ascii: "9") where offset > start:
                offset += 1
                continue
            case 0x80... where lineEndByteCount == 0 && blankByteCount == 0:
                offset += 1
                continue
            default: break
            }
            break
        }
        guard offset > start else {
            throw error("\(Self.name(of: bytes[offset])) does not belong here")
        }
        return String(decoding: bytes[start..<offset], as: UTF8.self)
    }

    private static func name(of byte: UInt8) -> String {
        byte > 0x20 && byte < 0x7F ? String(UnicodeScalar(byte)) : "the byte \(byte)"
    }

    private mutating func string() throws(JSON5Error) -> String {
        let open = error("this text has no closing quote")
        let quote = bytes[offset]
        offset += 1
        var scalars: [UInt8] = []
        while let byte = current {
            if byte == quote {
                offset += 1
                return String(decoding: scalars, as: UTF8.self)
            }
            if byte == UInt8(ascii: "\n") || byte == UInt8(ascii: "\r") { throw open }
            if byte == UInt8(ascii: "\\") {
                offset += 1
                try escape(into: &scalars)
            } else {
                scalars.append(byte)
                offset += 1
            }
        }
        throw open
    }

    private mutating func escape(into scalars: inout [UInt8]) throws(JSON5Error) {
        if takeLineEnd() { return }  // a continued line adds nothing
        guard let byte = current else { throw error("the file ends inside a text") }
        offset += 1
        switch byte {
        case UInt8(ascii: "b"): scalars.append(0x08)
        case UInt8(ascii: "f"): scalars.append(0x0C)
        case UInt8(ascii: "n"): scalars.append(0x0A)
        case UInt8(ascii: "r"): scalars.append(0x0D)
        case UInt8(ascii: "t"): scalars.append(0x09)
        case UInt8(ascii: "v"): scalars.append(0x0B)
        case UInt8(ascii: "0"): scalars.append(0)
        case UInt8(ascii: "x"): append(UInt32(try hexadecimal(digitCount: 2)), to: &scalars)
        case UInt8(ascii: "u"):
            let first = UInt32(try hexadecimal(digitCount: 4))
            guard 0xD800...0xDBFF ~= first, current == UInt8(ascii: "\\"), peek(1) == UInt8(ascii: "u") else {
                return append(first, to: &scalars)
            }
            let afterFirst = self
            offset += 2
            let second = UInt32(try hexadecimal(digitCount: 4))
            if 0xDC00...0xDFFF ~= second {
                append(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00), to: &scalars)
            } else {
                self = afterFirst
                append(first, to: &scalars)
            }
        case UInt8(ascii: "1")...UInt8(ascii: "9"): throw error("a digit cannot follow \\ in a text")
        default: scalars.append(byte)
        }
    }

    /// Appends a scalar; a lone surrogate becomes U+FFFD, because a Swift string cannot hold it.
    private func append(_ scalar: UInt32, to bytes: inout [UInt8]) {
        bytes.append(contentsOf: String(UnicodeScalar(scalar) ?? "\u{FFFD}").utf8)
    }

    private mutating func hexadecimal(digitCount: Int) throws(JSON5Error) -> Int {
        var number = 0
        for _ in 0..<digitCount {
            guard let byte = current, let digit = Character(UnicodeScalar(byte)).hexDigitValue, byte < 0x80 else {
                throw error("\(digitCount) hexadecimal digits are needed here")
            }
            number = number << 4 | digit
            offset += 1
        }
        return number
    }

    private mutating func number() throws(JSON5Error) -> JSON5Node.Value {
        let start = self
        var isNegative = false
        if current == UInt8(ascii: "+") || current == UInt8(ascii: "-") {
            isNegative = current == UInt8(ascii: "-")
            offset += 1
        }
        let first = offset
        while let byte = current {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "."), UInt8(ascii: "_"):
                offset += 1
                continue
            case UInt8(ascii: "+"), UInt8(ascii: "-"):
                let previous = bytes[offset - 1] | 0x20
                if offset > first, previous == UInt8(ascii: "e"), !isHexadecimal(from: first) {
                    offset += 1
                    continue
                }
            default: break
            }
            break
        }
        let text = String(decoding: bytes[first..<offset], as: UTF8.self)
        if text == "Infinity" { return .number(isNegative ? -.infinity : .infinity) }
        if text == "NaN" { return .number(.nan) }
        if isHexadecimal(from: first) {
            guard text.count > 2, let magnitude = UInt64(text.dropFirst(2), radix: 16), magnitude <= Int64.max else {
                throw start.error("\(text) is no number that fits")
            }
            return .integer(isNegative ? -Int64(magnitude) : Int64(magnitude))
        }
        guard !text.isEmpty, text.utf8.allSatisfy({ Self.isDecimal($0) }) else {
            throw start.error("\(text.isEmpty ? "a lone sign" : text) is no number")
        }
        if text.utf8.allSatisfy({ $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }) {
            guard text.count == 1 || !text.hasPrefix("0") else {
                throw start.error("\(text): a number cannot begin with 0")
            }
            if let number = Int64((isNegative ? "-" : "") + text) { return .integer(number) }
        }
        // JSON5 allows a leading or trailing point, but Swift's number parser does not.
        var spelled = text
        if spelled.hasPrefix(".") { spelled = "0" + spelled }
        if spelled.hasSuffix(".") { spelled += "0" }
        spelled = spelled.replacingPointBeforeExponent()
        guard text != ".", let number = Double((isNegative ? "-" : "") + spelled), number.isFinite else {
            throw start.error("\(text) is no number")
        }
        if number == number.rounded(), abs(number) < 9_007_199_254_740_992 { return .integer(Int64(number)) }
        return .number(number)
    }

    private func isHexadecimal(from first: Int) -> Bool {
        first + 1 < bytes.count && bytes[first] == UInt8(ascii: "0") && bytes[first + 1] | 0x20 == UInt8(ascii: "x")
    }

    private static func isDecimal(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "e"), UInt8(ascii: "E"),
            UInt8(ascii: "+"), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}

extension String {
    /// Converts `5.e3` to `5.0e3`.
    fileprivate func replacingPointBeforeExponent() -> String {
        var result = ""
        var previous: Character?
        for character in self {
            if previous == ".", character == "e" || character == "E" { result.append("0") }
            result.append(character)
            previous = character
        }
        return result
    }
}
