package import Wire

/// A stored message, read in place: ids, times, texts, vendor contents and payload.
///
/// A row of the table `message` or `vendorMessage`. Absent fields take no bytes; times are relative to the acceptance. `@safe`:
/// the initializer checks all lengths, so no accessor reads outside the row. The caller must keep the bytes valid because the
/// texts are pointers into them.
@safe package struct MessageRow {
    package static let version: UInt8 = 1

    package let bytes: UnsafeRawBufferPointer
    package let messageID: MessageID
    package let taskID: TaskID
    package let app: AppKey
    package let acceptedAt: GatewayTime
    package let expiresAt: GatewayTime
    package let strategy: Strategy
    private let flags: MessageFacts.Flags
    /// See `PublishCommand.vendorCarriesAll`.
    package let vendorCarriesAll: Bool
    private let hasCallback: Bool
    private let timeToLive: Int64
    private let fallbackAt: GatewayTime
    private let wakeAt: GatewayTime
    private let places: Places
    private let channels: ChannelSet

    private struct Places {
        var payload = 0
        var payloadEnd = 0
        var collapseKey = 0
        var collapseKeyEnd = 0
        var title = 0
        var titleEnd = 0
        var alertEnd = 0
        var contents = 0
        var contentsEnd = 0
    }

    /// The flags for optional fields and compact forms; the lowest four bits are the strategy.
    private struct Form: OptionSet {
        let rawValue: UInt16
        static let plainTask = Form(rawValue: 1 << 4)
        /// The expiry follows from the TTL.
        static let plainExpiry = Form(rawValue: 1 << 5)
        /// The TTL is stored in seconds.
        static let seconds = Form(rawValue: 1 << 6)
        /// The time of acceptance differs from the one in the msgId.
        static let otherTime = Form(rawValue: 1 << 7)
        /// The row has a deadline of the live attempt.
        static let fallback = Form(rawValue: 1 << 8)
        /// The row's alarm is the live deadline (`wakesAtFallback`) or the expiry (`wakesAtExpiry`); without both flags it is
        /// stored.
        static let wakesAtFallback = Form(rawValue: 1 << 9)
        static let wakesAtExpiry = Form(rawValue: 1 << 10)
        static let collapseKey = Form(rawValue: 1 << 11)
        static let alert = Form(rawValue: 1 << 12)
        static let contents = Form(rawValue: 1 << 13)
        /// See `PublishCommand.vendorCarriesAll`.
        static let vendorCarriesAll = Form(rawValue: 1 << 14)
        /// See `MessageFacts.hasCallback`.
        static let callback = Form(rawValue: 1 << 15)

        init(rawValue: UInt16) { self.rawValue = rawValue }

        init(_ texts: borrowing Texts, _ facts: MessageFacts) {
            var form = Form(rawValue: UInt16(facts.strategy.rawValue))
            if RowWriter.isPlain(facts.task) { form.insert(.plainTask) }
            if facts.expiresAt == facts.acceptedAt &+ max(0, facts.timeToLive) { form.insert(.plainExpiry) }
            if facts.timeToLive % 1_000 == 0 { form.insert(.seconds) }
            if facts.acceptedAt != facts.message.acceptedAtMilliseconds { form.insert(.otherTime) }
            if facts.fallbackAt != 0 { form.insert(.fallback) }
            if facts.wakeAt == facts.expiresAt {
                form.insert(.wakesAtExpiry)
            } else if facts.wakeAt == facts.fallbackAt {
                form.insert(.wakesAtFallback)
            }
            if unsafe texts.collapseKey.count > 0 { form.insert(.collapseKey) }
            if unsafe texts.alertTitle.count + texts.alertBody.count > 0 { form.insert(.alert) }
            if !texts.contents.isEmpty { form.insert(.contents) }
            if facts.vendorCarriesAll { form.insert(.vendorCarriesAll) }
            if facts.hasCallback { form.insert(.callback) }
            self = form
        }

        var strategy: Strategy? { Strategy(rawValue: UInt8(rawValue & 15)) }
    }

    /// - Returns: `nil` unless the bytes are a message row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let flags = reader.next(UInt8.self),
            let form = reader.next(UInt16.self).map(Form.init), let strategy = form.strategy,
            let message = reader.nextIdentifier(MessageID.self), message.bucket != nil,
            let task = reader.nextTask(isPlain: form.contains(.plainTask)), let app = reader.next(UInt64.self),
            var timeToLive = reader.nextSigned(),
            let difference = form.contains(.otherTime) ? reader.nextSigned() : 0
        else { return nil }
        if form.contains(.seconds) { timeToLive = timeToLive &* 1_000 }
        let acceptedAt = message.acceptedAtMilliseconds &+ difference
        guard let wait = form.contains(.plainExpiry) ? max(0, timeToLive) : reader.nextSigned() else { return nil }
        let expiresAt = acceptedAt &+ wait
        var fallbackAt: GatewayTime = 0
        if form.contains(.fallback) {
            guard let delay = reader.nextSigned() else { return nil }
            fallbackAt = acceptedAt &+ delay
        }
        var wakeAt = expiresAt
        if form.contains(.wakesAtFallback) {
            wakeAt = fallbackAt
        } else if !form.contains(.wakesAtExpiry) {
            guard let delay = reader.nextSigned() else { return nil }
            wakeAt = acceptedAt &+ delay
        }
        var places = Places()
        var channels: ChannelSet = []
        if form.contains(.collapseKey) {
            guard let count = reader.nextCount(), reader.skip(count) else { return nil }
            (places.collapseKey, places.collapseKeyEnd) = (reader.offset - count, reader.offset)
        }
        if form.contains(.alert) {
            guard let titleCount = reader.nextCount(), let bodyCount = reader.nextCount() else { return nil }
            places.title = reader.offset
            guard reader.skip(titleCount) else { return nil }
            places.titleEnd = reader.offset
            guard reader.skip(bodyCount) else { return nil }
            places.alertEnd = reader.offset
        }
        if form.contains(.contents) {
            places.contents = reader.offset
            guard let contentCount = reader.next(UInt8.self) else { return nil }
            for _ in 0..<contentCount {
                guard let channel = reader.next(UInt8.self), let count = reader.nextCount(), reader.skip(count) else {
                    return nil
                }
                channels.insert(ChannelSet(rawValue: 1 << UInt16(channel)))
            }
            places.contentsEnd = reader.offset
        }
        (places.payload, places.payloadEnd) = (reader.offset, bytes.count)
        unsafe self.bytes = bytes
        (messageID, taskID, self.app) = (message, task, AppKey(app))
        (self.acceptedAt, self.expiresAt, self.timeToLive) = (acceptedAt, expiresAt, timeToLive)
        (self.fallbackAt, self.wakeAt, self.strategy) = (fallbackAt, wakeAt, strategy)
        (self.flags, self.places, self.channels) = (MessageFacts.Flags(rawValue: flags), places, channels)
        vendorCarriesAll = form.contains(.vendorCarriesAll)
        hasCallback = form.contains(.callback)
    }

    package var payload: UnsafeRawBufferPointer { unsafe part(places.payload, places.payloadEnd) }
    package var collapseKey: UnsafeRawBufferPointer { unsafe part(places.collapseKey, places.collapseKeyEnd) }
    /// Title and body are both empty without an alert.
    package var alertTitle: UnsafeRawBufferPointer { unsafe part(places.title, places.titleEnd) }
    package var alertBody: UnsafeRawBufferPointer { unsafe part(places.titleEnd, places.alertEnd) }
    /// The task that this message revokes; `nil` for other messages.
    package var revokedTask: TaskID? {
        guard flags.contains(.revoke), unsafe payload.count == 16 else { return nil }
        return unsafe TaskID(bytes: payload)
    }

    /// The vendor contents; invalid contents and contents of unknown channels are left out.
    package var contents: VendorContents {
        var contents = VendorContents()
        guard places.contents < places.contentsEnd else { return contents }
        var reader = unsafe RowReader(part(places.contents, places.contentsEnd))
        guard let contentCount = reader.next(UInt8.self) else { return contents }
        for _ in 0..<contentCount {
            guard let channel = reader.next(UInt8.self), let count = reader.nextCount(),
                let bytes = reader.next(byteCount: count)
            else { break }
            if let channel = VendorChannel(rawValue: channel), let content = ContentBytes.read(bytes, for: channel) {
                contents.add(content)
            }
        }
        return contents
    }

    package var vendor: VendorContent? { contents.first }

    package func content(for channel: VendorChannel) -> VendorContent? { contents[channel.platform] }

    func facts(cid: DeviceID, table: StoreKey.Table, item: UInt64) -> MessageFacts {
        var followUpAt: GatewayTime = 0
        if !channels.isDisjoint(with: .followUps), let followUp = contents.followUp {
            followUpAt = acceptedAt &+ followUp.followUpDelay
        }
        return unsafe MessageFacts(
            message: messageID, task: taskID, app: app, cid: cid, strategy: strategy, flags: flags, table: table,
            vendorCarriesAll: vendorCarriesAll, hasCallback: hasCallback, item: item, acceptedAt: acceptedAt,
            expiresAt: expiresAt,
            fallbackAt: fallbackAt, wakeAt: wakeAt, timeToLive: timeToLive, byteCount: Self.charge(bytes.count),
            channels: channels, followUpAt: followUpAt)
    }

    private func part(_ start: Int, _ end: Int) -> UnsafeRawBufferPointer {
        unsafe UnsafeRawBufferPointer(rebasing: bytes[start..<end])
    }
}

// MARK: Sizes

extension MessageRow {
    /// The size of the smallest row: a plain task, an expiry that follows from the TTL, and no text.
    static let smallestByteCount = 4 + 16 + 14 + 8 + 1
    package static let overheadByteCount =
        4 + 16 + 16 + 8 + 5 * RowWriter.varintByteCount + 3 * RowWriter.varintByteCount
        + ContentBytes.overheadByteCount + ContentBytes.followUpOverheadByteCount

    /// The bytes charged for a message besides its row, for keys and memory; the smallest message is charged 128 bytes in total.
    static let chargeBesideRow = 128 - smallestByteCount

    static func charge(_ byteCount: Int) -> UInt32 { UInt32(truncatingIfNeeded: byteCount + chargeBesideRow) }

    static func byteCountLimit(_ command: borrowing PublishCommand) -> Int {
        // Times are stored as differences; six bytes cover 69 years.
        let texts = Texts(command)
        return 4 + 16 + 16 + 8 + 4 * 6 + texts.byteCount
    }
}

// MARK: Writing

extension MessageRow {
    /// The publisher's texts of a row.
    ///
    /// `@safe`: only `write` reads them, while their owner keeps them valid.
    @safe struct Texts {
        var payload: UnsafeRawBufferPointer
        var collapseKey: UnsafeRawBufferPointer
        var alertTitle: UnsafeRawBufferPointer
        var alertBody: UnsafeRawBufferPointer
        var contents: VendorContents

        init(_ command: borrowing PublishCommand) {
            unsafe (payload, collapseKey) = (command.payload, command.collapseKey)
            unsafe (alertTitle, alertBody, contents) = (command.alertTitle, command.alertBody, command.contents)
        }

        /// Creates the texts of a message that moves to another table.
        init(_ row: MessageRow) {
            unsafe (payload, collapseKey) = (row.payload, row.collapseKey)
            unsafe (alertTitle, alertBody, contents) = (row.alertTitle, row.alertBody, row.contents)
        }

        var byteCount: Int {
            var count = unsafe payload.count
            if unsafe collapseKey.count > 0 { unsafe count += RowWriter.byteCount(part: collapseKey.count) }
            if unsafe alertTitle.count + alertBody.count > 0 {
                unsafe count += RowWriter.byteCount(part: alertTitle.count) + RowWriter.byteCount(part: alertBody.count)
            }
            if !contents.isEmpty {
                count += 1
                contents.forEach { count += 1 + RowWriter.byteCount(part: ContentBytes.byteCount($0)) }
            }
            return count
        }
    }

    /// Returns the size of the row that `write` fills.
    static func byteCount(_ texts: borrowing Texts, facts: MessageFacts) -> Int {
        let form = Form(texts, facts)
        var count = 4 + 16 + (form.contains(.plainTask) ? 14 : 16) + 8
        count += RowWriter.byteCount(signed: storedTimeToLive(facts, form))
        if form.contains(.otherTime) {
            count += RowWriter.byteCount(signed: facts.acceptedAt &- facts.message.acceptedAtMilliseconds)
        }
        if !form.contains(.plainExpiry) { count += RowWriter.byteCount(signed: facts.expiresAt &- facts.acceptedAt) }
        if form.contains(.fallback) { count += RowWriter.byteCount(signed: facts.fallbackAt &- facts.acceptedAt) }
        if form.isDisjoint(with: [.wakesAtFallback, .wakesAtExpiry]) {
            count += RowWriter.byteCount(signed: facts.wakeAt &- facts.acceptedAt)
        }
        return count + texts.byteCount
    }

    /// Fills exactly `byteCount` bytes.
    static func write(_ texts: borrowing Texts, facts: MessageFacts, into bytes: UnsafeMutableRawBufferPointer) {
        let form = Form(texts, facts)
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(facts.flags.rawValue)
        writer.put(form.rawValue)
        writer.put(facts.message.high)
        writer.put(facts.message.low)
        writer.put(facts.task, isPlain: form.contains(.plainTask))
        writer.put(facts.app.word)
        writer.put(signed: storedTimeToLive(facts, form))
        if form.contains(.otherTime) {
            writer.put(signed: facts.acceptedAt &- facts.message.acceptedAtMilliseconds)
        }
        if !form.contains(.plainExpiry) { writer.put(signed: facts.expiresAt &- facts.acceptedAt) }
        if form.contains(.fallback) { writer.put(signed: facts.fallbackAt &- facts.acceptedAt) }
        if form.isDisjoint(with: [.wakesAtFallback, .wakesAtExpiry]) {
            writer.put(signed: facts.wakeAt &- facts.acceptedAt)
        }
        if form.contains(.collapseKey) { unsafe writer.put(part: texts.collapseKey) }
        if form.contains(.alert) {
            unsafe writer.put(varint: UInt64(texts.alertTitle.count))
            unsafe writer.put(varint: UInt64(texts.alertBody.count))
            unsafe writer.put(texts.alertTitle)
            unsafe writer.put(texts.alertBody)
        }
        if form.contains(.contents) {
            var count: UInt8 = 0
            texts.contents.forEach { _ in count += 1 }
            writer.put(count)
            texts.contents.forEach { content in
                writer.put(content.channel.rawValue)
                writer.put(varint: UInt64(ContentBytes.byteCount(content)))
                ContentBytes.write(content, &writer)
            }
        }
        unsafe writer.put(texts.payload)
    }

    private static func storedTimeToLive(_ facts: MessageFacts, _ form: Form) -> Int64 {
        form.contains(.seconds) ? facts.timeToLive / 1_000 : facts.timeToLive
    }
}

/// One vendor's content in a message's row, stored after its channel and length.
///
/// A reader can therefore skip the content of an unknown channel.
private enum ContentBytes {
    private struct Form: OptionSet {
        let rawValue: UInt8
        static let setsBadge = Form(rawValue: 1)
        static let addsToBadge = Form(rawValue: 2)
        static let messageIDHole = Form(rawValue: 4)
        static let badgeHole = Form(rawValue: 8)
        static let collapseID = Form(rawValue: 16)
        static let activity = Form(rawValue: 32)

        init(rawValue: UInt8) { self.rawValue = rawValue }

        init(_ content: VendorContent) {
            var form: Form = []
            switch content.badge {
            case .none: break
            case .set: form.insert(.setsBadge)
            case .add: form.insert(.addsToBadge)
            }
            if content.messageIDOffset >= 0 { form.insert(.messageIDHole) }
            if content.badgeOffset >= 0 { form.insert(.badgeHole) }
            if unsafe content.collapseID.count > 0 { form.insert(.collapseID) }
            if content.activity != 0 { form.insert(.activity) }
            self = form
        }
    }

    /// The maximum size of a content without its texts, including the count of contents, its channel and its length.
    static let overheadByteCount = 2 + RowWriter.varintByteCount + 3 + 8 + 3 * 5 + RowWriter.varintByteCount

    /// The size of a follow-up's channel, length, fixed fields and delay.
    static let followUpOverheadByteCount = 1 + RowWriter.varintByteCount + 3 + 8

    static func byteCount(_ content: VendorContent) -> Int {
        var count = unsafe 3 + content.body.count + (content.activity == 0 ? 0 : 8)
        switch content.badge {
        case .none: break
        case .set(let value), .add(let value): count += RowWriter.byteCount(signed: Int64(value))
        }
        for offset in [content.messageIDOffset, content.badgeOffset] where offset >= 0 {
            count += RowWriter.byteCount(varint: UInt64(offset))
        }
        if unsafe content.collapseID.count > 0 { unsafe count += RowWriter.byteCount(part: content.collapseID.count) }
        return count
    }

    static func write(_ content: VendorContent, _ writer: inout RowWriter) {
        writer.put(Form(content).rawValue)
        writer.put(content.tokenKind.rawValue | content.pushType.rawValue << 4)
        writer.put(content.priority)
        if content.activity != 0 { writer.put(content.activity) }
        switch content.badge {
        case .none: break
        case .set(let value), .add(let value): writer.put(signed: Int64(value))
        }
        for offset in [content.messageIDOffset, content.badgeOffset] where offset >= 0 {
            writer.put(varint: UInt64(offset))
        }
        if unsafe content.collapseID.count > 0 { unsafe writer.put(part: content.collapseID) }
        unsafe writer.put(content.body)
    }

    /// - Returns: `nil` for invalid bytes.
    static func read(_ bytes: LentBytes, for channel: VendorChannel) -> VendorContent? {
        var reader = RowReader(bytes)
        guard let form = reader.next(UInt8.self).map(Form.init), let kinds = reader.next(UInt8.self),
            let tokenKind = TokenKind(rawValue: kinds & 15), let pushType = PushType(rawValue: kinds >> 4),
            let priority = reader.next(UInt8.self),
            let activity = form.contains(.activity) ? reader.next(UInt64.self) : 0
        else { return nil }
        var badge = VendorContent.Badge.none
        if !form.isDisjoint(with: [.setsBadge, .addsToBadge]) {
            guard let value = reader.nextSigned().flatMap({ Int32(exactly: $0) }) else { return nil }
            badge = form.contains(.setsBadge) ? .set(value) : .add(value)
        }
        guard let messageIDOffset = form.contains(.messageIDHole) ? reader.nextOffset() : -1,
            let badgeOffset = form.contains(.badgeHole) ? reader.nextOffset() : -1,
            let collapseIDCount = form.contains(.collapseID) ? reader.nextCount() : 0,
            let collapseID = reader.next(byteCount: collapseIDCount),
            let body = reader.next(byteCount: bytes.count - reader.offset)
        else { return nil }
        return unsafe VendorContent(
            channel: channel, tokenKind: tokenKind, activity: activity, pushType: pushType, priority: priority,
            badge: badge, body: body.pointer, messageIDOffset: messageIDOffset, badgeOffset: badgeOffset,
            collapseID: collapseID.pointer)
    }
}
