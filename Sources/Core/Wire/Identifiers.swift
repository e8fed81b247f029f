// Fixed-width identifiers of two machine words, so that no String is allocated per message. The text form is created only for
// output.

public protocol WideIdentifier: Hashable, Comparable, Sendable, CustomStringConvertible {
    var high: UInt64 { get }
    var low: UInt64 { get }
    init(high: UInt64, low: UInt64)
}

extension WideIdentifier {
    public static var byteCount: Int { 16 }

    @inlinable public static func == (left: Self, right: Self) -> Bool {
        left.low == right.low && left.high == right.high
    }

    @inlinable public static func < (left: Self, right: Self) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }

    @inlinable public static var none: Self { Self(high: 0, low: 0) }
    @inlinable public var isNone: Bool { high == 0 && low == 0 }

    /// Parses exactly 32 lower-case hex digits; any other input gives `nil`.
    public init?(hex: some Sequence<UInt8>) {
        var words: (UInt64, UInt64) = (0, 0)
        var count = 0
        for digit in hex {
            let value: UInt64
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = UInt64(digit &- UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = UInt64(digit &- UInt8(ascii: "a") &+ 10)
            default: return nil
            }
            guard count < 32 else { return nil }
            words.0 = words.0 << 4 | words.1 >> 60
            words.1 = words.1 << 4 | value
            count += 1
        }
        guard count == 32 else { return nil }
        self.init(high: words.0, low: words.1)
    }

    public init?(_ text: some StringProtocol) {
        self.init(hex: text.utf8)
    }

    /// The 16 bytes in network order, as in frames and store keys.
    public var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(16)
        for shift in stride(from: 56, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: high >> UInt64(shift)))
        }
        for shift in stride(from: 56, through: 0, by: -8) {
            bytes.append(UInt8(truncatingIfNeeded: low >> UInt64(shift)))
        }
        return bytes
    }

    /// Reads exactly 16 bytes in network order; any other count gives `nil`.
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == 16 else { return nil }
        var words: (UInt64, UInt64) = (0, 0)
        for (index, byte) in bytes.enumerated() {
            if index < 8 { words.0 = words.0 << 8 | UInt64(byte) } else { words.1 = words.1 << 8 | UInt64(byte) }
        }
        self.init(high: words.0, low: words.1)
    }

    public var description: String {
        let words = (high, low)
        return unsafe String(unsafeUninitializedCapacity: 32) { buffer in
            let bytes = UnsafeMutableRawBufferPointer(buffer)
            for quarter in 0..<4 {
                let half = (quarter < 2 ? words.0 : words.1) >> UInt64(32 - quarter % 2 * 32)
                unsafe bytes.storeBytes(
                    of: lowerHexDigits(half).bigEndian, toByteOffset: quarter * 8, as: UInt64.self)
            }
            return 32
        }
    }
}

/// Returns the eight hex digits of a number's low half, the first in the top byte, computed for all nibbles at once.
@inlinable public func lowerHexDigits(_ half: UInt64) -> UInt64 {
    var digits = half & 0xFFFF_FFFF
    digits = (digits | digits << 16) & 0x0000_FFFF_0000_FFFF
    digits = (digits | digits << 8) & 0x00FF_00FF_00FF_00FF
    digits = (digits | digits << 4) & 0x0F0F_0F0F_0F0F_0F0F
    // A one in each byte whose nibble is a letter.
    let letters = (digits &+ 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101
    return digits &+ 0x3030_3030_3030_3030 &+ letters &* 39
}

/// The `cid`: an installation of an app on a device, assigned by the gateway.
public struct DeviceID: WideIdentifier {
    public let high: UInt64
    public let low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
    // The cid is random, so its low word is already a good hash.
    @inlinable public func hash(into hasher: inout Hasher) { hasher.combine(low) }
}

/// A message for one device: bucket (2 bytes) ‖ acceptance in ms (6) ‖ first 8 bytes of SHA-256(taskId ‖ cid).
public struct MessageID: WideIdentifier {
    public let high: UInt64
    public let low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
    @inlinable public func hash(into hasher: inout Hasher) { hasher.combine(low) }

    @inlinable public init(bucket: Bucket, acceptedAt milliseconds: Int64, digest: UInt64) {
        high = UInt64(bucket.index) << 48 | UInt64(bitPattern: milliseconds) & 0xFFFF_FFFF_FFFF
        low = digest
    }

    /// The bucket of the message's device, or `nil` if the id was not created by a gateway.
    @inlinable public var bucket: Bucket? { Bucket(exactly: high >> 48) }
    @inlinable public var acceptedAtMilliseconds: Int64 { Int64(high & 0xFFFF_FFFF_FFFF) }
}

/// The identifier of one publish call, the unit of reports: kind, month, day, one spare byte and 12 random bytes.
///
/// The text form follows Getui's: `RASS_1121_` and 24 hex digits. Clients treat it as opaque.
public struct TaskID: WideIdentifier {
    public enum Kind: UInt8, Sendable { case single = 1, list = 2, app = 3 }

    public let high: UInt64
    public let low: UInt64
    @inlinable public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
    @inlinable public func hash(into hasher: inout Hasher) { hasher.combine(low) }

    /// Creates an identifier.
    ///
    /// - Parameters:
    ///   - kind: the kind of call.
    ///   - month: 1–12, UTC.
    ///   - day: 1–31, UTC.
    ///   - random: 12 random bytes: the low 32 bits of the first word and all of the second.
    public init(kind: Kind, month: Int, day: Int, random: (UInt32, UInt64)) {
        high = UInt64(kind.rawValue) << 56 | UInt64(month & 0xFF) << 48 | UInt64(day & 0xFF) << 40 | UInt64(random.0)
        low = random.1
    }

    /// Creates an identifier with a home bucket in place of twelve random bits.
    public init(kind: Kind, month: Int, day: Int, home: Bucket, random: (UInt32, UInt64)) {
        self.init(
            kind: kind, month: month, day: day,
            random: (UInt32(home.index) << 20 | random.0 & 0xF_FFFF, random.1))
    }

    public var kind: Kind? { Kind(rawValue: UInt8(high >> 56)) }

    /// The bucket of the task's own rows; for a single push created by this version it is the device's bucket.
    @inlinable public var home: Bucket { Bucket(UInt16(high >> 20 & 0xFFF)) }

    public var text: String {
        let letter: UInt8 =
            switch kind {
            case .list: UInt8(ascii: "L")
            case .app: UInt8(ascii: "A")
            default: UInt8(ascii: "S")
            }
        // Two digits each. Values above 99 occur only in identifiers that no gateway created.
        let month = UInt8(high >> 48 & 0xFF) % 100, day = UInt8(high >> 40 & 0xFF) % 100
        let head: [UInt8] = [
            UInt8(ascii: "R"), UInt8(ascii: "A"), UInt8(ascii: "S"), letter, UInt8(ascii: "_"), 48 + month / 10,
            48 + month % 10, 48 + day / 10, 48 + day % 10, UInt8(ascii: "_"),
        ]
        let words = (high, low)
        return unsafe String(unsafeUninitializedCapacity: 34) { buffer in
            let bytes = UnsafeMutableRawBufferPointer(buffer)
            for place in head.indices { unsafe bytes[place] = head[place] }
            for third in 0..<3 {
                let half = third == 0 ? words.0 : words.1 >> UInt64(third == 1 ? 32 : 0)
                unsafe bytes.storeBytes(
                    of: lowerHexDigits(half).bigEndian, toByteOffset: 10 + third * 8, as: UInt64.self)
            }
            return 34
        }
    }

    /// Parses the text form; any other text gives `nil`.
    public init?(text: some StringProtocol) {
        let parts = text.utf8.split(separator: UInt8(ascii: "_"), omittingEmptySubsequences: false)
        guard parts.count == 3, parts[1].count == 4, parts[2].count == 24 else { return nil }
        let kind: Kind
        switch String(decoding: parts[0], as: UTF8.self) {
        case "RASS": kind = .single
        case "RASL": kind = .list
        case "RASA": kind = .app
        default: return nil
        }
        guard let date = Int(String(decoding: parts[1], as: UTF8.self)), parts[1].allSatisfy({ $0 >= 48 && $0 <= 57 })
        else { return nil }
        guard let tail = MessageID(hex: Array(repeating: UInt8(ascii: "0"), count: 8) + Array(parts[2])) else {
            return nil
        }
        self.init(
            kind: kind, month: date / 100, day: date % 100, random: (UInt32(truncatingIfNeeded: tail.high), tail.low))
    }
}

/// The first 12 bits of SHA-256(appId ‖ 0 ‖ cid): the unit of placement and part of every stored key of a device.
public struct Bucket: Hashable, Comparable, Sendable {
    public static let count = 4096
    public let index: UInt16

    /// - Parameter index: below `Bucket.count`.
    @inlinable public init(_ index: UInt16) {
        precondition(index < 4096, "no such bucket")
        self.index = index
    }

    @inlinable public init?(exactly index: UInt64) {
        guard index < 4096 else { return nil }
        self.index = UInt16(index)
    }

    /// Creates the bucket of a digest from its first eight bytes in network order.
    @inlinable public init(digest word: UInt64) { index = UInt16(word >> 52) }

    /// Returns the event loop that owns this bucket's devices; stored data does not depend on the number of loops.
    @inlinable public func loop(of loopCount: Int) -> Int { Int(index) % loopCount }

    @inlinable public static func < (left: Bucket, right: Bucket) -> Bool { left.index < right.index }
}

/// The first eight bytes of SHA-256(appId) in network order, which identify an app in stored rows.
public struct AppKey: Hashable, Sendable {
    public let word: UInt64
    @inlinable public init(_ word: UInt64) { self.word = word }
}
