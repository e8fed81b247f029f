internal import JSON
internal import TextForms

/// The live channel's payload on its way into an APNs body, in the form that the app's template names.
struct CarriedTransmission {
    let bytes: UnsafeRawBufferPointer
    let form: APNsTemplate.Transmission
    /// For the members of a JSON object; no value of another document may come from it.
    let parser: JSONParser

    /// Writes what the body carries, after the other top-level keys.
    ///
    /// - Parameters:
    ///   - ios: the publisher's keys, which win over the members of the same names.
    ///   - writer: the body's.
    /// - Returns: what stays out of the body; `nil`: nothing.
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

    /// - Returns: false when a member stays out.
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
            // Of equal keys the first counts, as in a request.
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
