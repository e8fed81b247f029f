internal import Wire

/// The aliases and tags of a device, stored after the tokens in its row.
struct DeviceNames: Equatable {
    /// The version for at most one alias without a type, as most devices have.
    static let version: UInt8 = 1
    /// The version for several aliases with types.
    static let typedVersion: UInt8 = 2
    /// The number of given-up aliases remembered individually; further ones raise `givenUpFloor`.
    static let givenUpLimit = 16

    struct GivenUp: Equatable {
        var alias: UInt64
        var stamp: GatewayTime
    }

    struct HeldAlias: Equatable {
        var name: AliasName
        var stamp: GatewayTime
    }

    /// At most one alias per type.
    private(set) var aliases: [HeldAlias] = []
    /// The aliases that the device gave up recently, with the stamp up to which their reservations were released.
    ///
    /// A reservation with this stamp or an earlier one may still arrive. The device must refuse it, because the alias's row no
    /// longer has the device's entry.
    private(set) var givenUp: [GivenUp] = []
    /// Reservations with a stamp up to this value are refused for any alias, because they may have been released.
    private(set) var givenUpFloor: GatewayTime = 0
    var tags: [TagName] = []
    /// The day of the last tag replacement (days since 1970, UTC), and the number of replacements on that day.
    var replacementDay: UInt32 = 0
    var replacementCount: UInt16 = 0

    init() {}

    var isEmpty: Bool {
        aliases.isEmpty && tags.isEmpty && replacementDay == 0 && givenUp.isEmpty && givenUpFloor == 0
    }

    func alias(ofType type: UInt64) -> HeldAlias? { aliases.first { $0.name.type == type } }

    func held(_ name: AliasName) -> HeldAlias? { aliases.first { $0.name == name } }

    /// Adds an alias; the caller must have given up the device's previous alias of the same type.
    mutating func take(_ name: AliasName, stamp: GatewayTime) {
        aliases.removeAll { $0.name.type == name.type }
        aliases.append(HeldAlias(name: name, stamp: stamp))
    }

    /// Gives up the alias of a type, and forgets aliases given up before `oldest`.
    mutating func giveUpAlias(ofType type: UInt64, forgettingBefore oldest: GatewayTime) {
        let given = alias(ofType: type)
        givenUp.removeAll { $0.stamp < oldest || $0.alias == given?.name.low }
        if givenUpFloor < oldest { givenUpFloor = 0 }
        if let given { givenUp.append(GivenUp(alias: given.name.low, stamp: given.stamp)) }
        if givenUp.count > Self.givenUpLimit { givenUpFloor = max(givenUpFloor, givenUp.removeFirst().stamp) }
        aliases.removeAll { $0.name.type == type }
    }

    /// Returns whether a reservation of this alias was released before it reached the device.
    func isOvertaken(_ name: AliasName, stamp: GatewayTime) -> Bool {
        stamp <= givenUpFloor || givenUp.contains { $0.alias == name.low && stamp <= $0.stamp }
    }

    var byteCount: Int {
        guard !isEmpty else { return 0 }
        let aliasCount = aliases.reduce(0) {
            $0 + (isTyped ? 32 : 24) + RowWriter.byteCount(text: $1.name.text)
        }
        return tags.reduce(1 + 1 + aliasCount + 8 + 1 + givenUp.count * 16 + 4 + 2 + 2) {
            $0 + 8 + RowWriter.byteCount(text: $1.text)
        }
    }

    private var isTyped: Bool { aliases.contains { $0.name.type != 0 } }

    func write(_ writer: inout RowWriter) {
        guard !isEmpty else { return }
        writer.put(isTyped ? Self.typedVersion : Self.version)
        writer.put(UInt8(truncatingIfNeeded: aliases.count))
        for alias in aliases {
            writer.put(alias.name.high)
            writer.put(alias.name.low)
            if isTyped { writer.put(alias.name.type) }
            writer.put(alias.stamp)
            writer.put(text: alias.name.text)
        }
        writer.put(givenUpFloor)
        writer.put(UInt8(truncatingIfNeeded: givenUp.count))
        for item in givenUp {
            writer.put(item.alias)
            writer.put(item.stamp)
        }
        writer.put(replacementDay)
        writer.put(replacementCount)
        writer.put(UInt16(truncatingIfNeeded: tags.count))
        for tag in tags {
            writer.put(tag.digest)
            writer.put(text: tag.text)
        }
    }

    /// Reads to the end of the row; no bytes mean no names, and invalid bytes give `nil`.
    init?(_ reader: inout RowReader) {
        if reader.isAtEnd { return }
        guard let version = reader.next(UInt8.self), (Self.version...Self.typedVersion).contains(version),
            let aliasCount = reader.next(UInt8.self), version == Self.typedVersion || aliasCount <= 1
        else { return nil }
        for _ in 0..<aliasCount {
            guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self),
                let type = version == Self.typedVersion ? reader.next(UInt64.self) : 0,
                let stamp = reader.next(Int64.self), let text = reader.nextText(), alias(ofType: type) == nil
            else { return nil }
            aliases.append(
                HeldAlias(name: AliasName(high: high, low: low, type: type, text: text), stamp: stamp))
        }
        guard let floor = reader.next(Int64.self), let givenUpCount = reader.next(UInt8.self) else { return nil }
        givenUpFloor = floor
        for _ in 0..<givenUpCount {
            guard let alias = reader.next(UInt64.self), let stamp = reader.next(Int64.self) else { return nil }
            givenUp.append(GivenUp(alias: alias, stamp: stamp))
        }
        guard let day = reader.next(UInt32.self), let count = reader.next(UInt16.self),
            let tagCount = reader.next(UInt16.self)
        else { return nil }
        (replacementDay, replacementCount) = (day, count)
        for _ in 0..<tagCount {
            guard let digest = reader.next(UInt64.self), let text = reader.nextText() else { return nil }
            tags.append(TagName(digest: digest, text: text))
        }
        guard reader.isAtEnd else { return nil }
    }
}
