package import Wire

/// The counters of one bucket, app and UTC day as absolute numbers; a folded row has the sums over all buckets.
///
/// A row whose *part* is not 0 counts the alerts of one vendor except Apple, and the user events on these alerts. The row of part
/// 0 counts all vendors' alerts, so Apple's figures are the difference. An app without other vendors has only rows of part 0.
package struct CountersRow: Equatable, Sendable {
    /// The counters besides acceptances and ends.
    ///
    /// Raw values are positions in the row and never reused.
    ///
    /// A send or an alert counts when it happens, on the day of the message's acceptance (see `CounterTable.count`). A final
    /// state or a user's event counts on its own day.
    package enum Extra: Int, CaseIterable, Sendable {
        /// Messages sent on the live channel; messages accepted by a vendor; messages with at least one of the two.
        case sent = 0, alerted, reached
        /// Shown and clicked as reported by clients: on the live channel, and for the vendor's alerts.
        case shownLive, clickedLive, shownVendor, clickedVendor
        /// Devices that registered, that connected on the day, and that were removed.
        case registered, active, collected
        /// The blocks of messages at acceptance and at their end (`QueuedBlocks`); both sums wrap around.
        case acceptedBlocks, endedBlocks
    }

    /// The counters that a message's send or alert increments.
    struct Reach: OptionSet {
        let rawValue: UInt8
        static let sent = Reach(rawValue: 1)
        static let alerted = Reach(rawValue: 2)
        static let reached = Reach(rawValue: 4)
    }

    mutating func countAccepted(blocks: UInt16) {
        accepted &+= 1
        extra[.acceptedBlocks] &+= UInt32(blocks)
    }

    mutating func count(_ reach: Reach) {
        if reach.contains(.sent) { extra[.sent] &+= 1 }
        if reach.contains(.alerted) { extra[.alerted] &+= 1 }
        if reach.contains(.reached) { extra[.reached] &+= 1 }
    }

    package struct Extras: Equatable, Sendable {
        var values = InlineArray<12, UInt32>(repeating: 0)
        package subscript(_ extra: Extra) -> UInt32 {
            get { values[extra.rawValue] }
            set { values[extra.rawValue] = newValue }
        }
        package static func == (left: Extras, right: Extras) -> Bool {
            Extra.allCases.allSatisfy { left[$0] == right[$0] }
        }
    }

    static let version: UInt8 = 1
    package static let byteCount = 16 + 8 * 10 + 4 * 12

    package var app: AppKey
    /// The number of days since 1970-01-01.
    package var day: UInt32
    /// 0, or the nibble of a vendor (`VendorChannel.nibble`).
    package var part: UInt8 = 0
    package var accepted: UInt64 = 0
    /// The number of ended messages by `FinalState`, at the index `rawValue` − 1.
    package var finals = InlineArray<9, UInt64>(repeating: 0)
    package var extra = Extras()

    package init(app: AppKey, day: UInt32, part: UInt8 = 0) { (self.app, self.day, self.part) = (app, day, part) }

    package init(_ day: CounterDay) { self.init(app: day.app, day: day.day, part: day.part) }

    package var counterDay: CounterDay { CounterDay(app: app, day: day, part: part) }

    /// - Returns: `nil` unless the bytes are a counters row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let part = reader.next(UInt8.self),
            reader.next(UInt16.self) != nil,
            let day = reader.next(UInt32.self), let app = reader.next(UInt64.self),
            let accepted = reader.next(UInt64.self)
        else { return nil }
        self.init(app: AppKey(app), day: day, part: part)
        self.accepted = accepted
        for index in 0..<9 {
            guard let value = reader.next(UInt64.self) else { return nil }
            finals[index] = value
        }
        for index in 0..<12 {
            guard let value = reader.next(UInt32.self) else { return nil }
            extra.values[index] = value
        }
    }

    /// Returns a stored row in the form that `CounterChange.add(to:)` requires; zeros if the row is absent or unreadable.
    package static func current(_ bytes: [UInt8]?, _ key: StoreKey) -> [UInt8] {
        if let bytes, bytes.count == byteCount, bytes[0] == version { return bytes }
        let known = bytes.flatMap { unsafe $0.withUnsafeBytes { unsafe CountersRow($0) } }
        let row =
            known
            ?? CountersRow(
                app: AppKey(key.ownerHigh), day: UInt32(truncatingIfNeeded: key.ownerLow),
                part: UInt8(truncatingIfNeeded: key.ownerLow >> 32))
        var current = [UInt8](repeating: 0, count: byteCount)
        unsafe current.withUnsafeMutableBytes { unsafe row.write(into: $0) }
        return current
    }

    package func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(part)
        writer.put(UInt16(0))
        writer.put(day)
        writer.put(app.word)
        writer.put(accepted)
        for index in 0..<9 { writer.put(finals[index]) }
        for index in 0..<12 { writer.put(extra.values[index]) }
    }

    package subscript(_ state: FinalState) -> UInt64 { finals[Int(state.rawValue) - 1] }

    mutating func add(_ other: CountersRow) {
        accepted &+= other.accepted
        for index in 0..<9 { finals[index] &+= other.finals[index] }
        for index in 0..<12 { extra.values[index] &+= other.extra.values[index] }
    }

    package var ended: UInt64 {
        var sum: UInt64 = 0
        for index in 0..<9 { sum &+= finals[index] }
        return sum
    }

    var holdings: CountedHoldings {
        CountedHoldings(
            messages: Int64(bitPattern: accepted &- ended),
            blocks: QueuedBlocks.difference(extra[.acceptedBlocks], extra[.endedBlocks]),
            devices: Int64(extra[.registered]) - Int64(extra[.collected]))
    }

    package static func == (left: CountersRow, right: CountersRow) -> Bool {
        guard left.counterDay == right.counterDay, left.accepted == right.accepted,
            left.extra == right.extra
        else { return false }
        for index in 0..<9 where left.finals[index] != right.finals[index] { return false }
        return true
    }

    package static func day(of time: GatewayTime) -> UInt32 { UInt32(truncatingIfNeeded: max(0, time) / 86_400_000) }

    static func key(_ bucket: Bucket, app: AppKey, day: UInt32) -> StoreKey {
        key(bucket, CounterDay(app: app, day: day))
    }

    static func key(_ bucket: Bucket, _ day: CounterDay) -> StoreKey {
        StoreKey(bucket, .counters, ownerHigh: day.app.word, ownerLow: day.item)
    }
}
