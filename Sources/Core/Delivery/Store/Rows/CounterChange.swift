internal import Wire

/// The increments of one batch to a counters row: the amounts other than zero by field number.
///
/// Stored as three bytes with one bit per field, then the amounts in field order as varints (7 bits per byte).
package struct CounterChange: Equatable, Sendable {
    /// The number of fields: accepted, the nine final states, and the cases of `Extra`.
    static let fieldCount = 1 + 9 + 12
    /// The size of the largest change, with amounts of at most 65,535.
    package static let largestByteCount = 3 + 3 * fieldCount

    private var fields: UInt32 = 0
    private var amounts = InlineArray<22, UInt16>(repeating: 0)

    package init() {}

    package var isEmpty: Bool { fields == 0 }

    mutating func countAccepted(blocks: UInt16) {
        add(0)
        count(CountersRow.Extra.acceptedBlocks, by: blocks)
    }

    mutating func count(_ state: FinalState) { add(Int(state.rawValue)) }
    mutating func count(_ extra: CountersRow.Extra, by amount: UInt16 = 1) { add(10 + extra.rawValue, amount) }
    mutating func count(_ reach: CountersRow.Reach) {
        if reach.contains(.sent) { count(CountersRow.Extra.sent) }
        if reach.contains(.alerted) { count(CountersRow.Extra.alerted) }
        if reach.contains(.reached) { count(CountersRow.Extra.reached) }
    }

    private mutating func add(_ field: Int, _ amount: UInt16 = 1) {
        guard amount > 0 else { return }
        fields |= 1 << UInt32(field)
        amounts[field] &+= amount
    }

    // MARK: Stored

    package var byteCount: Int {
        var (count, rest) = (3, fields)
        while rest != 0 {
            count += Self.byteCount(amounts[rest.trailingZeroBitCount])
            rest &= rest - 1
        }
        return count
    }

    /// Fills exactly `byteCount` bytes.
    package func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(UInt16(truncatingIfNeeded: fields))
        writer.put(UInt8(truncatingIfNeeded: fields >> 16))
        var rest = fields
        while rest != 0 {
            var amount = amounts[rest.trailingZeroBitCount]
            for _ in 1..<Self.byteCount(amount) {
                writer.put(UInt8(truncatingIfNeeded: amount) | 128)
                amount >>= 7
            }
            writer.put(UInt8(truncatingIfNeeded: amount))
            rest &= rest - 1
        }
    }

    /// - Returns: `nil` for invalid bytes.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard let low = reader.next(UInt16.self), let high = reader.next(UInt8.self) else { return nil }
        fields = UInt32(low) | UInt32(high) << 16
        guard fields >> UInt32(Self.fieldCount) == 0 else { return nil }
        var rest = fields
        while rest != 0 {
            var amount: UInt32 = 0
            for place in UInt32(0)..<3 {
                guard let byte = reader.next(UInt8.self) else { return nil }
                amount |= UInt32(byte & 127) << (7 * place)
                if byte & 128 == 0 { break }
                if place == 2 { return nil }
            }
            guard let amount = UInt16(exactly: amount), amount > 0 else { return nil }
            amounts[rest.trailingZeroBitCount] = amount
            rest &= rest - 1
        }
        guard reader.isAtEnd else { return nil }
    }

    private static func byteCount(_ amount: UInt16) -> Int { amount < 1 << 7 ? 1 : amount < 1 << 14 ? 2 : 3 }

    // MARK: Adding

    /// Adds the amounts in place to a row of `CountersRow.byteCount` bytes of the current version.
    package func add(to row: UnsafeMutableRawBufferPointer) {
        var rest = fields
        while rest != 0 {
            let field = rest.trailingZeroBitCount
            let amount = amounts[field]
            if field < 10 {
                let offset = 16 + 8 * field
                let value = unsafe UInt64(littleEndian: row.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
                unsafe row.storeBytes(of: (value &+ UInt64(amount)).littleEndian, toByteOffset: offset, as: UInt64.self)
            } else {
                let offset = 96 + 4 * (field - 10)
                let value = unsafe UInt32(littleEndian: row.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
                unsafe row.storeBytes(of: (value &+ UInt32(amount)).littleEndian, toByteOffset: offset, as: UInt32.self)
            }
            rest &= rest - 1
        }
    }

    /// Returns a stored row plus the amounts; an absent row counts as zeros.
    package func added(to row: [UInt8]?, _ key: StoreKey) -> [UInt8] {
        var sum = CountersRow.current(row, key)
        unsafe sum.withUnsafeMutableBytes { unsafe add(to: $0) }
        return sum
    }

    package static func == (left: CounterChange, right: CounterChange) -> Bool {
        guard left.fields == right.fields else { return false }
        for field in 0..<fieldCount where left.amounts[field] != right.amounts[field] { return false }
        return true
    }
}
