/// Notes about a request, for its answer; they are not errors, but may indicate mistakes.
internal import JSON
package import Wire

package struct RequestNotes: Sendable, Equatable {
    /// Ignored fields (`FieldUse.ignored`).
    package internal(set) var ignored: [String] = []
    /// Keys of `push_channel.ios` that are copied beside `aps` into the APNs body.
    package internal(set) var topLevelKeys: [String] = []
    /// The indices in `msg_list` (0 for a single message) whose transmission does not fit beside the alert; their APNs bodies
    /// have only the ids.
    package internal(set) var idsOnly: [Int] = []
    /// The indices in `msg_list` (0 for a single message) that only a vendor of Android or HarmonyOS sends, and not all of them.
    package internal(set) var lostParts: [Int] = []
    /// Contents that a vendor would refuse, at most one for each vendor, with their index in `msg_list`.
    package internal(set) var refusedBy: [VendorChannel: VendorRefusal] = [:]

    /// The number of fields so far that no table has.
    var unknownCount = 0

    package struct VendorRefusal: Sendable, Equatable {
        var itemIndex: Int
        var reason: String
    }

    package init() {}

    /// Notes the undocumented keys of a `push_channel.ios` object; `isCarried` means that the APNs body contains them.
    mutating func note(_ ios: JSONValue, isCarried: Bool) {
        guard ios.kind == .object else { return }
        for (key, value) in ios.members where APNsRenderer.place(of: key, value) == .topLevel {
            let bytes = key.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
            let name = "push_channel.ios." + String(decoding: bytes.prefix(Limits.notedKeyByteCount), as: UTF8.self)
            if isCarried { Self.add(name, to: &topLevelKeys) } else { addIgnored(name) }
        }
    }

    mutating func note(_ vendor: VendorChannel, _ reason: String, itemIndex: Int) {
        if refusedBy[vendor] == nil { refusedBy[vendor] = VendorRefusal(itemIndex: itemIndex, reason: reason) }
    }

    mutating func addIgnored(_ name: String) { Self.add(name, to: &ignored) }

    private static func add(_ name: String, to names: inout [String]) {
        if names.count < Limits.notedKeyCount, !names.contains(name) { names.append(name) }
    }

    var members: JSONObject {
        let vendors = refusedBy.sorted { $0.key.rawValue < $1.key.rawValue }.map { vendor, refusal in
            ["vendor": vendor.name, "index": refusal.itemIndex, "reason": refusal.reason] as JSONObject
        }
        return [
            "ignored": ignored.unlessEmpty, "topLevelKeys": topLevelKeys.unlessEmpty, "idsOnly": idsOnly.unlessEmpty,
            "lostParts": lostParts.unlessEmpty, "refusedBy": vendors.unlessEmpty,
        ]
    }
}
