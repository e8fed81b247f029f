// Writes a publisher's `aps` by Apple's rules (module APNs).

internal import APNs
internal import Delivery
internal import JSON

/// Writes a publisher's `aps` with values in the forms that Apple accepts, and without empty values.
struct APSWriter {
    let isActivity: Bool
    /// Whether the gateway writes the badge, so that the publisher's is ignored.
    let hasBadge: Bool
    let hasMedia: Bool
    /// Whether the publisher sets `mutable-content`.
    private(set) var namesMutable = false
    private var facts = BodyFacts()

    init(isActivity: Bool, hasBadge: Bool, hasMedia: Bool) {
        (self.isActivity, self.hasBadge, self.hasMedia) = (isActivity, hasBadge, hasMedia)
        facts.isObject = true
        facts.hasBadge = hasBadge
    }

    /// Whether the notification shows, plays or marks something on the phone.
    var isNoticed: Bool { facts.hasAlert || facts.hasSound || facts.hasBadge }
    var isContentAvailable: Bool { facts.isContentAvailable }

    /// Writes the members of `aps`; the first of several equal keys is used.
    ///
    /// - Throws: An error for a value that Apple would refuse or ignore, and that cannot be converted.
    mutating func write(_ aps: JSONValue, hasAlert: Bool, to writer: inout JSONWriter) throws(GetuiFault) {
        let keys = isActivity ? BodyKey.ofActivity : BodyKey.ofNotification
        var taken = TakenKeys()
        for (name, value) in aps.members {
            let place = keys.firstIndex { name.equals($0.name) }
            guard taken.insert(name, at: place) else { continue }
            guard let place else {
                Self.writeAsGiven(name, value, to: &writer)
                continue
            }
            if name.equals("alert"), !hasAlert { continue }
            if name.equals("badge"), hasBadge { continue }
            if name.equals("mutable-content") {
                // Attachments need `mutable-content`, so the gateway writes it. Otherwise the publisher's value is used.
                if hasMedia { continue }
                namesMutable = !value.isEmpty
            }
            let sent = try Self.write(keys[place], value, within: "aps", to: &writer)
            if let sent { facts.note(keys[place], sent) }
        }
    }

    private struct TakenKeys {
        private var known: UInt64 = 0
        private var others: Set<[UInt8]> = []

        /// Adds a key with its index among Apple's keys.
        ///
        /// - Returns: `false` if the key was there before.
        mutating func insert(_ name: JSONValue, at place: Int?) -> Bool {
            guard let place else { return others.insert(name.stringBytes.map(Array.init) ?? []).inserted }
            let bit = UInt64(1) << UInt64(place)
            defer { known |= bit }
            return known & bit == 0
        }
    }

    private static func writeAsGiven(_ name: JSONValue, _ value: JSONValue, to writer: inout JSONWriter) {
        guard !value.isNull else { return }
        writer.key(bytes: name.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0))
        writer.value(value)
    }

    /// Writes a member in the form that Apple accepts for its key.
    ///
    /// - Returns: The written value; `nil` if it was omitted.
    private static func write(
        _ key: BodyKey, _ value: JSONValue, within path: @autoclosure () -> String, to writer: inout JSONWriter
    ) throws(GetuiFault) -> BodyValue? {
        let given = BodyValue(value)
        let reading = key.form.reading(of: given)
        if case .leftOut = reading { return nil }
        writer.key(key.name)
        try write(value, reading, "\(path()).\(key.name)", to: &writer)
        return reading.sent(for: given)
    }

    private static func write(
        _ value: JSONValue, _ reading: BodyReading, _ path: @autoclosure () -> String, to writer: inout JSONWriter
    ) throws(GetuiFault) {
        switch reading {
        case .asGiven: writer.value(value)
        case .integer(let number): writer.integer(number)
        case .number(let number): writer.double(number)
        case .text(let text): writer.string(text)
        case .emptyObject: writer.raw("{}")
        case .leftOut: break
        case .refused(let wanted): throw .invalid(path(), "\(wanted)")
        case .members(let keys):
            writer.beginObject()
            var taken = TakenKeys()
            for (name, member) in value.members {
                let place = keys.firstIndex { name.equals($0.name) }
                guard taken.insert(name, at: place) else { continue }
                if let place {
                    _ = try write(keys[place], member, within: path(), to: &writer)
                } else {
                    writeAsGiven(name, member, to: &writer)
                }
            }
            writer.endObject()
        case .elements(let form):
            writer.beginArray()
            for element in value.elements {
                let reading = form.reading(of: BodyValue(element))
                if case .leftOut = reading { throw .invalid(path(), "a list of texts") }
                try write(element, reading, path(), to: &writer)
            }
            writer.endArray()
        }
    }

    /// Refuses a body that Apple would refuse or ignore.
    func check(_ type: Delivery.PushType, _ kind: Delivery.TokenKind) throws(GetuiFault) {
        if let breach = RequestRules.breach(of: facts, type.apple, kind.apple) {
            throw .invalid("aps", "\(breach.advice)")
        }
    }
}

func checkCollapseID(_ id: UnsafeRawBufferPointer) throws(GetuiFault) {
    guard id.count <= Bounds.collapseIDByteCount else {
        throw .size("apns-collapse-id", "at most \(Bounds.collapseIDByteCount) bytes")
    }
    if let breach = RequestRules.breach(ofCollapseID: id) { throw .invalid("apns-collapse-id", "\(breach.advice)") }
}

func bodyByteLimit(_ type: Delivery.PushType) -> Int { Bounds.bodyByteCount(of: type.apple) }

extension Delivery.PushType {
    fileprivate var apple: APNs.PushType {
        switch self {
        case .alert: .alert
        case .background: .background
        case .voip: .voip
        case .liveActivity: .liveactivity
        }
    }
}

extension Delivery.TokenKind {
    fileprivate var apple: APNs.TokenKind {
        switch self {
        case .alert: .alert
        case .voip: .voip
        case .liveActivity: .liveActivity
        case .liveActivityStart: .liveActivityStart
        }
    }
}
