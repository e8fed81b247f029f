// The digests that place and name things. Whoever computes one of these elsewhere must get the same bits, because they
// are stored: docs/Architecture.md, "Identifiers".

internal import Delivery
internal import Cryptography
public import Wire

extension AppKey {
    /// The first eight bytes of SHA-256(appId), in network order.
    public init(appID: String) {
        self.init(SHA256.digest(Array(appID.utf8)).words.0)
    }
}

extension Bucket {
    /// The first 12 bits of SHA-256(appId ‖ 0 ‖ cid), the cid as its 32 lower-case hex digits.
    public init(appID: String, cid: DeviceID) {
        self.init(prefix: Array(appID.utf8) + [0], cid: cid)
    }

    /// Takes appId ‖ 0, as `App` keeps it, for `prefix`.
    init(prefix: [UInt8], cid: DeviceID) {
        let word = withUnsafeTemporaryAllocation(byteCount: prefix.count + 32, alignment: 8) { input in
            input.copyBytes(from: prefix)
            for index in 0..<32 {
                let word = index < 16 ? cid.high : cid.low
                let nibble = UInt8(truncatingIfNeeded: word >> UInt64(60 - index % 16 * 4)) & 15
                input[prefix.count + index] = lowerHexDigit(nibble)
            }
            return SHA256.digest(UnsafeRawBufferPointer(input)).words.0
        }
        self.init(digest: word)
    }
}

/// The tail of a msgId: the first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), in network order.
public func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64 {
    withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { input in
        input.storeBytes(of: task.high.bigEndian, toByteOffset: 0, as: UInt64.self)
        input.storeBytes(of: task.low.bigEndian, toByteOffset: 8, as: UInt64.self)
        input.storeBytes(of: cid.high.bigEndian, toByteOffset: 16, as: UInt64.self)
        input.storeBytes(of: cid.low.bigEndian, toByteOffset: 24, as: UInt64.self)
        return SHA256.digest(UnsafeRawBufferPointer(input)).words.0
    }
}

/// Digest of (app, endpoint, request id): what a repeated request is recognised by.
///
/// Never (0, 0), which means none.
func requestKey(app: AppKey, endpoint: StaticString, requestID: UnsafeRawBufferPointer) -> (UInt64, UInt64) {
    let nameCount = endpoint.utf8CodeUnitCount
    return withUnsafeTemporaryAllocation(byteCount: 9 + nameCount + requestID.count, alignment: 8) { input in
        input.storeBytes(of: app.word.bigEndian, toByteOffset: 0, as: UInt64.self)
        input[8..<8 + nameCount].copyBytes(from: UnsafeRawBufferPointer(start: endpoint.utf8Start, count: nameCount))
        input[8 + nameCount] = 0
        input[(9 + nameCount)...].copyBytes(from: requestID)
        let words = SHA256.digest(UnsafeRawBufferPointer(input)).words
        return words.0 == 0 && words.1 == 0 ? (0, 1) : (words.0, words.1)
    }
}

extension UnsafeMutableRawBufferPointer.SubSequence {
    fileprivate func copyBytes(from source: UnsafeRawBufferPointer) {
        UnsafeMutableRawBufferPointer(rebasing: self).copyMemory(from: source)
    }
}

extension TaskID {
    /// A new task accepted at `now`, dated in UTC.
    init(kind: Kind, now: GatewayTime, random: RandomWords) {
        let (month, day) = civilDate(now)
        self.init(
            kind: kind, month: month, day: day,
            random: (UInt32(truncatingIfNeeded: random.next()), random.next()))
    }

    /// As the other, with a home of the caller's choice.
    init(kind: Kind, now: GatewayTime, home: Bucket, random: RandomWords) {
        let (month, day) = civilDate(now)
        self.init(
            kind: kind, month: month, day: day, home: home,
            random: (UInt32(truncatingIfNeeded: random.next()), random.next()))
    }
}

/// Month and day in UTC of a time in milliseconds since 1970 (the days-to-civil algorithm of the proleptic calendar).
func civilDate(_ time: GatewayTime) -> (month: Int, day: Int) {
    let daysSinceEpoch = time / 86_400_000 - (time % 86_400_000 < 0 ? 1 : 0)
    // Since 1 March of a year divisible by 400.
    let dayOfEra = Int((daysSinceEpoch % 146_097 + 719_468 + 146_097) % 146_097)
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153  // March is 0
    let day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    return (shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9, day)
}

/// Random words drawn in blocks, because one call of the generator costs more than a message's share.
///
/// One a loop.
public final class RandomWords {
    private let draw: (Int) -> [UInt64]
    private var words: [UInt64] = []

    /// Cryptographic randomness.
    public init() {
        draw = { count in
            SecureRandom.bytes(count * 8).withUnsafeBytes { bytes in
                (0..<count).map { bytes.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self) }
            }
        }
    }

    /// Words of the caller's own, for tests.
    public init(_ next: @escaping () -> UInt64) { draw = { _ in [next()] } }

    public func next() -> UInt64 {
        if words.isEmpty { words = draw(64) }
        return words.removeLast()
    }
}
