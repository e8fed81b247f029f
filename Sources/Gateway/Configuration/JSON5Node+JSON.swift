internal import TextForms

// A tree that is changed and written again: settings that come piece by piece, and are kept as text.
extension JSON5Node {
    /// Makes a value that stands in no text.
    package init(_ value: Value) { self.init(value: value, position: TextPosition(line: 1, column: 1)) }

    /// The value as JSON, keys sorted: two trees that say the same have the same text.
    package var json: String {
        switch value {
        case .null: "null"
        case .boolean(let value): value ? "true" : "false"
        case .integer(let value): String(value)
        case .number(let value): value.isFinite ? "\(value)" : "null"
        case .string(let text): JSONString.quoted(text)
        case .array(let nodes): "[" + nodes.map(\.json).joined(separator: ",") + "]"
        case .object(let members):
            "{"
                + members.sorted { $0.key < $1.key }.map { JSONString.quoted($0.key) + ":" + $0.node.json }
                .joined(separator: ",") + "}"
        }
    }

    /// This value with a merge patch (RFC 7396) applied: null takes a key away, an object changes the object there, and
    /// anything else replaces what is there.
    package func merged(with patch: JSON5Node) -> JSON5Node {
        guard case .object(let changes) = patch.value else { return patch }
        var members: [JSON5Member] = []
        if case .object(let present) = value { members = present }
        for change in changes {
            let place = members.firstIndex { $0.key == change.key }
            if case .null = change.node.value {
                if let place { members.remove(at: place) }
                continue
            }
            let before = place.map { members[$0].node } ?? JSON5Node(.null)
            let node = before.merged(with: change.node)
            if let place {
                members[place].node = node
            } else {
                members.append(JSON5Member(change.key, node))
            }
        }
        return JSON5Node(.object(members))
    }
}

extension JSON5Member {
    package init(_ key: String, _ node: JSON5Node) {
        self.init(key: key, keyPosition: node.position, node: node)
    }
}
