public import Wire

/// The part of a message that does not depend on its device.
///
/// It has bytes of its own, is rendered once a task and shared by all its messages. A list task's row stores it.
public struct MessageContent: Sendable, Equatable {
    /// The fixed part of a vendor's content.
    public struct Vendor: Sendable, Equatable {
        public var channel: VendorChannel
        public var tokenKind: TokenKind
        /// See `VendorContent.activity`.
        public var activity: UInt64
        public var pushType: PushType
        public var priority: UInt8
        public var badge: VendorContent.Badge
        public var messageIDOffset: Int32
        public var badgeOffset: Int32

        public init(
            channel: VendorChannel, tokenKind: TokenKind, activity: UInt64 = 0, pushType: PushType, priority: UInt8,
            badge: VendorContent.Badge, messageIDOffset: Int32, badgeOffset: Int32
        ) {
            (self.channel, self.tokenKind, self.activity) = (channel, tokenKind, activity)
            (self.pushType, self.priority, self.badge) = (pushType, priority, badge)
            (self.messageIDOffset, self.badgeOffset) = (messageIDOffset, badgeOffset)
        }

        var need: TokenNeed { TokenNeed(channel: channel, kind: tokenKind, activity: activity) }
    }

    /// Lengths of the pieces, in the order they stand in the arena.
    public struct Lengths: Sendable, Equatable {
        public var payload = 0
        public var collapseKey = 0
        public var alertTitle = 0
        public var alertBody = 0
        public var vendorBody = 0
        public var vendorCollapseID = 0
        public init() {}

        public var sum: Int { payload + collapseKey + alertTitle + alertBody + vendorBody + vendorCollapseID }
    }

    /// The device of a message, with its task and request.
    public struct Target {
        public var origin: Origin
        public var app: AppKey
        public var bucket: Bucket
        public var cid: DeviceID
        public var task: TaskID
        public var messageDigest: UInt64
        public var requestKey: (UInt64, UInt64) = (0, 0)
        public var requestDigest: UInt64 = 0
        public var isBulk = false
        public var isTracked = false
        public var taskCreatedAt: GatewayTime = 0
        public var revokedDigest: UInt64 = 0

        public init(
            origin: Origin, app: AppKey, bucket: Bucket, cid: DeviceID, task: TaskID, messageDigest: UInt64
        ) {
            (self.origin, self.app, self.bucket, self.cid) = (origin, app, bucket, cid)
            (self.task, self.messageDigest) = (task, messageDigest)
        }
    }

    public var strategy: Strategy
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    public var timeToLive: Int64
    public var vendor: Vendor?
    /// The task that this message withdraws; its payload is the id's 16 bytes then.
    public var revokes: TaskID
    /// The ack of one device ends the task's messages for the others.
    public var firstAckWins = false
    public private(set) var lengths: Lengths
    public private(set) var arena: [UInt8]

    /// Makes a content; `arena` has the pieces, one after the other, as long as `lengths` say.
    public init(
        strategy: Strategy, timeToLive: Int64, vendor: Vendor?, revokes: TaskID = .none, lengths: Lengths,
        arena: [UInt8]
    ) {
        precondition(arena.count == lengths.sum, "the pieces are not as long as announced")
        (self.strategy, self.timeToLive, self.vendor, self.revokes) = (strategy, timeToLive, vendor, revokes)
        (self.lengths, self.arena) = (lengths, arena)
    }

    /// The live channel's bytes.
    public var payload: ArraySlice<UInt8> { arena[..<lengths.payload] }

    /// Calls `body` with the command for one device; its pointers are invalid when `body` has returned.
    public func withCommand<Result>(for target: Target, _ body: (PublishCommand) throws -> Result) rethrows -> Result {
        try arena.withUnsafeBytes { arena in
            var place = 0
            func piece(_ count: Int) -> UnsafeRawBufferPointer {
                defer { place += count }
                return UnsafeRawBufferPointer(rebasing: arena[place..<place + count])
            }
            let payload = piece(lengths.payload)
            let collapseKey = piece(lengths.collapseKey)
            let alertTitle = piece(lengths.alertTitle)
            let alertBody = piece(lengths.alertBody)
            let vendorBody = piece(lengths.vendorBody)
            let vendorCollapseID = piece(lengths.vendorCollapseID)
            let content = vendor.map { vendor in
                VendorContent(
                    channel: vendor.channel, tokenKind: vendor.tokenKind, activity: vendor.activity,
                    pushType: vendor.pushType, priority: vendor.priority, badge: vendor.badge, body: vendorBody,
                    messageIDOffset: vendor.messageIDOffset, badgeOffset: vendor.badgeOffset,
                    collapseID: vendorCollapseID)
            }
            var command = PublishCommand(
                origin: target.origin, app: target.app, bucket: target.bucket, cid: target.cid, task: target.task,
                messageDigest: target.messageDigest, strategy: strategy, timeToLive: timeToLive,
                requestKey: target.requestKey, requestDigest: target.requestDigest, isBulk: target.isBulk,
                payload: payload, collapseKey: collapseKey, alertTitle: alertTitle, alertBody: alertBody,
                vendor: content)
            command.taskCreatedAt = target.taskCreatedAt
            command.isTracked = target.isTracked
            (command.revokes, command.revokedDigest) = (revokes, target.revokedDigest)
            command.firstAckWins = firstAckWins
            return try body(command)
        }
    }

    /// The same with another task's id wherever the renderer put this one's: for a call that began under another id.
    public func renamed(from old: TaskID, to new: TaskID) -> MessageContent {
        var copy = self
        let (name, replacement) = (Array(old.text.utf8), Array(new.text.utf8))
        guard name.count == replacement.count, lengths.vendorBody >= name.count else { return copy }
        let start = lengths.sum - lengths.vendorCollapseID - lengths.vendorBody
        for place in start...(start + lengths.vendorBody - name.count)
        where arena[place..<place + name.count].elementsEqual(name) {
            copy.arena.replaceSubrange(place..<place + name.count, with: replacement)
        }
        return copy
    }

    // MARK: The stored form

    static let headerByteCount = 72
    /// The word of an activity stands behind the arena, if there is one.
    static let activityByteCount = 8

    /// What the second byte of the row says.
    private struct RowFlags: OptionSet {
        let rawValue: UInt8
        static let vendor = RowFlags(rawValue: 1)
        static let activity = RowFlags(rawValue: 2)
    }

    private var activity: UInt64 { vendor?.activity ?? 0 }

    var byteCount: Int { Self.headerByteCount + arena.count + (activity == 0 ? 0 : Self.activityByteCount) }

    func write(_ writer: inout RowWriter) {
        var badge: (kind: UInt8, value: Int32) = (0, 0)
        switch vendor?.badge {
        case .set(let value): badge = (1, value)
        case .add(let value): badge = (2, value)
        default: break
        }
        writer.put(strategy.rawValue)
        var flags: RowFlags = vendor == nil ? [] : .vendor
        if activity != 0 { flags.insert(.activity) }
        writer.put(flags.rawValue)
        writer.put(vendor.map { ChannelByte.make($0.channel, $0.tokenKind) } ?? 0)
        writer.put(vendor?.pushType.rawValue ?? 0)
        writer.put(vendor?.priority ?? 0)
        writer.put(badge.kind)
        writer.put(UInt16(firstAckWins ? 1 : 0))
        writer.put(badge.value)
        writer.put(vendor?.messageIDOffset ?? -1)
        writer.put(vendor?.badgeOffset ?? -1)
        writer.put(UInt32(0))
        writer.put(timeToLive)
        writer.put(revokes.high)
        writer.put(revokes.low)
        for length in [
            lengths.payload, lengths.collapseKey, lengths.alertTitle, lengths.alertBody, lengths.vendorBody,
            lengths.vendorCollapseID,
        ] { writer.put(UInt32(truncatingIfNeeded: length)) }
        arena.withUnsafeBytes { writer.put($0) }
        if activity != 0 { writer.put(activity) }
    }

    init?(_ reader: inout RowReader) {
        guard let strategy = Strategy(rawValue: reader.next() ?? 0), let flagsByte = reader.next(UInt8.self),
            let kindByte = reader.next(UInt8.self),
            let pushType = PushType(rawValue: reader.next() ?? .max), let priority = reader.next(UInt8.self),
            let badgeKind = reader.next(UInt8.self), let choices = reader.next(UInt16.self),
            let badgeValue = reader.next(Int32.self), let messageIDOffset = reader.next(Int32.self),
            let badgeOffset = reader.next(Int32.self), reader.next(UInt32.self) != nil,
            let timeToLive = reader.next(Int64.self), let revokes = reader.nextIdentifier(TaskID.self)
        else { return nil }
        var lengths = Lengths()
        for path in [
            \Lengths.payload, \.collapseKey, \.alertTitle, \.alertBody, \.vendorBody, \.vendorCollapseID,
        ] {
            guard let length = reader.next(UInt32.self) else { return nil }
            lengths[keyPath: path] = Int(length)
        }
        guard let bytes = reader.next(byteCount: lengths.sum) else { return nil }
        let badge: VendorContent.Badge = badgeKind == 1 ? .set(badgeValue) : badgeKind == 2 ? .add(badgeValue) : .none
        let flags = RowFlags(rawValue: flagsByte)
        var activity: UInt64 = 0
        if flags.contains(.activity) {
            guard let word = reader.next(UInt64.self) else { return nil }
            activity = word
        }
        var vendor: Vendor?
        // A content for a channel that this version does not know is none.
        if flags.contains(.vendor), let channel = ChannelByte.channel(kindByte),
            let tokenKind = ChannelByte.tokenKind(kindByte)
        {
            vendor = Vendor(
                channel: channel, tokenKind: tokenKind, activity: activity, pushType: pushType, priority: priority,
                badge: badge, messageIDOffset: messageIDOffset, badgeOffset: badgeOffset)
        }
        self.init(
            strategy: strategy, timeToLive: timeToLive, vendor: vendor, revokes: revokes, lengths: lengths,
            arena: Array(bytes))
        firstAckWins = choices & 1 != 0
    }
}
