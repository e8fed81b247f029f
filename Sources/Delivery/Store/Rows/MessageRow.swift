public import Wire

/// A stored message, read in place: a fixed header, then payload, collapse key, alert, vendor body, collapse id.
///
/// A row of the table `message` or `vendorMessage`. The initialiser checks all lengths against each other, so no
/// accessor can reach outside.
public struct MessageRow {
    /// The version this code writes, and the only one it reads.
    public static let version: UInt8 = 1
    package static let headerByteCount = 128

    public let bytes: UnsafeRawBufferPointer
    private let payloadEnd: Int
    private let collapseKeyEnd: Int
    private let titleEnd: Int
    private let alertBodyEnd: Int
    private let vendorBodyEnd: Int

    /// - Returns: `nil` when the bytes are no message row of a known version.
    public init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count >= Self.headerByteCount, bytes[0] == Self.version, Strategy(rawValue: bytes[2]) != nil,
            Bucket(exactly: Self.word(bytes, 40) >> 48) != nil
        else { return nil }
        let payload = Int(Self.half(bytes, 8)), vendorBody = Int(Self.half(bytes, 12))
        let title = Int(Self.half(bytes, 16)), alertBody = Int(Self.half(bytes, 20))
        let collapseKey = Int(Self.quarter(bytes, 6)), collapseID = Int(Self.quarter(bytes, 24))
        payloadEnd = Self.headerByteCount + payload
        collapseKeyEnd = payloadEnd + collapseKey
        titleEnd = collapseKeyEnd + title
        alertBodyEnd = titleEnd + alertBody
        vendorBodyEnd = alertBodyEnd + vendorBody
        guard vendorBodyEnd + collapseID == bytes.count else { return nil }
        self.bytes = bytes
    }

    public var messageID: MessageID { MessageID(high: Self.word(bytes, 40), low: Self.word(bytes, 48)) }
    public var taskID: TaskID { TaskID(high: Self.word(bytes, 56), low: Self.word(bytes, 64)) }
    public var acceptedAt: GatewayTime { Int64(bitPattern: Self.word(bytes, 72)) }
    public var expiresAt: GatewayTime { Int64(bitPattern: Self.word(bytes, 80)) }
    public var app: AppKey { AppKey(Self.word(bytes, 104)) }
    public var strategy: Strategy { Strategy(stored: bytes[2]) }
    /// The task that this message withdraws; `nil` for an ordinary message.
    public var revokedTask: TaskID? {
        guard MessageFacts.Flags(rawValue: bytes[1]).contains(.revoke), payload.count == 16 else { return nil }
        return TaskID(bytes: payload)
    }
    public var payload: UnsafeRawBufferPointer { part(Self.headerByteCount, payloadEnd) }
    public var collapseKey: UnsafeRawBufferPointer { part(payloadEnd, collapseKeyEnd) }
    /// Title and body are both empty when the publish had no alert.
    public var alertTitle: UnsafeRawBufferPointer { part(collapseKeyEnd, titleEnd) }
    public var alertBody: UnsafeRawBufferPointer { part(titleEnd, alertBodyEnd) }

    /// The vendor's content; `nil` when the publish had none.
    package var vendor: VendorContent? {
        guard MessageFacts.Flags(rawValue: bytes[1]).contains(.hasVendorContent) else { return nil }
        let badge: VendorContent.Badge =
            switch bytes[5] {
            case 1: .set(Int32(bitPattern: Self.half(bytes, 36)))
            case 2: .add(Int32(bitPattern: Self.half(bytes, 36)))
            default: .none
            }
        // A content for a channel that this version does not know is none.
        guard let channel = VendorChannel(rawValue: bytes[26]) else { return nil }
        return VendorContent(
            channel: channel, tokenKind: TokenKind(rawValue: bytes[3] & 15) ?? .alert, activity: Self.word(bytes, 120),
            pushType: PushType(rawValue: bytes[3] >> 4) ?? .alert,
            priority: bytes[4], badge: badge, body: part(alertBodyEnd, vendorBodyEnd),
            messageIDOffset: Int32(bitPattern: Self.half(bytes, 28)),
            badgeOffset: Int32(bitPattern: Self.half(bytes, 32)), collapseID: part(vendorBodyEnd, bytes.count))
    }

    func facts(cid: DeviceID, table: StoreKey.Table, item: UInt64) -> MessageFacts {
        MessageFacts(
            message: messageID, task: taskID, app: app, cid: cid, strategy: strategy,
            flags: MessageFacts.Flags(rawValue: bytes[1]), table: table, item: item, acceptedAt: acceptedAt,
            expiresAt: expiresAt, fallbackAt: Int64(bitPattern: Self.word(bytes, 88)),
            wakeAt: Int64(bitPattern: Self.word(bytes, 96)), timeToLive: Int64(bitPattern: Self.word(bytes, 112)),
            byteCount: UInt32(truncatingIfNeeded: bytes.count), channels: channels)
    }

    /// The channels that it has a content for, also those that this version does not know.
    private var channels: ChannelSet {
        guard MessageFacts.Flags(rawValue: bytes[1]).contains(.hasVendorContent) else { return [] }
        return ChannelSet(rawValue: 1 << UInt16(bytes[26] & 15))
    }

    /// The content for a channel; `nil` when it has none.
    package func content(for channel: VendorChannel) -> VendorContent? {
        vendor.flatMap { $0.channel == channel ? $0 : nil }
    }

    private func part(_ start: Int, _ end: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: bytes[start..<end])
    }

    private static func word(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt64 {
        UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }

    private static func half(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
        UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    private static func quarter(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt16 {
        UInt16(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
    }
}

extension MessageRow {
    /// The size of the row that `write` makes of a command.
    static func byteCount(_ command: borrowing PublishCommand) -> Int {
        headerByteCount + command.payload.count + command.collapseKey.count + command.alertTitle.count
            + command.alertBody.count + (command.vendor.map { $0.body.count + $0.collapseID.count } ?? 0)
    }

    /// Fills exactly `byteCount(command)` bytes.
    static func write(
        _ command: borrowing PublishCommand, facts: MessageFacts, into bytes: UnsafeMutableRawBufferPointer
    ) {
        var badge: (kind: UInt8, value: Int32) = (0, 0)
        switch command.vendor?.badge {
        case .set(let value): badge = (1, value)
        case .add(let value): badge = (2, value)
        default: break
        }
        let kinds = command.vendor.map { $0.tokenKind.rawValue | $0.pushType.rawValue << 4 } ?? 0
        var writer = RowWriter(bytes)
        writer.put(version)
        writer.put(facts.flags.rawValue)
        writer.put(facts.strategy.rawValue)
        writer.put(kinds)
        writer.put(command.vendor?.priority ?? 0)
        writer.put(badge.kind)
        writer.put(UInt16(truncatingIfNeeded: command.collapseKey.count))
        writer.put(UInt32(truncatingIfNeeded: command.payload.count))
        writer.put(UInt32(truncatingIfNeeded: command.vendor?.body.count ?? 0))
        writer.put(UInt32(truncatingIfNeeded: command.alertTitle.count))
        writer.put(UInt32(truncatingIfNeeded: command.alertBody.count))
        writer.put(UInt16(truncatingIfNeeded: command.vendor?.collapseID.count ?? 0))
        writer.put(UInt16(command.vendor?.channel.rawValue ?? 0))
        writer.put(command.vendor?.messageIDOffset ?? -1)
        writer.put(command.vendor?.badgeOffset ?? -1)
        writer.put(badge.value)
        writeIdentity(facts, &writer)
        writer.put(command.vendor?.activity ?? 0)
        writer.put(command.payload)
        writer.put(command.collapseKey)
        writer.put(command.alertTitle)
        writer.put(command.alertBody)
        if let vendor = command.vendor {
            writer.put(vendor.body)
            writer.put(vendor.collapseID)
        }
    }

    /// Copies a row with other facts: for a message that moves from the vendor table into the live stream.
    static func copy(_ row: MessageRow, facts: MessageFacts, into bytes: UnsafeMutableRawBufferPointer) {
        bytes.copyMemory(from: row.bytes)
        bytes[1] = facts.flags.rawValue
        var writer = RowWriter(UnsafeMutableRawBufferPointer(rebasing: bytes[40...]))
        writeIdentity(facts, &writer)
    }

    private static func writeIdentity(_ facts: MessageFacts, _ writer: inout RowWriter) {
        writer.put(facts.message.high)
        writer.put(facts.message.low)
        writer.put(facts.task.high)
        writer.put(facts.task.low)
        writer.put(facts.acceptedAt)
        writer.put(facts.expiresAt)
        writer.put(facts.fallbackAt)
        writer.put(facts.wakeAt)
        writer.put(facts.app.word)
        writer.put(facts.timeToLive)
    }
}
