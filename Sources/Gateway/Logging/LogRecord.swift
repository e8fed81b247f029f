internal import TextForms

/// One event on its way to the log.
struct LogRecord: Equatable, Sendable {
    var level: LogLevel
    var name: LogName
    /// Wall clock, milliseconds since 1970 UTC: a log is read beside other logs.
    var time: Int64
    var fields: [LogField]
}

struct LogField: Equatable, Sendable {
    var key: LogKey
    var value: LogValue
}

/// Turns records into lines.
///
/// Pure; runs on the log's own thread.
struct LogFormatter {
    let format: LogFormat

    /// Appends one line with its end.
    func append(_ record: LogRecord, to output: inout [UInt8]) {
        switch format {
        case .json: appendJSON(record, to: &output)
        case .text: appendText(record, to: &output)
        }
        output.append(UInt8(ascii: "\n"))
    }

    private func appendJSON(_ record: LogRecord, to output: inout [UInt8]) {
        let time = CivilTime(millisecondsSince1970: record.time).timestamp
        output += "{\"time\":\"\(time)\",\"level\":\"\(record.level.rawValue)\"".utf8
        output += ",\"event\":\"\(record.name.rawValue)\"".utf8
        for field in record.fields {
            output += ",\"\(field.key.rawValue)\":".utf8
            switch field.value {
            case .integer(let number): output += "\(number)".utf8
            case .number(let number): output += (number.isFinite ? "\(number)" : "null").utf8
            case .boolean(let value): output += "\(value)".utf8
            case .text(let text): Self.appendQuoted(text, to: &output)
            }
        }
        output.append(UInt8(ascii: "}"))
    }

    private func appendText(_ record: LogRecord, to output: inout [UInt8]) {
        let time = CivilTime(millisecondsSince1970: record.time).timestamp
        let level = record.level.rawValue.uppercased()
        output += "\(time) \(level)".utf8
        output += String(repeating: " ", count: 8 - level.utf8.count).utf8
        output += record.name.rawValue.utf8
        for field in record.fields {
            output += " \(field.key.rawValue)=".utf8
            switch field.value {
            case .integer(let number): output += "\(number)".utf8
            case .number(let number): output += "\(number)".utf8
            case .boolean(let value): output += "\(value)".utf8
            case .text(let text):
                let isPlain =
                    !text.isEmpty && text.utf8.count <= LogLimits.textByteCount
                    && text.utf8.allSatisfy { $0 > 0x20 && $0 != 0x22 && $0 != 0x5C && $0 != 0x3D && $0 < 0x7F }
                if isPlain { output += text.utf8 } else { Self.appendQuoted(text, to: &output) }
            }
        }
    }

    /// JSON's quoting, for both formats.
    ///
    /// Control characters, also those of C1 and the line ends of Unicode, are escaped, so that a peer's text can
    /// neither break a line nor drive a terminal.
    static func appendQuoted(_ text: String, to output: inout [UInt8]) {
        output.append(UInt8(ascii: "\""))
        var byteCount = 0
        for scalar in text.unicodeScalars {
            byteCount += UTF8.width(scalar)
            guard byteCount <= LogLimits.textByteCount else {
                output += "…".utf8
                break
            }
            switch scalar.value {
            case 0x22: output += "\\\"".utf8
            case 0x5C: output += "\\\\".utf8
            case 0x0A: output += "\\n".utf8
            case 0x0D: output += "\\r".utf8
            case 0x09: output += "\\t".utf8
            case 0..<0x20, 0x7F..<0xA0, 0x2028, 0x2029, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069:
                let digits = String(scalar.value, radix: 16)
                output += ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).utf8
            default: output += String(scalar).utf8
            }
        }
        output.append(UInt8(ascii: "\""))
    }
}
