public import Wire

/// What one bucket counted for one app on one UTC day, in absolute numbers.
public struct CountersRow: Equatable, Sendable {
    static let version: UInt8 = 1
    package static let byteCount = 16 + 8 * 10

    public var app: AppKey
    /// Days since 1970-01-01.
    public var day: UInt32
    public var accepted: UInt64 = 0
    /// By `FinalState`'s raw value, less one.
    public var finals = InlineArray<9, UInt64>(repeating: 0)

    public init(app: AppKey, day: UInt32) { (self.app, self.day) = (app, day) }

    /// - Returns: `nil` for bytes that are no counters row of a known version.
    public init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, reader.next(byteCount: 3) != nil,
            let day = reader.next(UInt32.self), let app = reader.next(UInt64.self),
            let accepted = reader.next(UInt64.self)
        else { return nil }
        self.init(app: AppKey(app), day: day)
        self.accepted = accepted
        for index in 0..<9 {
            guard let value = reader.next(UInt64.self) else { return nil }
            finals[index] = value
        }
    }

    package func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = RowWriter(bytes)
        writer.put(Self.version)
        writer.put(UInt8(0))
        writer.put(UInt16(0))
        writer.put(day)
        writer.put(app.word)
        writer.put(accepted)
        for index in 0..<9 { writer.put(finals[index]) }
    }

    public subscript(_ state: FinalState) -> UInt64 { finals[Int(state.rawValue) - 1] }

    public var ended: UInt64 {
        var sum: UInt64 = 0
        for index in 0..<9 { sum &+= finals[index] }
        return sum
    }

    public static func == (left: CountersRow, right: CountersRow) -> Bool {
        guard left.app == right.app, left.day == right.day, left.accepted == right.accepted else { return false }
        for index in 0..<9 where left.finals[index] != right.finals[index] { return false }
        return true
    }

    static func day(of time: GatewayTime) -> UInt32 { UInt32(truncatingIfNeeded: max(0, time) / 86_400_000) }

    static func key(_ bucket: Bucket, app: AppKey, day: UInt32) -> StoreKey {
        StoreKey(bucket, .counters, ownerHigh: app.word, ownerLow: UInt64(day))
    }
}
