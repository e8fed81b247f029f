internal import TextForms

/// An event in the log's queue.
struct LogRecord: Equatable, Sendable {
    var level: LogLevel
    var name: LogName
    /// The wall clock time, in milliseconds since 1970 UTC, for comparison with other logs.
    var time: Int64
    var fields: [LogField]
}

struct LogField: Equatable, Sendable {
    var key: LogKey
    var value: LogValue
}

/// Formats records as lines, on the log's thread.
struct LogFormatter {
    let format: LogFormat
    /// Whether the lines go to systemd's journal, which adds the time itself and reads the priority from the prefix
    /// (sd-daemon(3)).
    var isForJournal = false

    func append(_ record: LogRecord, to output: inout [UInt8]) {
        if isForJournal { output += "<\(record.level.priority)>".utf8 }
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
        let level = record.level.rawValue.uppercased()
        if !isForJournal { output += "\(CivilTime(millisecondsSince1970: record.time).timestamp) ".utf8 }
        output += level.utf8
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

    /// Appends up to `LogLimits.textByteCount` bytes of a text with JSON quoting, for both formats.
    static func appendQuoted(_ text: String, to output: inout [UInt8]) {
        output.append(UInt8(ascii: "\""))
        var text = text
        text.withUTF8 { whole in
            var end = min(whole.count, LogLimits.textByteCount)
            // The cut must not split a character.
            while end < whole.count, whole[end] & 0xC0 == 0x80 { end -= 1 }
            let shown = UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: whole[..<end]))
            JSONString.appendContent(shown, escaping: .terminal, to: &output)
            if end < whole.count { output += "…".utf8 }
        }
        output.append(UInt8(ascii: "\""))
    }
}
