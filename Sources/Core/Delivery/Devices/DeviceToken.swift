internal import Wire

/// The usable tokens of a device by channel and kind, one bit each.
struct TokenSet: OptionSet {
    let rawValue: UInt32

    init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The bit of a channel and kind: Apple's kinds first, then a bit for each other vendor.
    init(_ channel: VendorChannel, _ kind: TokenKind) {
        let index = channel == .apns ? kind.rawValue : TokenKind.liveActivityStart.rawValue + channel.rawValue
        self.init(rawValue: 1 << UInt32(index))
    }

    /// The bits that a content of a platform may use.
    init(_ platform: VendorPlatform, _ kind: TokenKind) {
        guard platform != .apple else {
            self.init(.apns, kind)
            return
        }
        self.init(rawValue: Self.ofPlatforms[Int(platform.rawValue)])
    }

    private static let ofPlatforms = VendorPlatform.allCases.map { platform in
        VendorChannel.allCases.reduce(into: TokenSet(rawValue: 0)) { set, channel in
            if channel.platform == platform { set.insert(TokenSet(channel, .alert)) }
        }.rawValue
    }
}

/// One vendor token of a device; at most one per channel, kind, environment, topic and activity.
struct DeviceToken: Equatable {
    var channel: VendorChannel
    var kind: TokenKind
    var environment: TokenEnvironment
    var topic: String
    var token: String
    /// The activity of a Live Activity's token, or the attributes type for a token that starts activities; empty: any.
    var activity = ""
    var registeredAt: GatewayTime
    /// Whether the vendor rejected the token; senders do not get it until the device registers it again.
    var isQuarantined: Bool
    /// Whether the token's row names this device as the only owner; see Shard+TokenOwners.
    var isClaimed = false

    /// Returns the placeholder for the token of a follow-up job; the app's sender knows the receiver.
    static func none(_ channel: VendorChannel) -> DeviceToken {
        DeviceToken(
            channel: channel, kind: .alert, environment: .production, topic: "", token: "", registeredAt: 0,
            isQuarantined: false)
    }

    /// Returns whether both tokens have the same purpose, so the device keeps only one of them.
    func isLike(_ other: DeviceToken) -> Bool {
        channel == other.channel && kind == other.kind && environment == other.environment && topic == other.topic
            && activity == other.activity
    }

    /// Returns whether registering this token removes the other one.
    func replaces(_ other: DeviceToken) -> Bool {
        if isLike(other) { return true }
        // A device stores a token's text once. Only a token that starts activities may be stored several times, for different
        // types.
        return channel == other.channel && kind == other.kind && token == other.token && kind != .liveActivityStart
    }

    /// Returns whether both are the same token text for the same topic, regardless of environment and activity.
    func isSame(as other: DeviceToken) -> Bool {
        channel == other.channel && kind == other.kind && token == other.token && topic == other.topic
    }

    /// The digest that identifies the token in job rows.
    var digest: UInt64 { Fingerprint.of(token.utf8) }

    /// Returns whether a content may use this token, regardless of the activity.
    fileprivate func suits(_ need: TokenNeed, _ appHasTopic: Bool) -> Bool {
        !isQuarantined && channel.platform == need.platform && kind == need.kind
            && (channel != .apns || appHasTopic || !topic.isEmpty)
    }
}

struct TokenNeed: Equatable {
    var platform: VendorPlatform
    var kind: TokenKind
    /// The digest (`Activity.word`) of the activity to update, or of the attributes type to start; 0: any.
    var activity: UInt64
}

extension DeviceProfile {
    /// Returns the channel for a message with these contents.
    ///
    /// The channel is the first of the app's `order` with a usable token, or else that of the usable token that was registered
    /// first.
    func channel(for needs: [TokenNeed], appHasTopic: Bool, order: [VendorChannel]) -> VendorChannel? {
        let usable = tokens.filter { token in needs.contains { token.suits($0, appHasTopic) } }
        return order.first { channel in usable.contains { $0.channel == channel } } ?? usable.first?.channel
    }

    /// Returns the token for a content: the last registered usable token of the chosen channel.
    func token(for need: TokenNeed, appHasTopic: Bool, order: [VendorChannel]) -> DeviceToken? {
        guard need.platform != .apple else { return appleToken(for: need, appHasTopic: appHasTopic) }
        let channel = channel(for: [need], appHasTopic: appHasTopic, order: order)
        return tokens.last { $0.suits(need, appHasTopic) && $0.channel == channel }
    }

    /// Returns the last registered token of Apple's that is not in quarantine.
    ///
    /// A content for an activity uses that activity's token, or else a token without an activity, as registered by older clients.
    /// It never uses another activity's token. In an app without a topic, tokens without a topic are unusable.
    func appleToken(for need: TokenNeed, appHasTopic: Bool) -> DeviceToken? {
        guard need.activity != 0 else { return tokens.last { $0.suits(need, appHasTopic) } }
        return tokens.last { $0.suits(need, appHasTopic) && Activity.word($0.activity.utf8) == need.activity }
            ?? tokens.last { $0.suits(need, appHasTopic) && $0.activity.isEmpty }
    }

    /// Adds a token that a client named, and removes the tokens that it replaces.
    ///
    /// A Hello repeats all tokens of the client. Only an update (`isAgain`) means that the vendor issued a known token again,
    /// which ends its quarantine. A Hello with another environment or activity keeps the token's state.
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
        while tokens.count > 1, tokens.reduce(0, { $0 + $1.byteCount }) > Limits.tokenBytesPerDevice { makeRoom() }
    }

    /// Removes the tokens of a channel and kind; with an activity, only those of that activity.
    mutating func removeTokens(_ channel: VendorChannel, _ kind: TokenKind, activity: String) {
        tokens.removeAll {
            $0.channel == channel && $0.kind == kind && (activity.isEmpty || $0.activity == activity)
        }
    }

    /// Makes room for the newest token; activity tokens go first because activities are short-lived.
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

    /// Removes the first-registered matching token, quarantined tokens first; the newest token stays.
    private mutating func removeOldest(where isMeant: (DeviceToken) -> Bool) {
        let older = tokens.dropLast()
        guard
            let index = older.firstIndex(where: { isMeant($0) && $0.isQuarantined })
                ?? older.firstIndex(where: isMeant)
        else { return }
        tokens.remove(at: index)
    }

    /// Marks the leased token as bad, unless it was registered again after the vendor's timestamp.
    ///
    /// - Parameters:
    ///   - channel: the leased token's channel.
    ///   - kind: the leased token's kind.
    ///   - appHasTopic: whether a token without a topic is usable.
    ///   - timestamp: the time since which the vendor considers the token bad; 0: unknown.
    ///   - isSent: a closure that returns whether a token of that channel and kind is the leased one.
    /// - Returns: whether a token was marked, and whether the device has another usable token for the same content.
    mutating func quarantine(
        _ channel: VendorChannel, _ kind: TokenKind, appHasTopic: Bool, timestamp: GatewayTime,
        _ isSent: (DeviceToken) -> Bool
    ) -> (isMarked: Bool, hasOther: Bool) {
        let need = TokenNeed(platform: channel.platform, kind: kind, activity: 0)
        var (isMarked, activity) = (false, "")
        for index in tokens.indices {
            let token = tokens[index]
            guard token.channel == channel, token.kind == kind, isSent(token),
                timestamp == 0 || token.registeredAt <= timestamp
            else { continue }
            isMarked = isMarked || !token.isQuarantined
            tokens[index].isQuarantined = true
            activity = token.activity
        }
        let hasOther = tokens.contains {
            $0.suits(need, appHasTopic) && (activity.isEmpty || $0.activity.isEmpty || $0.activity == activity)
        }
        return (isMarked, hasOther)
    }
}

// MARK: The stored form

extension DeviceToken {
    /// A token in a device's row, or the bytes of a token that only a later version knows.
    enum Stored {
        case token(DeviceToken)
        case foreign(LentBytes)
    }

    private struct Flags: OptionSet {
        let rawValue: UInt8
        static let quarantined = Flags(rawValue: 1)
        /// The activity's name follows the token, with its length first.
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

    /// - Returns: `nil` if the row is truncated.
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

    /// Returns the byte for the lowest of `channels`, none of which this version knows.
    static func unknown(_ channels: ChannelSet) -> UInt8 {
        UInt8(truncatingIfNeeded: channels.rawValue.trailingZeroBitCount) << 4
    }

    static func channel(_ byte: UInt8) -> VendorChannel? { VendorChannel(rawValue: byte >> 4) }

    static func tokenKind(_ byte: UInt8) -> TokenKind? { TokenKind(rawValue: byte & 15) }
}
