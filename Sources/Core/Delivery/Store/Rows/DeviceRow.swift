internal import Wire

/// The variable-length data of a device: its secret, tokens and names.
///
/// Memory keeps the profile as the bytes of the row because most devices are rarely used. `DeviceToken` has the rules for tokens.
package struct DeviceProfile {
    package var secret: [UInt8]
    /// The tokens, last registered last.
    var tokens: [DeviceToken]
    /// The stored bytes of tokens whose channel or kind this version does not know.
    private var foreignTokens: [[UInt8]] = []
    var foreignCount: Int { foreignTokens.count }
    mutating func forgetForeign() { foreignTokens = [] }
    /// Stored after the tokens, behind a mark byte, if present.
    var vendorFailure: VendorFailure?
    /// Stored after `vendorFailure`, behind a mark byte, if the device has attributes.
    var attributes: AttributesMark?
    /// Stored last, if present.
    var names = DeviceNames()

    package var byteCount: Int {
        2 + secret.count + names.byteCount + (vendorFailure?.byteCount ?? 0)
            + (attributes == nil ? 0 : AttributesMark.byteCount) + foreignTokens.reduce(0) { $0 + $1.count }
            + tokens.reduce(0) { $0 + $1.byteCount }
    }

    package func write(_ writer: inout RowWriter) {
        writer.put(UInt8(truncatingIfNeeded: secret.count))
        writer.put(secret)
        writer.put(UInt8(truncatingIfNeeded: foreignTokens.count + tokens.count))
        for token in foreignTokens { writer.put(token) }
        for token in tokens { token.write(&writer) }
        vendorFailure?.write(&writer)
        attributes?.write(&writer)
        names.write(&writer)
    }

    init(secret: [UInt8], tokens: [DeviceToken]) { (self.secret, self.tokens) = (secret, tokens) }

    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard let secretCount = reader.next(UInt8.self), let secret = reader.next(byteCount: Int(secretCount)),
            let tokenCount = reader.next(UInt8.self)
        else { return nil }
        self.init(secret: secret.array, tokens: [])
        for _ in 0..<tokenCount {
            switch DeviceToken.read(&reader) {
            case .token(let token): tokens.append(token)
            case .foreign(let bytes): foreignTokens.append(bytes.array)
            case nil: return nil
            }
        }
        if reader.skip(VendorFailure.mark) {
            guard let failure = VendorFailure(&reader) else { return nil }
            vendorFailure = failure
        }
        if reader.skip(AttributesMark.mark) {
            guard let attributes = AttributesMark(&reader) else { return nil }
            self.attributes = attributes
        }
        guard let names = DeviceNames(&reader) else { return nil }
        self.names = names
    }
}

package struct DeviceRow {
    static let version: UInt8 = 1
    package static let headerByteCount = 93

    struct Flags: OptionSet {
        let rawValue: UInt8
        static let pushModeOff = Flags(rawValue: 1)
        static let replayOpened = Flags(rawValue: 2)
        /// The device reconnected after its registration, so it is no longer removed as unused.
        static let established = Flags(rawValue: 4)
        static let blacklisted = Flags(rawValue: 8)
        /// The device lost a token to another device and has registered none since.
        static let tokenMoved = Flags(rawValue: 16)
    }

    var flags: Flags = []
    var badge: Int32 = 0
    var app: AppKey
    var generation: UInt64 = 0
    var lastTimestamp: UInt64 = 0
    /// The last reserved sequence.
    var reservedSequence: UInt64 = 0
    var queueEpoch: UInt64 = 0
    var registeredAt: GatewayTime = 0
    var lastSeenAt: GatewayTime = 0
    /// The number up to which all broadcasts are settled for the device.
    ///
    /// `broadcastEvaluatedBeyond` is the distance from this number to the last evaluated one.
    var broadcastSettled: UInt64 = 0
    var broadcastEvaluatedBeyond: UInt16 = 0
    /// See `Device.badgeRound`.
    var badgeRound: UInt8 = 0
    var dropped = DroppedCounts()

    package func write(profile: UnsafeRawBufferPointer, into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(flags.rawValue)
        writer.put(broadcastEvaluatedBeyond)
        writer.put(badge)
        writer.put(app.word)
        writer.put(generation)
        writer.put(lastTimestamp)
        writer.put(reservedSequence)
        writer.put(queueEpoch)
        writer.put(registeredAt)
        writer.put(lastSeenAt)
        writer.put(dropped.expired)
        writer.put(dropped.collapsed)
        writer.put(dropped.overflowed)
        writer.put(dropped.revoked)
        writer.put(dropped.failed)
        writer.put(broadcastSettled)
        writer.put(badgeRound)
        unsafe writer.put(profile)
    }

    /// - Returns: `nil` unless the bytes are a device row of a known version.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> (row: DeviceRow, profile: UnsafeRawBufferPointer)? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let flags = reader.next(UInt8.self),
            let evaluatedBeyond = reader.next(UInt16.self), let badge = reader.next(Int32.self),
            let app = reader.next(UInt64.self),
            let generation = reader.next(UInt64.self), let lastTimestamp = reader.next(UInt64.self),
            let reservedSequence = reader.next(UInt64.self), let queueEpoch = reader.next(UInt64.self),
            let registeredAt = reader.next(Int64.self), let lastSeenAt = reader.next(Int64.self),
            let expired = reader.next(UInt32.self), let collapsed = reader.next(UInt32.self),
            let overflowed = reader.next(UInt32.self), let revoked = reader.next(UInt32.self),
            let failed = reader.next(UInt32.self), let settled = reader.next(UInt64.self),
            let round = reader.next(UInt8.self),
            let profile = reader.next(byteCount: bytes.count - reader.offset), DeviceProfile(profile) != nil
        else { return nil }
        let row = DeviceRow(
            flags: Flags(rawValue: flags), badge: badge, app: AppKey(app), generation: generation,
            lastTimestamp: lastTimestamp, reservedSequence: reservedSequence, queueEpoch: queueEpoch,
            registeredAt: registeredAt, lastSeenAt: lastSeenAt,
            broadcastSettled: settled, broadcastEvaluatedBeyond: evaluatedBeyond, badgeRound: round,
            dropped: DroppedCounts(
                expired: expired, collapsed: collapsed, overflowed: overflowed, revoked: revoked, failed: failed))
        return unsafe (row, profile.pointer)
    }
}

struct DroppedCounts: Equatable {
    var expired: UInt32 = 0
    var collapsed: UInt32 = 0
    var overflowed: UInt32 = 0
    var revoked: UInt32 = 0
    var failed: UInt32 = 0

    var isEmpty: Bool { self == DroppedCounts() }

    /// Counts a final state; returns false for states that the Welcome does not report.
    mutating func count(_ state: FinalState) -> Bool {
        switch state {
        case .expired: expired &+= 1
        case .collapsed: collapsed &+= 1
        case .overflowed: overflowed &+= 1
        case .revoked: revoked &+= 1
        case .failed: failed &+= 1
        default: return false
        }
        return true
    }

    var wire: [Dropped] {
        [
            ("expired", expired), ("collapsed", collapsed), ("overflowed", overflowed), ("revoked", revoked),
            ("failed", failed),
        ].filter { $0.1 > 0 }.map { Dropped(reason: $0.0, count: UInt64($0.1)) }
    }
}

/// A 64-bit hash of some bytes, sufficient to compare tokens and collapse keys of one device.
enum Fingerprint {
    static func of(_ bytes: some Sequence<UInt8>) -> UInt64 {
        // FNV-1a with a final mix. No attacker gains anything from a collision here.
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
        return hash ^ hash >> 29
    }
}
