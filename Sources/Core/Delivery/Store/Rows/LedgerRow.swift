package import Wire

/// The outcome of one message of a task, written at its acceptance and again at its end.
///
/// Reports are sums over these rows. Repeated calls are answered from them, and a stop finds the task's pending messages in them.
package struct LedgerRow: Equatable {
    static let version: UInt8 = 1
    package static let fixedByteCount = 72
    static let queuedBlocks = QueuedBlocks.count(MessageRow.charge(fixedByteCount))

    struct Flags: OptionSet, Equatable {
        let rawValue: UInt8
        static let live = Flags(rawValue: 1)
        /// The message was sent on the live channel.
        static let sent = Flags(rawValue: 2)
        static let alerted = Flags(rawValue: 4)
        /// The first acked message of a task with `firstAckWins`; see Shard+FirstAck.swift.
        static let firstAck = Flags(rawValue: 8)
        /// The send was counted at acceptance.
        static let sendCounted = Flags(rawValue: 16)
        /// The message ended in the batch that accepted it.
        static let endedAtOnce = Flags(rawValue: 32)
        /// See `MessageFacts.hasCallback`.
        static let callback = Flags(rawValue: 64)
    }

    package var cid: DeviceID
    var app: AppKey
    var flags: Flags
    /// The final state; `nil` while pending.
    package var state: FinalState?
    var fallback: PublishOutcome.Fallback
    var fallbackReason: PublishOutcome.FallbackReason
    var acceptedAt: GatewayTime
    var endedAt: GatewayTime = 0
    var timeToLive: Int64
    /// The message's table at its acceptance.
    var table: StoreKey.Table
    var item: UInt64
    package var reason = ""
    /// The channel of the message's fallback or alert; `nil` without vendor content.
    var vendor: VendorChannel?

    var byteCount: Int { Self.fixedByteCount + RowWriter.byteCount(text: reason) }

    func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(state?.rawValue ?? 0)
        writer.put(flags.rawValue)
        writer.put(fallback.rawValue)
        writer.put(fallbackReason.rawValue)
        writer.put(table.rawValue)
        writer.put(UInt16(VendorChannel.nibble(of: vendor)))
        writer.put(app.word)
        writer.put(cid.high)
        writer.put(cid.low)
        writer.put(acceptedAt)
        writer.put(endedAt)
        writer.put(timeToLive)
        writer.put(item)
        writer.put(UInt64(0))
        writer.put(text: reason)
    }

    /// - Returns: `nil` unless the bytes are a ledger row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let state = reader.next(UInt8.self),
            let flags = reader.next(UInt8.self),
            let fallback = PublishOutcome.Fallback(rawValue: reader.next() ?? .max),
            let fallbackReason = PublishOutcome.FallbackReason(rawValue: reader.next() ?? .max),
            let table = StoreKey.Table(rawValue: reader.next() ?? 0), let vendor = reader.next(UInt16.self),
            let app = reader.next(UInt64.self), let cid = reader.nextIdentifier(DeviceID.self),
            let acceptedAt = reader.next(Int64.self), let endedAt = reader.next(Int64.self),
            let timeToLive = reader.next(Int64.self), let item = reader.next(UInt64.self),
            reader.next(UInt64.self) != nil, let reason = reader.nextText(),
            state == 0 || FinalState(rawValue: state) != nil
        else { return nil }
        self.init(
            cid: cid, app: AppKey(app), flags: Flags(rawValue: flags), state: FinalState(rawValue: state),
            fallback: fallback, fallbackReason: fallbackReason, acceptedAt: acceptedAt, endedAt: endedAt,
            timeToLive: timeToLive, table: table, item: item, reason: reason,
            vendor: VendorChannel.channel(ofNibble: UInt8(truncatingIfNeeded: vendor)))
    }

    init(
        cid: DeviceID, app: AppKey, flags: Flags, state: FinalState?, fallback: PublishOutcome.Fallback,
        fallbackReason: PublishOutcome.FallbackReason, acceptedAt: GatewayTime, endedAt: GatewayTime = 0,
        timeToLive: Int64, table: StoreKey.Table, item: UInt64, reason: String = "", vendor: VendorChannel? = nil
    ) {
        self.vendor = vendor
        (self.cid, self.app, self.flags, self.state) = (cid, app, flags, state)
        (self.fallback, self.fallbackReason) = (fallback, fallbackReason)
        (self.acceptedAt, self.endedAt, self.timeToLive) = (acceptedAt, endedAt, timeToLive)
        (self.table, self.item, self.reason) = (table, item, reason)
    }

    /// Whether the device may have seen the message, so a revoke must reach the device.
    var wasSeen: Bool {
        guard flags.isDisjoint(with: [.sent, .alerted]) else { return true }
        switch state {
        case .delivered, .deliveredOffline, .opened, .handedOff: return true
        default: return false
        }
    }
}

/// An event of a task's message, such as `opened`; each event has its own row, so a repeated report counts once.
package struct TaskEventRow: Equatable {
    package enum Event: UInt8 { case shown = 1, opened, alerted, action }

    static let version: UInt8 = 1
    package static let byteCount = 24

    package var event: Event
    /// Whether the event concerns the vendor's alert rather than the live channel.
    package var isVendor: Bool
    package var action: UInt32 = 0
    var time: GatewayTime

    /// Returns the row's item: 48 bits of the message's digest, distinct for all devices of a bucket, and 16 of the event.
    static func item(_ message: MessageID, _ event: Event, action: UInt32) -> UInt64 {
        let code = event == .action ? 0x1000 | UInt64(action & 0xFFF) : UInt64(event.rawValue)
        return message.low & ~0xFFFF | code
    }

    func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(event.rawValue)
        writer.put(UInt8(isVendor ? 1 : 0))
        writer.put(UInt8(0))
        writer.put(action)
        writer.put(time)
        writer.put(UInt64(0))
    }

    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let event = Event(rawValue: reader.next() ?? 0),
            let vendor = reader.next(UInt8.self), reader.next(UInt8.self) != nil,
            let action = reader.next(UInt32.self), let time = reader.next(Int64.self)
        else { return nil }
        self.init(event: event, isVendor: vendor != 0, action: action, time: time)
    }

    init(event: Event, isVendor: Bool, action: UInt32 = 0, time: GatewayTime) {
        (self.event, self.isVendor, self.action, self.time) = (event, isVendor, action, time)
    }
}
