internal import JSON
internal import TextForms

/// The live channel's payload for an APNs body, in the form set by the app's template.
struct CarriedTransmission {
    let bytes: UnsafeRawBufferPointer
    let form: APNsTemplate.Transmission
    /// The parser for the members of a JSON object; it must not be the parser of another document in use.
    let parser: JSONParser

    /// Writes the payload after the other top-level keys.
    ///
    /// - Parameters:
    ///   - ios: The publisher's keys, which take precedence over members of the same names.
    ///   - writer: The body's writer.
    /// - Returns: The omitted part; `nil` if the body is complete.
    func write(beside ios: JSONValue?, to writer: inout JSONWriter) -> VendorOmission? {
        guard form != .none else { return .template }
        guard scalarCount(bytes) != nil else { return .noText }
        if form == .members, let object = try? parser.parse(bytes), object.kind == .object, !parser.hasUnreadable {
            return writeMembers(object, beside: ios, to: &writer) ? nil : .members
        }
        writer.key("payload")
        writer.string(bytes: bytes)
        return nil
    }

    /// - Returns: `false` if a member was omitted.
    private func writeMembers(_ object: JSONValue, beside ios: JSONValue?, to writer: inout JSONWriter) -> Bool {
        var isWhole = true
        var taken: Set<[UInt8]> = []
        if let ios {
            for (key, value) in ios.members where APNsRenderer.place(of: key, value) == .topLevel {
                taken.insert(key.stringBytes.map(Array.init) ?? [])
            }
        }
        for (key, value) in object.members {
            let name = key.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
            // The first of several equal keys is used, as in a request.
            guard !APNsRenderer.isReserved(key), taken.insert(Array(name)).inserted else {
                isWhole = false
                continue
            }
            writer.key(bytes: name)
            writer.value(value)
        }
        return isWhole
    }
}
