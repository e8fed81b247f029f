internal import TextForms

/// A JSON value whose members keep their order, so that output is reproducible.
enum JSONText: Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case unsigned(UInt64)
    case string(String)
    case array([JSONText])
    case members([(String, JSONText)])
    case verbatim(String)

    static func == (left: JSONText, right: JSONText) -> Bool { left.text == right.text }

    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): value ? "true" : "false"
        case .integer(let value): String(value)
        case .unsigned(let value): String(value)
        case .string(let value): Self.quote(value)
        case .array(let values): "[" + values.map(\.text).joined(separator: ",") + "]"
        case .members(let members):
            "{" + members.map { Self.quote($0) + ":" + $1.text }.joined(separator: ",") + "}"
        case .verbatim(let text): text
        }
    }

    var unlessEmpty: JSONText? {
        if case .members(let members) = self, members.isEmpty { nil } else { self }
    }

    /// Creates an object; members with the value `nil` are left out.
    static func object(_ members: [(String, (any JSONTextConvertible)?)]) -> JSONText {
        .members(members.compactMap { name, value in value.map { (name, $0.json) } })
    }

    /// Escapes all line separators, so that each JSON value stays on one line.
    private static func quote(_ text: String) -> String { JSONString.quoted(text, escaping: .lines) }
}

protocol JSONTextConvertible { var json: JSONText { get } }

extension JSONText: JSONTextConvertible, ExpressibleByDictionaryLiteral {
    var json: JSONText { self }
    init(dictionaryLiteral elements: (String, (any JSONTextConvertible)?)...) { self = .object(elements) }
}
extension String: JSONTextConvertible { var json: JSONText { .string(self) } }
extension Bool: JSONTextConvertible { var json: JSONText { .bool(self) } }
extension Int: JSONTextConvertible { var json: JSONText { .integer(Int64(self)) } }
extension Int64: JSONTextConvertible { var json: JSONText { .integer(self) } }
extension UInt16: JSONTextConvertible { var json: JSONText { .unsigned(UInt64(self)) } }
extension UInt32: JSONTextConvertible { var json: JSONText { .unsigned(UInt64(self)) } }
extension UInt64: JSONTextConvertible { var json: JSONText { .unsigned(self) } }
extension [JSONText]: JSONTextConvertible { var json: JSONText { .array(self) } }
