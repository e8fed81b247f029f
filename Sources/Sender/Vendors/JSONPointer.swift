/// A JSON pointer (RFC 6901), by which a publisher's options change a rendered request.
package struct JSONPointer: Sendable, Equatable {
    static let byteCount = 256
    static let tokenCount = 12
    static let arrayCount = 64

    package let tokens: [String]

    /// The result is `nil` for malformed pointers, the whole document, and pointers beyond the bounds.
    package init?(_ text: String) {
        guard text.hasPrefix("/"), text.utf8.count <= Self.byteCount else { return nil }
        var tokens: [String] = []
        for part in text.dropFirst().split(separator: "/", omittingEmptySubsequences: false) {
            guard let token = Self.unescaped(part) else { return nil }
            tokens.append(token)
        }
        guard tokens.count <= Self.tokenCount, tokens.allSatisfy({ !$0.isEmpty }) else { return nil }
        self.tokens = tokens
    }

    private static func unescaped(_ part: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = part.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "~") else {
                bytes.append(byte)
                continue
            }
            switch rest.popFirst() {
            case UInt8(ascii: "0"): bytes.append(UInt8(ascii: "~"))
            case UInt8(ascii: "1"): bytes.append(UInt8(ascii: "/"))
            default: return nil
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    private init(tokens: [String]) { self.tokens = tokens }

    func prefixed(_ name: String) -> JSONPointer { JSONPointer(tokens: [name] + tokens) }

    /// Whether one pointer equals or contains the other, so that setting either can change both values.
    func overlaps(_ other: [String]) -> Bool { zip(tokens, other).allSatisfy { $0 == $1 } }
}

extension JSONTree {
    /// Sets the value at a pointer, and creates the missing objects that contain it.
    ///
    /// - Returns: whether the pointer was applicable; `false` leaves the tree unchanged.
    mutating func set(_ value: JSONTree, at pointer: ArraySlice<String>) -> Bool {
        guard let token = pointer.first else {
            self = value
            return true
        }
        let rest = pointer.dropFirst()
        switch self {
        case .object:
            var child = self[token] ?? .object([])
            guard child.set(value, at: rest) else { return false }
            set(token, child)
            return true
        case .array(var elements):
            let place = token == "-" ? elements.count : (Int(token) ?? -1)
            guard (0...elements.count).contains(place), place < JSONPointer.arrayCount else { return false }
            if place == elements.count { elements.append(.object([])) }
            guard elements[place].set(value, at: rest) else { return false }
            self = .array(elements)
            return true
        default: return false
        }
    }
}
