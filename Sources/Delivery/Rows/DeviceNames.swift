internal import Wire

/// What a device is called by its app: its alias and its tags, as they stand behind the tokens in its row.
struct DeviceNames: Equatable {
    static let version: UInt8 = 1
    /// Remembered one by one; a device whose alias changes faster is held to the floor.
    static let givenUpLimit = 16

    struct GivenUp: Equatable {
        var alias: UInt64
        var stamp: GatewayTime
    }

    var alias: AliasName?
    /// The stamp of the reservation that the alias was set with.
    var aliasStamp: GatewayTime = 0
    /// Aliases that the device gave up of late, with the stamp up to which their reservations were released.
    ///
    /// An earlier reservation of one of them, still on its way here, comes too late: its entry is gone.
    private(set) var givenUp: [GivenUp] = []
    /// Stamps up to this may have been given up, whatever the alias.
    private(set) var givenUpFloor: GatewayTime = 0
    var tags: [TagName] = []
    /// The day (UTC, since 1970) on which the tags were last replaced, and how often on it.
    var replacementDay: UInt32 = 0
    var replacementCount: UInt16 = 0

    init() {}

    var isEmpty: Bool {
        alias == nil && tags.isEmpty && replacementDay == 0 && givenUp.isEmpty && givenUpFloor == 0
    }

    /// Its alias is released up to `aliasStamp`; what was given up before `oldest` is of no interest any more.
    mutating func giveUpAlias(forgettingBefore oldest: GatewayTime) {
        givenUp.removeAll { $0.stamp < oldest || $0.alias == alias?.low }
        if givenUpFloor < oldest { givenUpFloor = 0 }
        if let alias { givenUp.append(GivenUp(alias: alias.low, stamp: aliasStamp)) }
        if givenUp.count > Self.givenUpLimit { givenUpFloor = max(givenUpFloor, givenUp.removeFirst().stamp) }
        (alias, aliasStamp) = (nil, 0)
    }

    /// A reservation of this alias was released before it came here.
    func isOvertaken(_ name: AliasName, stamp: GatewayTime) -> Bool {
        stamp <= givenUpFloor || givenUp.contains { $0.alias == name.low && stamp <= $0.stamp }
    }

    var byteCount: Int {
        guard !isEmpty else { return 0 }
        let aliasCount = alias.map { 24 + RowWriter.byteCount(text: $0.text) } ?? 0
        return tags.reduce(1 + 1 + aliasCount + 8 + 1 + givenUp.count * 16 + 4 + 2 + 2) {
            $0 + 8 + RowWriter.byteCount(text: $1.text)
        }
    }

    func write(_ writer: inout RowWriter) {
        guard !isEmpty else { return }
        writer.put(Self.version)
        writer.put(UInt8(alias == nil ? 0 : 1))
        if let alias {
            writer.put(alias.high)
            writer.put(alias.low)
            writer.put(aliasStamp)
            writer.put(text: alias.text)
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

    /// Reads to the end of the row; nothing there means no names, `nil` bytes that are none.
    init?(_ reader: inout RowReader) {
        if reader.isAtEnd { return }
        guard reader.next(UInt8.self) == Self.version, let hasAlias = reader.next(UInt8.self) else { return nil }
        if hasAlias != 0 {
            guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self),
                let stamp = reader.next(Int64.self), let text = reader.nextText()
            else { return nil }
            (alias, aliasStamp) = (AliasName(high: high, low: low, text: text), stamp)
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
