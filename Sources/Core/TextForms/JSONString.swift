/// Writes JSON strings (RFC 8259); every input becomes valid JSON: each byte of invalid UTF-8 is replaced by U+FFFD.
package enum JSONString {
    /// The characters escaped as `\u` and four digits besides the required ones: `"`, `\` and U+0000 to U+001F.
    package enum Escapes {
        case required
        /// U+007F and the line separators U+2028 and U+2029, which some readers of JSON lines treat as line ends.
        case lines
        /// The characters of `lines`, C1 controls and direction marks, so that a peer's text cannot control a terminal.
        case terminal

        @inline(__always) fileprivate func contain(_ text: UnsafeRawBufferPointer, at place: Int, length: Int) -> Bool {
            switch self {
            case .required: return false
            case .lines:
                let scalar = scalarValue(in: text, at: place, length: length)
                return scalar == 0x7F || scalar == 0x2028 || scalar == 0x2029
            case .terminal:
                switch scalarValue(in: text, at: place, length: length) {
                case 0x7F..<0xA0, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: return true
                default: return false
                }
            }
        }
    }

    package static func quoted(_ text: String, escaping escapes: Escapes = .required) -> String {
        var bytes = [UInt8(ascii: "\"")]
        var text = text
        text.withUTF8 { appendContent(UnsafeRawBufferPointer($0), escaping: escapes, to: &bytes) }
        bytes.append(UInt8(ascii: "\""))
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends the content between the quotes.
    ///
    /// - Complexity: one pass, eight bytes at once where nothing is escaped.
    package static func appendContent(
        _ text: UnsafeRawBufferPointer, escaping escapes: Escapes = .required, to output: inout [UInt8]
    ) {
        var start = 0
        var place = 0
        while place < text.count {
            let bytes = EightBytes(text, from: place)
            if bytes.isPlain, escapes == .required || !bytes.hasDelete {
                place = min(place + 8, text.count)
                continue
            }
            let byte = text[place]
            let length = byte < 0x80 ? 1 : validSequenceLength(in: text, at: place)
            let isDemanded = byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
            if length > 0, !isDemanded, !escapes.contain(text, at: place, length: length) {
                place += length
                continue
            }
            output.append(contentsOf: UnsafeRawBufferPointer(rebasing: text[start..<place]))
            if length > 0 {
                appendEscape(scalarValue(in: text, at: place, length: length), to: &output)
            } else {
                output.append(contentsOf: [0xEF, 0xBF, 0xBD])
            }
            place += max(1, length)
            start = place
        }
        output.append(contentsOf: UnsafeRawBufferPointer(rebasing: text[start..<place]))
    }

    private static func appendEscape(_ scalar: UInt32, to output: inout [UInt8]) {
        output.append(UInt8(ascii: "\\"))
        switch scalar {
        case 0x22, 0x5C: output.append(UInt8(scalar))
        case 0x0A: output.append(UInt8(ascii: "n"))
        case 0x0D: output.append(UInt8(ascii: "r"))
        case 0x09: output.append(UInt8(ascii: "t"))
        default:
            output.append(UInt8(ascii: "u"))
            for shift: UInt32 in [12, 8, 4, 0] {
                let nibble = UInt8(scalar >> shift & 15)
                output.append(nibble < 10 ? UInt8(ascii: "0") + nibble : UInt8(ascii: "a") - 10 + nibble)
            }
        }
    }
}
