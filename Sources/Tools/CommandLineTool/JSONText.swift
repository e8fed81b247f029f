internal import TextForms

/// JSON to be written: members keep their order, so that a line reads the same each time.
enum JSONText: Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case unsigned(UInt64)
    case string(String)
    case array([JSONText])
    case object([(String, JSONText)])
    /// JSON already.
    case verbatim(String)

    static func == (left: JSONText, right: JSONText) -> Bool { left.text == right.text }

    /// In one line.
    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): value ? "true" : "false"
        case .integer(let value): String(value)
        case .unsigned(let value): String(value)
        case .string(let value): Self.quote(value)
        case .array(let values): "[" + values.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { Self.quote($0) + ":" + $1.text }.joined(separator: ",") + "}"
        case .verbatim(let text): text
        }
    }

    /// A reader of JSON lines sees one line, whatever the text holds.
    private static func quote(_ text: String) -> String { JSONString.quoted(text, escaping: .lines) }
}
