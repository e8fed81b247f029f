internal import Wire

/// One vendor token of a device.
///
/// A device has at most one for each channel, kind, environment, topic and activity.
struct DeviceToken: Equatable {
    var channel: VendorChannel
    var kind: TokenKind
    var environment: TokenEnvironment
    var topic: String
    var token: String
    /// Of a Live Activity's token: the activity; of one that starts activities: their attributes type; empty: any.
    var activity = ""
    var registeredAt: GatewayTime
    /// The vendor called it bad; senders do not get it until the device registers it again.
    var isQuarantined: Bool
    /// The token's row names this device as its owner, and no other device has the token; see Shard+TokenOwners.
    var isClaimed = false

    /// True when both are for the same, so that a device has only one of them.
    func isLike(_ other: DeviceToken) -> Bool {
        channel == other.channel && kind == other.kind && environment == other.environment && topic == other.topic
            && activity == other.activity
    }

    /// True when the other one goes when a device registers this one.
    func replaces(_ other: DeviceToken) -> Bool {
        if isLike(other) { return true }
        // One token under two names is one token; but one token may start activities of several types.
        return channel == other.channel && kind == other.kind && token == other.token && kind != .liveActivityStart
    }

    /// True for what the vendor gave once, whatever a client says it is for.
    func isSame(as other: DeviceToken) -> Bool {
        channel == other.channel && kind == other.kind && token == other.token && topic == other.topic
    }

    /// Names the token in job rows without repeating it.
    var digest: UInt64 { Fingerprint.of(token.utf8) }

    /// True when a content may go to this token as far as the channel, the kind, the topic and the vendor's word say.
    fileprivate func suits(_ need: TokenNeed, _ appHasTopic: Bool) -> Bool {
        !isQuarantined && channel == need.channel && kind == need.kind && (appHasTopic || !topic.isEmpty)
    }
}

/// Which token a content goes to.
struct TokenNeed: Equatable {
    var channel: VendorChannel
    var kind: TokenKind
    /// The activity that it updates, or the type that it starts, as `Activity.word` has it; 0: any.
    var activity: UInt64
}

extension DeviceProfile {
    /// The token that a content goes to: of those that the vendor did not call bad, the one registered last.
    ///
    /// A content for an activity goes to the token of that activity. Without one it goes to a token that names no
    /// activity, as older clients register it, and never to that of another activity. Where the app has no topic, no vendor
    /// takes anything for a token that names none.
    func token(for need: TokenNeed, appHasTopic: Bool) -> DeviceToken? {
        guard need.activity != 0 else { return tokens.last { $0.suits(need, appHasTopic) } }
        return tokens.last { $0.suits(need, appHasTopic) && Activity.word($0.activity.utf8) == need.activity }
            ?? tokens.last { $0.suits(need, appHasTopic) && $0.activity.isEmpty }
    }

    /// Takes a token that a client named, in the place of those that it replaces.
    ///
    /// A Hello names the tokens that the client has, each time the same. Only an update (`isAgain`) says that the
    /// vendor gave it a known token again, which ends the token's quarantine. A Hello that names the token for the other
    /// environment, or for another activity, says nothing new about it.
    mutating func register(_ named: DeviceToken, isAgain: Bool) {
        let isKnown = tokens.contains { $0.isLike(named) && $0.token == named.token }
        if isKnown, !isAgain { return }
        var new = named
        if !isAgain {
            for known in tokens where known.isSame(as: named) {
                new.registeredAt = min(new.registeredAt, known.registeredAt)
                if known.isQuarantined { new.isQuarantined = true }
                if known.isClaimed { new.isClaimed = true }
            }
        }
        tokens.removeAll { new.replaces($0) }
        tokens.append(new)
        if tokens.count(where: { $0.kind == .liveActivity }) > Limits.activityTokensPerDevice {
            removeOldest { $0.kind == .liveActivity }
        }
        if tokens.count + foreignCount > Limits.tokensPerDevice { makeRoom() }
    }

    /// Removes the tokens of a channel and kind: all of them, or those of one activity.
    mutating func removeTokens(_ channel: VendorChannel, _ kind: TokenKind, activity: String) {
        tokens.removeAll {
            $0.channel == channel && $0.kind == kind && (activity.isEmpty || $0.activity == activity)
        }
    }

    /// Makes room for the newest token: activities come and go, so theirs go before those that stay for long.
    private mutating func makeRoom() {
        let older = tokens.dropLast()
        if older.contains(where: \.isQuarantined) {
            removeOldest(where: \.isQuarantined)
        } else if older.contains(where: { $0.kind == .liveActivity }) {
            removeOldest { $0.kind == .liveActivity }
        } else if older.isEmpty {
            forgetForeign()
        } else {
            tokens.removeFirst()
        }
    }

    /// Removes one token among the older ones: one in quarantine, else the one registered longest ago.
    private mutating func removeOldest(where isMeant: (DeviceToken) -> Bool) {
        let older = tokens.dropLast()
        guard
            let index = older.firstIndex(where: { isMeant($0) && $0.isQuarantined })
                ?? older.firstIndex(where: isMeant)
        else { return }
        tokens.remove(at: index)
    }

    /// Marks the token that a lease carried as bad, unless it was registered again after the vendor's timestamp.
    ///
    /// - Parameters:
    ///   - need: the sent token's channel and kind.
    ///   - appHasTopic: a token that names no topic is of use.
    ///   - timestamp: since when the vendor knows; 0: it does not say.
    ///   - isSent: true for the sent one of the tokens of that channel and kind.
    /// - Returns: whether a token was marked, and whether the device has another one for the same content.
    mutating func quarantine(
        _ need: TokenNeed, appHasTopic: Bool, timestamp: GatewayTime, _ isSent: (DeviceToken) -> Bool
    ) -> (isMarked: Bool, hasOther: Bool) {
        var (isMarked, activity) = (false, "")
        for index in tokens.indices {
            let token = tokens[index]
            guard token.channel == need.channel, token.kind == need.kind, isSent(token),
                timestamp == 0 || token.registeredAt <= timestamp
            else { continue }
            tokens[index].isQuarantined = true
            (isMarked, activity) = (true, token.activity)
        }
        let hasOther = tokens.contains {
            $0.suits(need, appHasTopic) && (activity.isEmpty || $0.activity.isEmpty || $0.activity == activity)
        }
        return (isMarked, hasOther)
    }
}

// MARK: The stored form

extension DeviceToken {
    /// What stands in a device's row: a token, or the bytes of one that only a later version knows.
    enum Stored {
        case token(DeviceToken)
        case foreign(LentBytes)
    }

    private struct Flags: OptionSet {
        let rawValue: UInt8
        static let quarantined = Flags(rawValue: 1)
        /// The activity's name stands behind the token, its length first.
        static let activity = Flags(rawValue: 2)
        static let claimed = Flags(rawValue: 4)
    }

    static let largestByteCount =
        fixedByteCount + 1 + Wire.Limits.topicByteCount + 2 + Limits.tokenByteCount + 1 + Wire.Limits.activityByteCount
    private static let fixedByteCount = 11

    var byteCount: Int {
        Self.fixedByteCount + RowWriter.byteCount(text: topic) + 2 + token.utf8.count
            + (activity.isEmpty ? 0 : RowWriter.byteCount(text: activity))
    }

    func write(_ writer: inout RowWriter) {
        var flags: Flags = isQuarantined ? .quarantined : []
        if !activity.isEmpty { flags.insert(.activity) }
        if isClaimed { flags.insert(.claimed) }
        writer.put(ChannelByte.make(channel, kind))
        writer.put(environment.rawValue)
        writer.put(flags.rawValue)
        writer.put(registeredAt)
        writer.put(text: topic)
        writer.put(UInt16(truncatingIfNeeded: token.utf8.count))
        writer.put(utf8: token)
        if !activity.isEmpty { writer.put(text: activity) }
    }

    /// - Returns: `nil` when the row is cut short.
    static func read(_ reader: inout RowReader) -> Stored? {
        let start = reader.offset
        guard let kindByte = reader.next(UInt8.self), let environmentByte = reader.next(UInt8.self),
            let flagsByte = reader.next(UInt8.self), let registeredAt = reader.next(Int64.self),
            let topic = reader.nextText(), let count = reader.next(UInt16.self),
            let text = reader.next(byteCount: Int(count))
        else { return nil }
        let flags = Flags(rawValue: flagsByte)
        var activity = ""
        if flags.contains(.activity) {
            guard let name = reader.nextText() else { return nil }
            activity = name
        }
        guard let channel = ChannelByte.channel(kindByte), let kind = ChannelByte.tokenKind(kindByte),
            let environment = TokenEnvironment(rawValue: environmentByte)
        else { return .foreign(reader.bytes(from: start)) }
        return .token(
            DeviceToken(
                channel: channel, kind: kind, environment: environment, topic: topic,
                token: text.text, activity: activity, registeredAt: registeredAt,
                isQuarantined: flags.contains(.quarantined), isClaimed: flags.contains(.claimed)))
    }
}

/// A channel and a token kind in one stored byte: the channel in the high four bits.
enum ChannelByte {
    static func make(_ channel: VendorChannel, _ kind: TokenKind) -> UInt8 { channel.rawValue << 4 | kind.rawValue }

    /// The byte for channels of which this version knows none: the lowest of them.
    static func unknown(_ channels: ChannelSet) -> UInt8 {
        UInt8(truncatingIfNeeded: channels.rawValue.trailingZeroBitCount) << 4
    }

    /// The channel; `nil` for one that this version does not know.
    static func channel(_ byte: UInt8) -> VendorChannel? { VendorChannel(rawValue: byte >> 4) }

    /// The kind; `nil` for one that this version does not know.
    static func tokenKind(_ byte: UInt8) -> TokenKind? { TokenKind(rawValue: byte & 15) }
}
