/// What an answer says of how its request was read: nothing of it is an error, and each may be a mistake.
internal import JSON

package struct RequestNotes: Sendable, Equatable {
    /// Fields from which nothing follows (`FieldUse.ignored`).
    package internal(set) var ignored: [String] = []
    /// Keys of `push_channel.ios` that stand beside `aps` in APNs's body.
    package internal(set) var topLevelKeys: [String] = []
    /// Places in `msg_list` (0 for a single message) whose transmission does not fit beside the alert: their APNs bodies
    /// have the ids alone.
    package internal(set) var idsOnly: [Int] = []

    package init() {}

    /// Reads what a `push_channel.ios` object has besides the documented keys, which a body for APNs carries or not.
    mutating func note(_ ios: JSONValue, isCarried: Bool) {
        guard ios.kind == .object else { return }
        for (key, value) in ios.members where APNsRenderer.place(of: key, value) == .topLevel {
            let bytes = key.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
            let name = "push_channel.ios." + String(decoding: bytes.prefix(Limits.notedKeyByteCount), as: UTF8.self)
            if isCarried { Self.add(name, to: &topLevelKeys) } else { addIgnored(name) }
        }
    }

    mutating func addIgnored(_ name: String) { Self.add(name, to: &ignored) }

    private static func add(_ name: String, to names: inout [String]) {
        if names.count < Limits.notedKeyCount, !names.contains(name) { names.append(name) }
    }

    /// The notes for an answer's `longwire`.
    var members: JSONObject {
        ["ignored": ignored.unlessEmpty, "topLevelKeys": topLevelKeys.unlessEmpty, "idsOnly": idsOnly.unlessEmpty]
    }
}
