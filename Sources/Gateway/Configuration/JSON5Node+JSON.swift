internal import TextForms

// Editing and writing of a tree, for settings that are patched and stored as text.
extension JSON5Node {
    /// Creates a value without a position in a text.
    package init(_ value: Value) { self.init(value: value, position: TextPosition(line: 1, column: 1)) }

    /// The value as JSON with sorted keys; equal trees have the same text.
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

    /// Returns this value with a merge patch (RFC 7396) applied.
    ///
    /// In the patch, null removes a key, an object is merged, and any other value replaces the old one.
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
