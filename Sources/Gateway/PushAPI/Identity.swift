// Digests used as keys and placement hashes. They are stored, so any other implementation must compute the same bits:
// docs/Semantics.md, "Request ids and lists".

package import Delivery
internal import Cryptography
internal import TextForms
package import Wire

extension AppKey {
    /// Creates the key: the first eight bytes of SHA-256(appId), in network order.
    package init(appID: String) {
        self.init(SHA256.digest(Array(appID.utf8)).words.0)
    }
}

extension Bucket {
    /// Creates the bucket: the first 12 bits of SHA-256(appId ‖ 0 ‖ cid), with the cid as 32 lowercase hex digits.
    package init(appID: String, cid: DeviceID) {
        self.init(prefix: Array(appID.utf8) + [0], cid: cid)
    }

    /// Creates the bucket from `prefix`, which is appId ‖ 0 as stored in `App`.
    init(prefix: [UInt8], cid: DeviceID) {
        let word = withUnsafeTemporaryAllocation(byteCount: prefix.count + 32, alignment: 8) { input in
            input.copyBytes(from: prefix)
            for quarter in 0..<4 {
                let half = (quarter < 2 ? cid.high : cid.low) >> UInt64(32 - quarter % 2 * 32)
                input.storeBytes(
                    of: lowerHexDigits(half).bigEndian, toByteOffset: prefix.count + quarter * 8, as: UInt64.self)
            }
            return SHA256.digest(UnsafeRawBufferPointer(input)).words.0
        }
        self.init(digest: word)
    }
}

/// Returns the low half of a msgId: the first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), in network order.
package func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64 {
    withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { input in
        input.storeBytes(of: task.high.bigEndian, toByteOffset: 0, as: UInt64.self)
        input.storeBytes(of: task.low.bigEndian, toByteOffset: 8, as: UInt64.self)
        input.storeBytes(of: cid.high.bigEndian, toByteOffset: 16, as: UInt64.self)
        input.storeBytes(of: cid.low.bigEndian, toByteOffset: 24, as: UInt64.self)
        return SHA256.digest(UnsafeRawBufferPointer(input)).words.0
    }
}

/// Returns a digest of (app, endpoint, request id), by which a repeated request is detected; never (0, 0), which means none.
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

/// Returns the key of a broadcast's request, in the app's home bucket, because one batch writes the rows of task and request.
func broadcastRequestKey(
    app: AppKey, endpoint: StaticString, requestID: UnsafeRawBufferPointer
) -> (UInt64, UInt64) {
    let digest = requestKey(app: app, endpoint: endpoint, requestID: requestID)
    return (UInt64(app.home.index) << 52 | digest.0 >> 12, digest.1)
}

extension UnsafeMutableRawBufferPointer.SubSequence {
    fileprivate func copyBytes(from source: UnsafeRawBufferPointer) {
        UnsafeMutableRawBufferPointer(rebasing: self).copyMemory(from: source)
    }
}

extension AliasName {
    /// The first 16 bytes of SHA-256(app key ‖ "alias" ‖ 0 ‖ text); with a type, of text ‖ 0 ‖ type.
    ///
    /// Neither text nor type contains a zero character. The type's digest is the first eight bytes of SHA-256(app key ‖
    /// "aliasType" ‖ 0 ‖ type). It is never 0, which means no type.
    package init(app: AppKey, text: String, type: String = "") {
        let words = nameDigest(app, "alias", type.isEmpty ? text : "\(text)\0\(type)")
        let digest = type.isEmpty ? 0 : max(1, nameDigest(app, "aliasType", type).0)
        self.init(high: words.0, low: words.1, type: digest, text: text)
    }
}

extension AliasName {
    /// The name of a token's row: the first 16 bytes of SHA-256(app key ‖ "token" ‖ 0 ‖ channel ‖ 0 ‖ kind ‖ 0 ‖ token).
    ///
    /// Channel and kind are decimal numbers. A token of APNs is in lowercase.
    package init(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) {
        let token = channel == .apns ? token.lowercased() : token
        let words = nameDigest(app, "token", "\(channel.rawValue)\0\(kind.rawValue)\0\(token)")
        self.init(high: words.0, low: words.1, text: "")
    }
}

extension TagName {
    /// The digest is the first eight bytes of SHA-256(app key ‖ "tag" ‖ 0 ‖ text), at least `firstDigest`.
    package init(app: AppKey, text: String) {
        self.init(hash: nameDigest(app, "tag", text).0, text: text)
    }
}

private func nameDigest(_ app: AppKey, _ kind: StaticString, _ text: String) -> (UInt64, UInt64) {
    var text = text
    return text.withUTF8 { requestKey(app: app, endpoint: kind, requestID: UnsafeRawBufferPointer($0)) }
}

extension TaskID {
    /// Creates the task id of a request to several devices; a request repeated on the same day has the same id.
    init(kind: Kind, now: GatewayTime, request key: (UInt64, UInt64)) {
        let date = CivilDate(millisecondsSince1970: now)
        self.init(kind: kind, month: date.month, day: date.day, random: (UInt32(truncatingIfNeeded: key.0), key.1))
    }

    /// Creates the id of a new task, dated in UTC.
    init(kind: Kind, now: GatewayTime, random: RandomWords) {
        let date = CivilDate(millisecondsSince1970: now)
        self.init(
            kind: kind, month: date.month, day: date.day,
            random: (UInt32(truncatingIfNeeded: random.next()), random.next()))
    }

    /// Creates the task id of a single push; a request repeated on the same day has the same id.
    ///
    /// One row therefore finds the message by its request and by its task (`PushRow`).
    init(now: GatewayTime, home: Bucket, request key: (UInt64, UInt64)) {
        let date = CivilDate(millisecondsSince1970: now)
        self.init(kind: .single, month: date.month, day: date.day, home: home, request: key)
    }

    init(kind: Kind, now: GatewayTime, home: Bucket, random: RandomWords) {
        let date = CivilDate(millisecondsSince1970: now)
        self.init(
            kind: kind, month: date.month, day: date.day, home: home,
            random: (UInt32(truncatingIfNeeded: random.next()), random.next()))
    }
}

/// Returns `yyyy-MM-dd HH:mm:ss` in UTC, Getui's format for times.
func dateTime(_ time: GatewayTime) -> String {
    let time = CivilTime(millisecondsSince1970: time)
    return "\(time.date) \(time.clock)"
}

/// Random words drawn in blocks, because a call of the generator is expensive; confined to one event loop.
package final class RandomWords {
    private let draw: (inout [UInt64]) -> Void
    /// The drawn words, behind a pointer, because Swift checks each access to a class's stored variable: here, four times a
    /// message.
    private let words: UnsafeMutablePointer<[UInt64]>

    package convenience init() {
        self.init(draw: { words in
            for _ in 0..<64 { words.append(0) }
            words.withUnsafeMutableBytes { SecureRandom.fill($0) }
        })
    }

    /// Creates a source with given words, for tests.
    package convenience init(_ next: @escaping () -> UInt64) { self.init(draw: { $0.append(next()) }) }

    private init(draw: @escaping (inout [UInt64]) -> Void) {
        self.draw = draw
        words = .allocate(capacity: 1)
        words.initialize(to: [])
    }

    deinit {
        words.deinitialize(count: 1)
        words.deallocate()
    }

    package func next() -> UInt64 {
        if let word = words.pointee.popLast() { return word }
        draw(&words.pointee)
        return words.pointee.removeLast()
    }
}
