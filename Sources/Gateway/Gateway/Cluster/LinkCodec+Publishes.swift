internal import Quotas
internal import Delivery
internal import Wire

// Publishes and lists are encoded field by field. An entry starts with its length, so an older release can skip fields that a
// newer release appended.

extension LinkCodec {
    /// The byte offsets in the fixed part of a publish.
    private enum Entry {
        static let route = 0
        static let request = 8
        static let app = 16
        static let cid = 24
        static let task = 40
        static let digest = 56
        static let timeToLive = 64
        static let bucket = 72
        static let strategy = 74
        static let contentCount = 75
        static let flags = 76
        static let collapseKeyCount = 78
        static let payloadCount = 80
        static let titleCount = 84
        static let bodyCount = 88
        static let byteCount = 92

        static let requestByteCount = 24
        static let createdAtByteCount = 8
        static let revokeByteCount = 24
        static let vendorStrategiesByteCount = 8
        /// The size of the custom callback's length field; the callback's bytes are the last of the entry.
        static let callbackByteCount = 2
        static let contentByteCount = 36
    }

    private struct Flags: OptionSet {
        let rawValue: UInt16
        static let isBulk = Flags(rawValue: 1)
        static let firstAckWins = Flags(rawValue: 2)
        static let hasRequest = Flags(rawValue: 4)
        static let hasCreatedAt = Flags(rawValue: 8)
        static let hasRevoke = Flags(rawValue: 16)
        static let vendorCarriesAll = Flags(rawValue: 32)
        static let hasVendorStrategies = Flags(rawValue: 64)
        static let hasCallback = Flags(rawValue: 128)
        /// `PublishCommand.carryingPlatforms` is in the high byte.
        static func carrying(_ platforms: PlatformSet) -> Flags { Flags(rawValue: UInt16(platforms.rawValue) << 8) }
        var carrying: PlatformSet { PlatformSet(rawValue: UInt8(truncatingIfNeeded: rawValue >> 8)) }
    }

    /// A bound above every valid time to live, low enough that sums with a time to live cannot overflow.
    static let timeToLiveLimit: Int64 = 1 << 40

    // MARK: To bytes

    static func encode(
        _ batch: CommandBatch, part: Int, into block: LinkBlock, _ remainder: inout Remainder, number: () -> UInt32
    ) {
        var start: Int?
        var count: UInt32 = 0
        func end() {
            guard let frame = start else { return }
            block.patch(count, at: frame + LinkFrame.headerByteCount + 4)
            block.endFrame(frame)
            (start, count) = (nil, 0)
        }
        batch.forEach { command in
            if start == nil {
                start = block.beginFrame(.publishes, part: part)
                block.put(number())
                block.put(UInt32(0))
            }
            put(copy command, into: block)
            count += 1
            if let frame = start, block.bodyByteCount(from: frame) >= LinkLimits.batchByteCount { end() }
        }
        end()
    }

    private static func put(_ command: PublishCommand, into block: LinkBlock) {
        var flags: Flags = []
        if command.isBulk { flags.insert(.isBulk) }
        if command.firstAckWins { flags.insert(.firstAckWins) }
        if command.vendorCarriesAll { flags.insert(.vendorCarriesAll) }
        flags.insert(.carrying(command.carryingPlatforms))
        var count = Entry.byteCount
        if command.requestKey != (0, 0) || command.requestDigest != 0 {
            flags.insert(.hasRequest)
            count += Entry.requestByteCount
        }
        if command.taskCreatedAt != 0 {
            flags.insert(.hasCreatedAt)
            count += Entry.createdAtByteCount
        }
        if !command.revokes.isNone || command.revokedDigest != 0 {
            flags.insert(.hasRevoke)
            count += Entry.revokeByteCount
        }
        if !command.vendorStrategies.isEmpty {
            flags.insert(.hasVendorStrategies)
            count += Entry.vendorStrategiesByteCount
        }
        if !command.customCallback.isEmpty {
            flags.insert(.hasCallback)
            count += Entry.callbackByteCount + command.customCallback.count
        }
        count += command.payload.count + command.collapseKey.count + command.alertTitle.count + command.alertBody.count
        var contentCount: UInt8 = 0
        command.contents.forEach { content in
            contentCount += 1
            count += Entry.contentByteCount + content.body.count + content.collapseID.count
        }
        block.put(UInt32(count))
        var place = block.extend(by: count)
        func store<Number: FixedWidthInteger>(_ number: Number, _ offset: Int) {
            place.storeBytes(of: number.littleEndian, toByteOffset: offset, as: Number.self)
        }
        store(command.origin.route, Entry.route)
        store(command.origin.request, Entry.request)
        store(command.app.word, Entry.app)
        store(command.cid.high, Entry.cid)
        store(command.cid.low, Entry.cid + 8)
        store(command.task.high, Entry.task)
        store(command.task.low, Entry.task + 8)
        store(command.messageDigest, Entry.digest)
        store(command.timeToLive, Entry.timeToLive)
        store(command.bucket.index, Entry.bucket)
        store(command.strategy.rawValue, Entry.strategy)
        store(contentCount, Entry.contentCount)
        store(flags.rawValue, Entry.flags)
        store(UInt16(truncatingIfNeeded: command.collapseKey.count), Entry.collapseKeyCount)
        store(UInt32(truncatingIfNeeded: command.payload.count), Entry.payloadCount)
        store(UInt32(truncatingIfNeeded: command.alertTitle.count), Entry.titleCount)
        store(UInt32(truncatingIfNeeded: command.alertBody.count), Entry.bodyCount)
        place += Entry.byteCount
        if flags.contains(.hasRequest) {
            store(command.requestKey.0, 0)
            store(command.requestKey.1, 8)
            store(command.requestDigest, 16)
            place += Entry.requestByteCount
        }
        if flags.contains(.hasCreatedAt) {
            store(command.taskCreatedAt, 0)
            place += Entry.createdAtByteCount
        }
        if flags.contains(.hasRevoke) {
            store(command.revokes.high, 0)
            store(command.revokes.low, 8)
            store(command.revokedDigest, 16)
            place += Entry.revokeByteCount
        }
        if flags.contains(.hasVendorStrategies) {
            store(command.vendorStrategies.word, 0)
            place += Entry.vendorStrategiesByteCount
        }
        if flags.contains(.hasCallback) {
            store(UInt16(truncatingIfNeeded: command.customCallback.count), 0)
            place += Entry.callbackByteCount
        }
        command.contents.forEach { content in
            let badge: (kind: UInt8, value: Int32) =
                switch content.badge {
                case .none: (0, 0)
                case .set(let value): (1, value)
                case .add(let value): (2, value)
                }
            store(content.channel.rawValue, 0)
            store(content.tokenKind.rawValue, 1)
            store(content.pushType.rawValue, 2)
            store(content.priority, 3)
            store(UInt32(badge.kind), 4)
            store(badge.value, 8)
            store(content.messageIDOffset, 12)
            store(content.badgeOffset, 16)
            store(UInt32(truncatingIfNeeded: content.body.count), 20)
            store(UInt32(truncatingIfNeeded: content.collapseID.count), 24)
            store(content.activity, 28)
            place += Entry.contentByteCount
        }
        func copy(_ bytes: UnsafeRawBufferPointer) {
            guard let source = bytes.baseAddress, !bytes.isEmpty else { return }
            place.copyMemory(from: source, byteCount: bytes.count)
            place += bytes.count
        }
        copy(command.payload)
        copy(command.collapseKey)
        copy(command.alertTitle)
        copy(command.alertBody)
        command.contents.forEach { content in
            copy(content.body)
            copy(content.collapseID)
        }
        copy(command.customCallback)
    }

    // MARK: From bytes

    /// Decodes the commands of a frame; returns `nil` if a command is malformed or its device is in another partition.
    static func publishes(_ cursor: inout LinkCursor, part: Int, _ reader: Reader) -> CommandBatch? {
        guard let count = cursor.next(UInt32.self) else { return nil }
        let batch = reader.spares.takeCommands()
        for _ in 0..<count {
            guard let length = cursor.next(UInt32.self), let entry = cursor.next(byteCount: length),
                append(entry, to: batch, part: part, reader)
            else {
                reader.spares.keep(batch)
                return nil
            }
        }
        return batch
    }

    private static func append(
        _ entry: UnsafeRawBufferPointer, to batch: CommandBatch, part: Int, _ reader: Reader
    ) -> Bool {
        guard entry.count >= Entry.byteCount else { return false }
        func load<Number: FixedWidthInteger>(_ offset: Int, _ type: Number.Type = Number.self) -> Number {
            Number(littleEndian: entry.loadUnaligned(fromByteOffset: offset, as: Number.self))
        }
        let timeToLive = load(Entry.timeToLive, Int64.self)
        guard let bucket = Bucket(exactly: UInt64(load(Entry.bucket, UInt16.self))),
            bucket.loop(of: reader.parts) == part, let strategy = Strategy(rawValue: entry[Entry.strategy]),
            -1...timeToLiveLimit ~= timeToLive
        else { return false }
        let flags = Flags(rawValue: load(Entry.flags))
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        var command = PublishCommand(
            origin: Origin(route: load(Entry.route), request: load(Entry.request)), app: AppKey(load(Entry.app)),
            bucket: bucket, cid: DeviceID(high: load(Entry.cid), low: load(Entry.cid + 8)),
            task: TaskID(high: load(Entry.task), low: load(Entry.task + 8)), messageDigest: load(Entry.digest),
            strategy: strategy, timeToLive: timeToLive, isBulk: flags.contains(.isBulk), payload: empty)
        command.firstAckWins = flags.contains(.firstAckWins)
        command.vendorCarriesAll = flags.contains(.vendorCarriesAll)
        command.carryingPlatforms = flags.carrying
        var cursor = LinkCursor(UnsafeRawBufferPointer(rebasing: entry[Entry.byteCount...]))
        if flags.contains(.hasRequest) {
            guard let high = cursor.next(UInt64.self), let low = cursor.next(UInt64.self),
                let digest = cursor.next(UInt64.self)
            else { return false }
            (command.requestKey, command.requestDigest) = ((high, low), digest)
        }
        if flags.contains(.hasCreatedAt) {
            guard let createdAt = cursor.next(Int64.self), isTime(createdAt) else { return false }
            command.taskCreatedAt = createdAt
        }
        if flags.contains(.hasRevoke) {
            guard let high = cursor.next(UInt64.self), let low = cursor.next(UInt64.self),
                let digest = cursor.next(UInt64.self)
            else { return false }
            (command.revokes, command.revokedDigest) = (TaskID(high: high, low: low), digest)
        }
        if flags.contains(.hasVendorStrategies) {
            guard let word = cursor.next(UInt64.self), let strategies = VendorStrategies(word: word) else {
                return false
            }
            command.vendorStrategies = strategies
        }
        var callbackCount: UInt16 = 0
        if flags.contains(.hasCallback) {
            guard let count = cursor.next(UInt16.self), Int(count) <= MessageBounds.customCallbackByteCount else {
                return false
            }
            callbackCount = count
        }
        let contentCount = Int(entry[Entry.contentCount])
        guard let contents = cursor.next(byteCount: contentCount * Entry.contentByteCount),
            let payload = cursor.next(byteCount: load(Entry.payloadCount, UInt32.self)),
            let collapseKey = cursor.next(byteCount: load(Entry.collapseKeyCount, UInt16.self)),
            let title = cursor.next(byteCount: load(Entry.titleCount, UInt32.self)),
            let body = cursor.next(byteCount: load(Entry.bodyCount, UInt32.self))
        else { return false }
        (command.payload, command.collapseKey) = (payload, collapseKey)
        (command.alertTitle, command.alertBody) = (title, body)
        for index in 0..<contentCount {
            let start = index * Entry.contentByteCount
            let form = UnsafeRawBufferPointer(rebasing: contents[start..<start + Entry.contentByteCount])
            guard add(form, to: &command, &cursor) else { return false }
        }
        guard let callback = cursor.next(byteCount: callbackCount) else { return false }
        command.customCallback = callback
        batch.append(command)
        return true
    }

    /// Adds a vendor's content; skips it if this release does not know its channel, token kind or push type.
    private static func add(
        _ form: UnsafeRawBufferPointer, to command: inout PublishCommand, _ cursor: inout LinkCursor
    ) -> Bool {
        func load<Number: FixedWidthInteger>(_ offset: Int, _ type: Number.Type = Number.self) -> Number {
            Number(littleEndian: form.loadUnaligned(fromByteOffset: offset, as: Number.self))
        }
        guard let body = cursor.next(byteCount: load(20, UInt32.self)),
            let collapseID = cursor.next(byteCount: load(24, UInt32.self))
        else { return false }
        guard let channel = VendorChannel(rawValue: form[0]), let tokenKind = TokenKind(rawValue: form[1]),
            let pushType = PushType(rawValue: form[2])
        else { return true }
        let badge: VendorContent.Badge =
            switch load(4, UInt32.self) {
            case 1: .set(load(8))
            case 2: .add(load(8))
            default: .none
            }
        let messageIDOffset = load(12, Int32.self), badgeOffset = load(16, Int32.self)
        // The msgId replaces 32 digits of the body at `messageIDOffset`; the badge is inserted at `badgeOffset`.
        guard messageIDOffset < 0 || Int(messageIDOffset) + 32 <= body.count, badgeOffset <= body.count else {
            return false
        }
        command.contents.add(
            VendorContent(
                channel: channel, tokenKind: tokenKind, activity: load(28), pushType: pushType, priority: form[3],
                badge: badge, body: body, messageIDOffset: messageIDOffset, badgeOffset: badgeOffset,
                collapseID: collapseID))
        return true
    }

    /// Returns whether a time is in the range in which sums and differences of times cannot overflow.
    static func isTime(_ time: GatewayTime) -> Bool { 0...CompactDecoder.signedLimit ~= time }

    // MARK: Lists

    private static let targetByteCount = 40
    /// The number of a list's devices per frame; a larger list needs several frames, each with the content.
    private static let targetsPerFrame = 1 << 17

    static func encode(
        _ fanout: Fanout, part: Int, into block: LinkBlock, _ remainder: inout Remainder, number: () -> UInt32
    ) {
        guard let content = try? CompactEncoder.encode(fanout.content), content.count < LinkLimits.frameByteCount / 2
        else {
            fanout.forEach { remainder.refused.append(.busy($0)) }
            return
        }
        for first in stride(from: 0, to: fanout.targets.count, by: targetsPerFrame) {
            let targets = fanout.targets[first..<min(first + targetsPerFrame, fanout.targets.count)]
            let start = block.beginFrame(.list, part: part)
            block.put(number())
            block.put(fanout.route)
            block.put(fanout.task.high)
            block.put(fanout.task.low)
            block.put(fanout.app.word)
            block.put(fanout.createdAt)
            block.put(UInt8(fanout.isBulk ? 1 : 0))
            block.put(UInt8(targetByteCount))
            block.put(UInt16(0))
            block.put(UInt32(targets.count))
            block.put(UInt32(content.count))
            for (place, target) in targets {
                block.put(UInt32(truncatingIfNeeded: place))
                block.put(UInt32(target.bucket.index))
                block.put(target.cid.high)
                block.put(target.cid.low)
                block.put(target.digest)
                block.put(target.revokedDigest)
            }
            block.put(content)
            block.endFrame(start)
        }
    }

    private struct ListForm {
        let route: UInt64
        let task: TaskID
        let app: AppKey
        let createdAt: GatewayTime
        let isBulk: Bool
        let targets: UnsafeRawBufferPointer
        let targetByteCount: Int
        let content: UnsafeRawBufferPointer

        init?(_ cursor: inout LinkCursor) {
            guard let route = cursor.next(UInt64.self), let high = cursor.next(UInt64.self),
                let low = cursor.next(UInt64.self), let app = cursor.next(UInt64.self),
                let createdAt = cursor.next(Int64.self), let isBulk = cursor.next(UInt8.self),
                let each = cursor.next(UInt8.self), Int(each) >= LinkCodec.targetByteCount,
                cursor.next(UInt16.self) != nil, let count = cursor.next(UInt32.self),
                let contentCount = cursor.next(UInt32.self),
                let targets = cursor.next(byteCount: Int(count) * Int(each)),
                let content = cursor.next(byteCount: contentCount)
            else { return nil }
            (self.route, task, self.app) = (route, TaskID(high: high, low: low), AppKey(app))
            (self.createdAt, self.isBulk) = (createdAt, isBulk & 1 != 0)
            (self.targets, targetByteCount, self.content) = (targets, Int(each), content)
        }

        var count: Int { targets.count / targetByteCount }

        func place(_ index: Int) -> UInt32 { load(index, 0) }
        func bucket(_ index: Int) -> UInt32 { load(index, 4) }
        func cid(_ index: Int) -> DeviceID { DeviceID(high: load(index, 8), low: load(index, 16)) }
        func digest(_ index: Int) -> UInt64 { load(index, 24) }
        func revokedDigest(_ index: Int) -> UInt64 { load(index, 32) }

        private func load<Number: FixedWidthInteger>(_ index: Int, _ offset: Int) -> Number {
            Number(
                littleEndian: targets.loadUnaligned(
                    fromByteOffset: index * targetByteCount + offset, as: Number.self))
        }
    }

    static func fanout(_ cursor: inout LinkCursor, part: Int, _ reader: Reader) -> Fanout? {
        guard let form = ListForm(&cursor), isTime(form.createdAt),
            let content = try? CompactDecoder.decode(MessageContent.self, from: form.content)
        else { return nil }
        var targets: [(place: Int, target: ListTarget)] = []
        targets.reserveCapacity(form.count)
        for index in 0..<form.count {
            guard let bucket = Bucket(exactly: UInt64(form.bucket(index))), bucket.loop(of: reader.parts) == part else {
                return nil
            }
            var target = ListTarget(cid: form.cid(index), bucket: bucket, digest: form.digest(index))
            target.revokedDigest = form.revokedDigest(index)
            targets.append((Int(form.place(index)), target))
        }
        return Fanout(
            task: form.task, app: form.app, createdAt: form.createdAt, content: content, isBulk: form.isBulk,
            route: form.route, targets: targets)
    }

    // MARK: Publishes of a block

    /// The fields of a publish in flight that a busy answer needs.
    struct AskedPublish: Equatable {
        var origin: Origin
        var cid: DeviceID
        var task: TaskID

        /// The answer for the caller if no answer arrives over the link.
        var busy: LoopAnswer { .published(origin, PublishOutcome(code: .busy, cid: cid, task: task)) }
    }

    /// Calls `body` with each publish in a block that this process encoded, including each device of a list.
    static func forEachAsked(
        in block: LinkBlock, _ body: (_ asked: AskedPublish, _ number: UInt32, _ part: Int) -> Void
    ) {
        block.withBytes { forEachAsked(in: $0, body) }
    }

    private static func forEachAsked(
        in bytes: UnsafeRawBufferPointer, _ body: (_ asked: AskedPublish, _ number: UInt32, _ part: Int) -> Void
    ) {
        var blocks = LinkCursor(bytes)
        while let length = blocks.next(UInt32.self), let kind = blocks.next(UInt8.self),
            blocks.next(UInt8.self) != nil, let part = blocks.next(UInt16.self),
            let content = blocks.next(byteCount: length)
        {
            var cursor = LinkCursor(content)
            switch LinkFrame.Kind(rawValue: kind) {
            case .publishes:
                guard let number = cursor.next(UInt32.self), let count = cursor.next(UInt32.self) else { return }
                for _ in 0..<count {
                    guard let length = cursor.next(UInt32.self), let entry = cursor.next(byteCount: length) else {
                        return
                    }
                    body(asked(entry), number, Int(part))
                }
            case .list:
                guard let number = cursor.next(UInt32.self), let form = ListForm(&cursor) else { return }
                for index in 0..<form.count {
                    let origin = Origin(route: form.route, request: UInt64(form.place(index)))
                    let asked = AskedPublish(origin: origin, cid: form.cid(index), task: form.task)
                    body(asked, number, Int(part))
                }
            default: continue
            }
        }
    }

    private static func asked(_ entry: UnsafeRawBufferPointer) -> AskedPublish {
        func word(_ offset: Int) -> UInt64 {
            UInt64(littleEndian: entry.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        }
        return AskedPublish(
            origin: Origin(route: word(Entry.route), request: word(Entry.request)),
            cid: DeviceID(high: word(Entry.cid), low: word(Entry.cid + 8)),
            task: TaskID(high: word(Entry.task), low: word(Entry.task + 8)))
    }

    // MARK: Answers to publishes

    /// The size of one answer in bytes; a later release may append fields.
    private static let publishedByteCount = 80

    static func beginPublished(in block: LinkBlock) -> Int {
        let start = block.beginFrame(.published)
        block.put(UInt32(publishedByteCount))
        return start
    }

    static func put(_ origin: Origin, _ outcome: PublishOutcome, into block: LinkBlock) {
        let place = block.extend(by: publishedByteCount)
        func store<Number: FixedWidthInteger>(_ number: Number, _ offset: Int) {
            place.storeBytes(of: number.littleEndian, toByteOffset: offset, as: Number.self)
        }
        store(origin.route, 0)
        store(origin.request, 8)
        store(outcome.cid.high, 16)
        store(outcome.cid.low, 24)
        store(outcome.message.high, 32)
        store(outcome.message.low, 40)
        store(outcome.task.high, 48)
        store(outcome.task.low, 56)
        store(outcome.timeToLive, 64)
        store(outcome.code.rawValue, 72)
        store(outcome.fallback.rawValue | VendorChannel.nibble(of: outcome.vendor) << 4, 73)
        store(outcome.fallbackReason.rawValue, 74)
        store(outcome.endedAs?.rawValue ?? 0, 75)
        store(UInt32((outcome.isLive ? 1 : 0) | (outcome.isRepeat ? 2 : 0)), 76)
    }

    static func forEachPublished(in bytes: UnsafeRawBufferPointer, _ body: (LoopAnswer) -> Void) -> Bool {
        var cursor = LinkCursor(bytes)
        guard let each = cursor.next(UInt32.self), Int(each) >= publishedByteCount,
            cursor.rest.count % Int(each) == 0
        else { return false }
        while let entry = cursor.next(byteCount: each) {
            func word(_ offset: Int) -> UInt64 {
                UInt64(littleEndian: entry.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            }
            let flags = UInt32(littleEndian: entry.loadUnaligned(fromByteOffset: 76, as: UInt32.self))
            // An unknown code of a newer release becomes `busy`, so that the caller may repeat the publish.
            let outcome = PublishOutcome(
                code: PublishOutcome.Code(rawValue: entry[72]) ?? .busy, cid: DeviceID(high: word(16), low: word(24)),
                message: MessageID(high: word(32), low: word(40)), task: TaskID(high: word(48), low: word(56)),
                isLive: flags & 1 != 0, fallback: PublishOutcome.Fallback(rawValue: entry[73] & 15) ?? .none,
                fallbackReason: PublishOutcome.FallbackReason(rawValue: entry[74]) ?? .applies,
                timeToLive: Int64(bitPattern: word(64)), isRepeat: flags & 2 != 0,
                endedAs: FinalState(rawValue: entry[75]), vendor: VendorChannel.channel(ofNibble: entry[73] >> 4))
            body(.published(Origin(route: word(0), request: word(8)), outcome))
        }
        return true
    }
}
