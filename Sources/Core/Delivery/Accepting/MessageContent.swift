package import Wire

/// The part of a message that does not depend on its device.
///
/// It owns its bytes, is rendered once per task and shared by all messages of the task. A list task's row stores it.
package struct MessageContent: Sendable, Equatable {
    package struct Vendor: Sendable, Equatable {
        package var channel: VendorChannel
        package var tokenKind: TokenKind
        /// See `VendorContent.activity`.
        package var activity: UInt64
        package var pushType: PushType
        package var priority: UInt8
        package var badge: VendorContent.Badge
        package var messageIDOffset: Int32
        package var badgeOffset: Int32
        /// The byte counts of the content's two pieces in the arena, which follow the texts.
        fileprivate var bodyByteCount = 0
        fileprivate var collapseIDByteCount = 0

        package init(
            channel: VendorChannel, tokenKind: TokenKind, activity: UInt64 = 0, pushType: PushType, priority: UInt8,
            badge: VendorContent.Badge, messageIDOffset: Int32, badgeOffset: Int32
        ) {
            (self.channel, self.tokenKind, self.activity) = (channel, tokenKind, activity)
            (self.pushType, self.priority, self.badge) = (pushType, priority, badge)
            (self.messageIDOffset, self.badgeOffset) = (messageIDOffset, badgeOffset)
        }

        var need: TokenNeed { TokenNeed(platform: channel.platform, kind: tokenKind, activity: activity) }
    }

    /// The lengths of the pieces, in arena order; the pieces of further vendor contents follow.
    package struct Lengths: Sendable, Equatable {
        package var payload = 0
        package var collapseKey = 0
        package var alertTitle = 0
        package var alertBody = 0
        package var vendorBody = 0
        package var vendorCollapseID = 0
        package init() {}

        package var sum: Int { texts + vendorBody + vendorCollapseID }
        fileprivate var texts: Int { payload + collapseKey + alertTitle + alertBody }
    }

    package struct Target {
        package var origin: Origin
        package var app: AppKey
        package var bucket: Bucket
        package var cid: DeviceID
        package var task: TaskID
        package var messageDigest: UInt64
        package var requestKey: (UInt64, UInt64) = (0, 0)
        package var requestDigest: UInt64 = 0
        package var isBulk = false
        package var taskCreatedAt: GatewayTime = 0
        package var revokedDigest: UInt64 = 0

        package init(
            origin: Origin, app: AppKey, bucket: Bucket, cid: DeviceID, task: TaskID, messageDigest: UInt64
        ) {
            (self.origin, self.app, self.bucket, self.cid) = (origin, app, bucket, cid)
            (self.task, self.messageDigest) = (task, messageDigest)
        }
    }

    package var strategy: Strategy
    /// The strategies of single vendors; each replaces `strategy` for messages that go to its vendor.
    package var vendorStrategies = VendorStrategies()
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    package var timeToLive: Int64
    /// The vendor contents, at most one per platform, in the order of their pieces.
    package private(set) var vendors: [Vendor]
    /// The task that this message revokes; the payload is then the id's 16 bytes.
    package var revokes: TaskID
    /// Whether the first ack of a device ends the task's messages for the other devices.
    package var firstAckWins = false
    /// See `PublishCommand.vendorCarriesAll`.
    package var vendorCarriesAll = false
    /// See `PublishCommand.carryingPlatforms`.
    package var carryingPlatforms: PlatformSet = []
    package private(set) var lengths: Lengths
    package private(set) var arena: [UInt8]
    /// See `PublishCommand.customCallback`.
    package var customCallback: [UInt8] = []

    /// Creates a content with at most one vendor content.
    ///
    /// `arena` contains the pieces back to back, with the given lengths.
    package init(
        strategy: Strategy, timeToLive: Int64, vendor: Vendor?, revokes: TaskID = .none, lengths: Lengths,
        arena: [UInt8]
    ) {
        precondition(arena.count == lengths.sum, "the pieces are not as long as announced")
        (self.strategy, self.timeToLive, self.revokes) = (strategy, timeToLive, revokes)
        (self.lengths, self.arena) = (lengths, arena)
        vendors = []
        guard var vendor else { return }
        (vendor.bodyByteCount, vendor.collapseIDByteCount) = (lengths.vendorBody, lengths.vendorCollapseID)
        vendors = [vendor]
    }

    package mutating func add(_ vendor: Vendor, body: [UInt8], collapseID: [UInt8]) {
        if vendors.isEmpty { (lengths.vendorBody, lengths.vendorCollapseID) = (body.count, collapseID.count) }
        var vendor = vendor
        (vendor.bodyByteCount, vendor.collapseIDByteCount) = (body.count, collapseID.count)
        vendors.append(vendor)
        arena += body + collapseID
    }

    /// Returns why no device may get a handoff job; `.applies` if the strategy of any vendor allows one.
    package func fallbackReason() -> PublishOutcome.FallbackReason {
        func reason(_ strategy: Strategy) -> PublishOutcome.FallbackReason {
            strategy.fallbackReason(ofTaskWith: timeToLive, hasContent: !vendors.isEmpty)
        }
        let platforms = vendors.map(\.channel.platform)
        let ofVendors = VendorChannel.allCases.filter { platforms.contains($0.platform) }.compactMap {
            vendorStrategies[$0]
        }
        return ofVendors.contains { reason($0) == .applies } ? .applies : reason(strategy)
    }

    /// Returns whether the content for a vendor carries everything that the live channel carries.
    func carriesAll(on channel: VendorChannel) -> Bool {
        channel.platform == .apple ? vendorCarriesAll : carryingPlatforms.contains(PlatformSet(channel.platform))
    }

    package var payload: ArraySlice<UInt8> { arena[..<lengths.payload] }

    /// Calls `body` with the command for one device; the command's pointers are invalid after `body` returns.
    package func withCommand<Result>(for target: Target, _ body: (PublishCommand) throws -> Result) rethrows -> Result {
        // The pieces lie within the arena, which does not change while `body` runs.
        unsafe try arena.withUnsafeBytes { arena in
            var place = 0
            func piece(_ count: Int) -> UnsafeRawBufferPointer {
                defer { place += count }
                return unsafe UnsafeRawBufferPointer(rebasing: arena[place..<place + count])
            }
            let payload = unsafe piece(lengths.payload)
            let collapseKey = unsafe piece(lengths.collapseKey)
            let alertTitle = unsafe piece(lengths.alertTitle)
            let alertBody = unsafe piece(lengths.alertBody)
            var contents = VendorContents()
            for vendor in vendors {
                let body = unsafe piece(vendor.bodyByteCount)
                unsafe contents.add(
                    VendorContent(
                        channel: vendor.channel, tokenKind: vendor.tokenKind, activity: vendor.activity,
                        pushType: vendor.pushType, priority: vendor.priority, badge: vendor.badge, body: body,
                        messageIDOffset: vendor.messageIDOffset, badgeOffset: vendor.badgeOffset,
                        collapseID: piece(vendor.collapseIDByteCount)))
            }
            var command = unsafe PublishCommand(
                origin: target.origin, app: target.app, bucket: target.bucket, cid: target.cid, task: target.task,
                messageDigest: target.messageDigest, strategy: strategy, timeToLive: timeToLive,
                requestKey: target.requestKey, requestDigest: target.requestDigest, isBulk: target.isBulk,
                payload: payload, collapseKey: collapseKey, alertTitle: alertTitle, alertBody: alertBody)
            command.contents = contents
            command.vendorStrategies = vendorStrategies
            command.carryingPlatforms = carryingPlatforms
            command.taskCreatedAt = target.taskCreatedAt
            (command.revokes, command.revokedDigest) = (revokes, target.revokedDigest)
            (command.firstAckWins, command.vendorCarriesAll) = (firstAckWins, vendorCarriesAll)
            guard !customCallback.isEmpty else { return try body(command) }
            return unsafe try customCallback.withUnsafeBytes { text in
                unsafe command.customCallback = text
                return try body(command)
            }
        }
    }

    /// Returns a copy with the task id replaced in the vendor bodies, for a call that began under another id.
    package func renamed(from old: TaskID, to new: TaskID) -> MessageContent {
        var copy = self
        let (name, replacement) = (Array(old.text.utf8), Array(new.text.utf8))
        guard name.count == replacement.count else { return copy }
        var start = lengths.texts
        for vendor in vendors {
            let end = start + vendor.bodyByteCount
            for place in stride(from: start, through: end - name.count, by: 1)
            where arena[place..<place + name.count].elementsEqual(name) {
                copy.arena.replaceSubrange(place..<place + name.count, with: replacement)
            }
            start = end + vendor.collapseIDByteCount
        }
        return copy
    }

    // MARK: The stored form

    static let headerByteCount = 72
    /// The activity's digest follows the pieces, if present.
    static let activityByteCount = 8
    static let strategiesByteCount = 8
    /// The bytes of a further content besides its pieces.
    static let furtherByteCount = 32

    private struct RowFlags: OptionSet {
        let rawValue: UInt8
        static let vendor = RowFlags(rawValue: 1)
        static let activity = RowFlags(rawValue: 2)
        /// Further contents at the end: a count, then each content with its pieces.
        static let further = RowFlags(rawValue: 4)
        /// The vendors' strategies follow the activity's digest.
        static let strategies = RowFlags(rawValue: 8)
        /// A length and the custom callback are the last bytes.
        static let customCallback = RowFlags(rawValue: 16)
    }

    private var activity: UInt64 { vendors.first?.activity ?? 0 }

    var byteCount: Int {
        var count = Self.headerByteCount + arena.count + (activity == 0 ? 0 : Self.activityByteCount)
        if !vendorStrategies.isEmpty { count += Self.strategiesByteCount }
        if vendors.count > 1 { count += 1 + (vendors.count - 1) * Self.furtherByteCount }
        if !customCallback.isEmpty { count += 2 + customCallback.count }
        return count
    }

    func write(_ writer: inout RowWriter) {
        let first = vendors.first
        let badge = Self.stored(first?.badge ?? .none)
        var flags: RowFlags = first == nil ? [] : .vendor
        if activity != 0 { flags.insert(.activity) }
        if vendors.count > 1 { flags.insert(.further) }
        if !vendorStrategies.isEmpty { flags.insert(.strategies) }
        if !customCallback.isEmpty { flags.insert(.customCallback) }
        writer.put(strategy.rawValue)
        writer.put(flags.rawValue)
        writer.put(first.map { ChannelByte.make($0.channel, $0.tokenKind) } ?? 0)
        writer.put(first?.pushType.rawValue ?? 0)
        writer.put(first?.priority ?? 0)
        writer.put(badge.kind)
        writer.put(
            UInt16((firstAckWins ? 1 : 0) | (vendorCarriesAll ? 2 : 0)) | UInt16(carryingPlatforms.rawValue) << 8)
        writer.put(badge.value)
        writer.put(first?.messageIDOffset ?? -1)
        writer.put(first?.badgeOffset ?? -1)
        writer.put(UInt32(0))
        writer.put(timeToLive)
        writer.put(revokes.high)
        writer.put(revokes.low)
        for length in [
            lengths.payload, lengths.collapseKey, lengths.alertTitle, lengths.alertBody, lengths.vendorBody,
            lengths.vendorCollapseID,
        ] { writer.put(UInt32(truncatingIfNeeded: length)) }
        writer.put(arena[..<lengths.sum])
        if activity != 0 { writer.put(activity) }
        if !vendorStrategies.isEmpty { writer.put(vendorStrategies.word) }
        writeFurther(&writer)
        guard !customCallback.isEmpty else { return }
        writer.put(UInt16(truncatingIfNeeded: customCallback.count))
        writer.put(customCallback)
    }

    private func writeFurther(_ writer: inout RowWriter) {
        guard vendors.count > 1 else { return }
        writer.put(UInt8(truncatingIfNeeded: vendors.count - 1))
        var place = lengths.sum
        for vendor in vendors.dropFirst() {
            Self.write(vendor, &writer)
            let end = place + vendor.bodyByteCount + vendor.collapseIDByteCount
            writer.put(arena[place..<end])
            place = end
        }
    }

    private static func stored(_ badge: VendorContent.Badge) -> (kind: UInt8, value: Int32) {
        switch badge {
        case .none: (0, 0)
        case .set(let value): (1, value)
        case .add(let value): (2, value)
        }
    }

    private static func badge(_ kind: UInt8, _ value: Int32) -> VendorContent.Badge {
        kind == 1 ? .set(value) : kind == 2 ? .add(value) : .none
    }

    private static func write(_ vendor: Vendor, _ writer: inout RowWriter) {
        let badge = stored(vendor.badge)
        writer.put(ChannelByte.make(vendor.channel, vendor.tokenKind))
        writer.put(vendor.pushType.rawValue)
        writer.put(vendor.priority)
        writer.put(badge.kind)
        writer.put(badge.value)
        writer.put(vendor.messageIDOffset)
        writer.put(vendor.badgeOffset)
        writer.put(vendor.activity)
        writer.put(UInt32(truncatingIfNeeded: vendor.bodyByteCount))
        writer.put(UInt32(truncatingIfNeeded: vendor.collapseIDByteCount))
    }

    private mutating func readFurther(_ reader: inout RowReader) -> Bool {
        guard let count = reader.next(UInt8.self) else { return false }
        for _ in 0..<count {
            guard let kindByte = reader.next(UInt8.self), let pushByte = reader.next(UInt8.self),
                let priority = reader.next(UInt8.self), let badgeKind = reader.next(UInt8.self),
                let badgeValue = reader.next(Int32.self), let messageIDOffset = reader.next(Int32.self),
                let badgeOffset = reader.next(Int32.self), let activity = reader.next(UInt64.self),
                let bodyCount = reader.next(UInt32.self), let collapseIDCount = reader.next(UInt32.self),
                let body = reader.next(byteCount: Int(bodyCount)),
                let collapseID = reader.next(byteCount: Int(collapseIDCount))
            else { return false }
            guard let channel = ChannelByte.channel(kindByte), let tokenKind = ChannelByte.tokenKind(kindByte),
                let pushType = PushType(rawValue: pushByte)
            else { continue }
            var vendor = Vendor(
                channel: channel, tokenKind: tokenKind, activity: activity, pushType: pushType, priority: priority,
                badge: Self.badge(badgeKind, badgeValue), messageIDOffset: messageIDOffset, badgeOffset: badgeOffset)
            (vendor.bodyByteCount, vendor.collapseIDByteCount) = (body.count, collapseID.count)
            vendors.append(vendor)
            arena += body.array
            arena += collapseID.array
        }
        return true
    }

    init?(_ reader: inout RowReader) {
        guard let strategy = Strategy(rawValue: reader.next() ?? 0), let flagsByte = reader.next(UInt8.self),
            let kindByte = reader.next(UInt8.self), let pushByte = reader.next(UInt8.self),
            let priority = reader.next(UInt8.self),
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
        let flags = RowFlags(rawValue: flagsByte)
        var activity: UInt64 = 0
        if flags.contains(.activity) {
            guard let word = reader.next(UInt64.self) else { return nil }
            activity = word
        }
        var strategies = VendorStrategies()
        if flags.contains(.strategies) {
            guard let word = reader.next(UInt64.self), let stored = VendorStrategies(word: word) else { return nil }
            strategies = stored
        }
        var vendor: Vendor?
        // A content for an unknown channel is dropped.
        if flags.contains(.vendor), let channel = ChannelByte.channel(kindByte),
            let tokenKind = ChannelByte.tokenKind(kindByte), let pushType = PushType(rawValue: pushByte)
        {
            vendor = Vendor(
                channel: channel, tokenKind: tokenKind, activity: activity, pushType: pushType, priority: priority,
                badge: Self.badge(badgeKind, badgeValue), messageIDOffset: messageIDOffset, badgeOffset: badgeOffset)
        } else {
            (lengths.vendorBody, lengths.vendorCollapseID) = (0, 0)
        }
        self.init(
            strategy: strategy, timeToLive: timeToLive, vendor: vendor, revokes: revokes, lengths: lengths,
            arena: bytes.prefix(lengths.sum))
        (firstAckWins, vendorCarriesAll) = (choices & 1 != 0, choices & 2 != 0)
        vendorStrategies = strategies
        carryingPlatforms = PlatformSet(rawValue: UInt8(truncatingIfNeeded: choices >> 8))
        if flags.contains(.further) {
            // If the first content was dropped, `lengths` must describe the next content.
            guard readFurther(&reader) else { return nil }
            if vendor == nil, let first = vendors.first {
                let byteCounts = (first.bodyByteCount, first.collapseIDByteCount)
                (self.lengths.vendorBody, self.lengths.vendorCollapseID) = byteCounts
            }
        }
        guard flags.contains(.customCallback) else { return }
        guard let count = reader.next(UInt16.self), Int(count) <= MessageBounds.customCallbackByteCount,
            let text = reader.next(byteCount: Int(count))
        else { return nil }
        customCallback = text.array
    }
}
