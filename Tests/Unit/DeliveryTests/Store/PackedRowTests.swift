import TestKit
import Testing
import Wire

@testable import Delivery

/// Rows whose fields use only the bytes that their values need survive encoding.
@Suite("Packed rows") struct PackedRowTests {
    static let seeds: [UInt64] = [1, 2, 3]

    private static func bytes(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) -> [UInt8] {
        // A guard byte after the row reveals a write beyond it.
        var bytes = [UInt8](repeating: 0xA5, count: count + 1)
        bytes.withUnsafeMutableBytes { write(UnsafeMutableRawBufferPointer(rebasing: $0[..<count])) }
        #expect(bytes.removeLast() == 0xA5)
        return bytes
    }

    /// Returns a number that is small, large, or at an end of its range.
    private static func number(_ random: inout SeededGenerator) -> UInt64 {
        let bits = UInt64.random(in: 0...64, using: &random)
        let word = UInt64.random(in: 0 ... .max, using: &random)
        return bits == 0 ? 0 : word >> (64 - bits)
    }

    private static func time(_ random: inout SeededGenerator, near base: GatewayTime) -> GatewayTime {
        switch Int.random(in: 0..<8, using: &random) {
        case 0: GatewayTime(bitPattern: number(&random))
        case 1: base
        default: base + GatewayTime.random(in: 0...100_000, using: &random)
        }
    }

    static func facts(_ random: inout SeededGenerator) -> MessageFacts {
        let acceptedAt = GatewayTime.random(in: 0..<1 << 48, using: &random)
        let isPlain = Int.random(in: 0..<4, using: &random) > 0
        let home = Bucket(UInt16.random(in: 0..<4_096, using: &random))
        let task =
            isPlain
            ? TaskID(
                kind: .single, month: .random(in: 0...12, using: &random), day: .random(in: 0...31, using: &random),
                home: home, random: (.random(in: 0 ... .max, using: &random), number(&random)))
            : TaskID(high: number(&random), low: number(&random))
        let timeToLive: Int64 =
            [-1, 0, 7_200_000, 86_399_999, .max, .min].randomElement(using: &random) ?? 0
        let message = MessageID(bucket: home, acceptedAt: acceptedAt, digest: number(&random))
        let tables: [StoreKey.Table] = [.message, .vendorMessage, .broadcast]
        let strategies: [Strategy] = [.liveElseVendor, .vendorOnly, .liveOnly, .vendorElseLive]
        var facts = MessageFacts(
            message: message, task: task, app: AppKey(number(&random)),
            cid: DeviceID(high: number(&random), low: number(&random)),
            strategy: strategies.randomElement(using: &random) ?? .liveOnly,
            flags: MessageFacts.Flags(rawValue: .random(in: 0...255, using: &random)),
            table: tables.randomElement(using: &random) ?? .message,
            item: Bool.random(using: &random) ? message.low : number(&random), acceptedAt: acceptedAt,
            expiresAt: time(&random, near: acceptedAt), fallbackAt: 0, wakeAt: 0, timeToLive: timeToLive, byteCount: 0)
        if Bool.random(using: &random) { facts.expiresAt = acceptedAt &+ max(0, timeToLive) }
        if Int.random(in: 0..<4, using: &random) == 0 { facts.acceptedAt = time(&random, near: acceptedAt) }
        if Bool.random(using: &random) { facts.fallbackAt = time(&random, near: acceptedAt) }
        facts.wakeAt = [facts.fallbackAt, facts.expiresAt, time(&random, near: 0)].randomElement(using: &random) ?? 0
        return facts
    }

    private static func text(_ random: inout SeededGenerator) -> String {
        String(repeating: "\u{E9}x", count: [0, 0, 1, 20, 80].randomElement(using: &random) ?? 0)
    }

    private static func job(_ facts: MessageFacts, _ random: inout SeededGenerator) -> JobRow {
        var job = JobRow(facts: facts, state: .accepted, dueAt: 0)
        for _ in 0..<Int.random(in: 0...4, using: &random) {
            let event = TraceEvent.allCases.randomElement(using: &random) ?? .sent
            job.note(event, time(&random, near: facts.acceptedAt), text(&random))
        }
        for _ in 0..<Int.random(in: 0...3, using: &random) {
            job.leases.append(
                GivenLease(id: (number(&random), number(&random)), outcomes: .random(in: 0...31, using: &random)))
        }
        switch Int.random(in: 0..<3, using: &random) {
        case 0: break
        case 1: job.settledLease = (number(&random) | 1, number(&random))
        default: job.settledLease = job.leases.randomElement(using: &random)?.id ?? (0, 0)
        }
        job.settledOutcome = job.settledLease == (0, 0) ? 0 : .random(in: 1...4, using: &random)
        job.attempts = UInt16.random(in: 0 ... .max, using: &random) >> UInt16.random(in: 0...16, using: &random)
        job.isBadgeTakenBack = Bool.random(using: &random)
        return job
    }

    // MARK: Traces

    @Test("a trace survives encoding for any message, and no prefix of it is a valid trace", arguments: seeds)
    func traces(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<400 {
            let facts = Self.facts(&random)
            let job = Bool.random(using: &random) ? Self.job(facts, &random) : nil
            let state = FinalState.allCases.randomElement(using: &random) ?? .failed
            let isOffline = Bool.random(using: &random)
            let sentAt = Bool.random(using: &random) ? 0 : Self.time(&random, near: facts.acceptedAt)
            let endedAt = Self.time(&random, near: facts.acceptedAt)
            let reason = Self.text(&random)
            let count = TraceRow.byteCount(facts, sentAt: sentAt, endedAt: endedAt, job: job, reason: reason)
            let packed = Self.bytes(count) {
                TraceRow.write(
                    facts, finalState: state, isOffline: isOffline, sentAt: sentAt, endedAt: endedAt, job: job,
                    reason: reason, into: $0)
            }
            let read = try #require(packed.withUnsafeBytes { TraceRow($0, of: facts.message) })
            let isAcked = state == .delivered || state == .deliveredOffline
            var steps = [MessageTrace.Step(event: .accepted, time: facts.acceptedAt)]
            if sentAt > 0 { steps.append(MessageTrace.Step(event: .sent, time: sentAt)) }
            steps += job?.steps ?? []
            steps.append(
                MessageTrace.Step(event: isAcked ? .acked : state == .opened ? .opened : .ended, time: endedAt))
            let fields: [Bool] = [
                read.facts.message == facts.message, read.facts.task == facts.task, read.facts.app == facts.app,
                read.facts.cid == facts.cid, read.facts.strategy == facts.strategy, read.facts.table == facts.table,
                read.facts.item == facts.item, read.facts.acceptedAt == facts.acceptedAt,
                read.facts.expiresAt == facts.expiresAt, read.facts.timeToLive == facts.timeToLive,
                read.finalState == state, read.isOffline == isOffline,
                read.wasSentLive == facts.flags.contains(.sendCounted),
                read.isBadgeTakenBack == (job?.isBadgeTakenBack ?? false),
                read.settledLease == (job?.settledLease ?? (0, 0)), read.settledOutcome == (job?.settledOutcome ?? 0),
                read.attempts == (job?.attempts ?? 0), read.leases == (job?.leases ?? []), read.reason == reason,
                read.steps == steps, read.fallback == facts.fallback,
            ]
            #expect(!fields.contains(false), "\(fields): \(facts)")
            for cut in 0..<packed.count {
                #expect(packed[..<cut].withUnsafeBytes { TraceRow($0, of: facts.message) } == nil)
            }
        }
    }

    @Test("the trace of a message that was delivered at once has at most 50 bytes")
    func deliveredTrace() {
        var random = SeededGenerator(seed: 5)
        let accepted: GatewayTime = 1_795_000_000_000
        var facts = Self.facts(&random)
        facts.message = MessageID(bucket: Bucket(9), acceptedAt: accepted, digest: .max)
        facts.task = TaskID(kind: .single, month: 12, day: 31, home: Bucket(9), random: (.max, .max))
        (facts.table, facts.item, facts.app) = (.message, 9_999, AppKey(.max))
        (facts.acceptedAt, facts.timeToLive, facts.expiresAt) = (accepted, 7_200_000, accepted + 7_200_000)
        let count = TraceRow.byteCount(facts, sentAt: accepted + 1, endedAt: accepted + 60, job: nil, reason: "")
        #expect(count <= 50, "\(count)")
    }

    // MARK: Messages

    private static func part(_ random: inout SeededGenerator) -> [UInt8] {
        let count = [0, 0, 1, 17, 130, 300].randomElement(using: &random) ?? 0
        return (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
    }

    /// Calls `body` with texts whose bytes are valid until it returns.
    private static func withTexts<Result>(
        _ random: inout SeededGenerator, _ body: (MessageRow.Texts) throws -> Result
    ) rethrows -> Result {
        let parts = (0..<6).map { _ in part(&random) }
        var places: [Range<Int>] = []
        for part in parts {
            let start = places.last?.upperBound ?? 0
            places.append(start..<start + part.count)
        }
        let value = Int32(truncatingIfNeeded: number(&random))
        let badges: [VendorContent.Badge] = [.none, .set(value), .add(value)]
        let offsets = (0..<2).map { _ in Bool.random(using: &random) ? -1 : Int32(number(&random) >> 33) }
        let hasVendor = Bool.random(using: &random)
        let (badge, kind) = (badges.randomElement(using: &random), TokenKind.allCases.randomElement(using: &random))
        let pushType = PushType(rawValue: .random(in: 0...3, using: &random))
        let priority = UInt8.random(in: 0...255, using: &random)
        let activity = Bool.random(using: &random) ? 0 : number(&random)
        return try parts.flatMap(\.self).withUnsafeBytes { bytes in
            let texts = places.map { UnsafeRawBufferPointer(rebasing: bytes[$0]) }
            let vendor = VendorContent(
                channel: .apns, tokenKind: kind ?? .alert, activity: activity, pushType: pushType ?? .alert,
                priority: priority, badge: badge ?? .none,
                body: texts[4], messageIDOffset: offsets[0], badgeOffset: offsets[1], collapseID: texts[5])
            let command = PublishCommand(
                origin: .none, app: AppKey(1), bucket: Bucket(0), cid: .none, task: .none, messageDigest: 0,
                strategy: .liveOnly, timeToLive: 0, payload: texts[0], collapseKey: texts[1], alertTitle: texts[2],
                alertBody: texts[3], vendor: hasVendor ? vendor : nil)
            return try body(MessageRow.Texts(command))
        }
    }

    private static func isSame(_ left: UnsafeRawBufferPointer, _ right: UnsafeRawBufferPointer) -> Bool {
        left.elementsEqual(right)
    }

    private static func isSame(_ left: VendorContent?, _ right: VendorContent?) -> Bool {
        guard let left, let right else { return left == nil && right == nil }
        let fields: [Bool] = [
            left.channel == right.channel, left.activity == right.activity,
            left.tokenKind == right.tokenKind, left.pushType == right.pushType, left.priority == right.priority,
            left.badge == right.badge, left.messageIDOffset == right.messageIDOffset,
            left.badgeOffset == right.badgeOffset, isSame(left.body, right.body),
            isSame(left.collapseID, right.collapseID),
        ]
        return !fields.contains(false)
    }

    private static func isSame(_ left: MessageFacts, _ right: MessageFacts) -> Bool {
        let fields: [Bool] = [
            left.message == right.message, left.task == right.task, left.app == right.app,
            left.strategy == right.strategy, left.flags == right.flags, left.acceptedAt == right.acceptedAt,
            left.expiresAt == right.expiresAt, left.fallbackAt == right.fallbackAt, left.wakeAt == right.wakeAt,
            left.timeToLive == right.timeToLive,
        ]
        return !fields.contains(false)
    }

    @Test("rows of a message and of its job keep whether the alert has the whole content", arguments: [false, true])
    func vendorCarriesAll(isCarried: Bool) throws {
        var random = SeededGenerator(seed: 3)
        var facts = Self.facts(&random)
        (facts.vendorCarriesAll, facts.channels) = (isCarried, ChannelSet(.apns))
        facts.table = .message
        let written = facts
        try Self.withTexts(&random) { texts in
            let bytes = Self.bytes(MessageRow.byteCount(texts, facts: written)) {
                MessageRow.write(texts, facts: written, into: $0)
            }
            try bytes.withUnsafeBytes { bytes in
                let row = try #require(MessageRow(bytes))
                let read = row.facts(cid: written.cid, table: .message, item: written.item)
                #expect(read.vendorCarriesAll == isCarried)
            }
        }
        let job = JobRow(facts: facts, state: .due, dueAt: 0)
        let bytes = Self.bytes(job.byteCount) { job.write(into: $0) }
        let read = try bytes.withUnsafeBytes { try #require(JobRow($0)).facts }
        #expect(read.vendorCarriesAll == isCarried)
        #expect(read.channels == ChannelSet(.apns))
    }

    @Test("rows of a message, its job and its trace keep whether there is a custom callback", arguments: [false, true])
    func hasCallback(isKept: Bool) throws {
        var random = SeededGenerator(seed: 5)
        var facts = Self.facts(&random)
        (facts.hasCallback, facts.channels, facts.table) = (isKept, ChannelSet(.vivo), .message)
        let written = facts
        try Self.withTexts(&random) { texts in
            let bytes = Self.bytes(MessageRow.byteCount(texts, facts: written)) {
                MessageRow.write(texts, facts: written, into: $0)
            }
            try bytes.withUnsafeBytes { bytes in
                let row = try #require(MessageRow(bytes))
                #expect(row.facts(cid: written.cid, table: .message, item: written.item).hasCallback == isKept)
            }
        }
        let job = JobRow(facts: facts, state: .due, dueAt: 0)
        let jobBytes = Self.bytes(job.byteCount) { job.write(into: $0) }
        let ofJob = try jobBytes.withUnsafeBytes { try #require(JobRow($0)).facts }
        #expect(ofJob.hasCallback == isKept && ofJob.channels == ChannelSet(.vivo) && !ofJob.vendorCarriesAll)
        let count = TraceRow.byteCount(written, sentAt: 0, endedAt: 0, job: nil, reason: "")
        let trace = Self.bytes(count) {
            TraceRow.write(
                written, finalState: .expired, isOffline: false, sentAt: 0, endedAt: 0, job: nil, reason: "", into: $0)
        }
        let ofTrace = try trace.withUnsafeBytes { try #require(TraceRow($0, of: written.message)).facts }
        #expect(ofTrace.hasCallback == isKept)
    }

    @Test("an item of a feed keeps its custom callback, or that it awaits one; no prefix is valid")
    func callbackOfAnItem() throws {
        var items: [FeedItem] = []
        for (text, awaits) in [("", false), ("", true), ("text", false)] {
            var item = FeedItem(.clicked, at: 5, cid: DeviceID(high: 1, low: 2))
            (item.payload, item.customCallback, item.awaitsCallback) = (Array("p".utf8), Array(text.utf8), awaits)
            item.detail = .ofAlert(true, by: .hms)
            items.append(item)
        }
        let bytes = Self.bytes(FeedRow.byteCount(items[...])) { FeedRow.write(items[...], into: $0) }
        #expect(bytes.withUnsafeBytes { FeedRow.read($0) } == items)
        #expect(FeedRow.byteCount(items[1]) == FeedRow.byteCount(items[0]) + 2)
        for count in 0..<bytes.count {
            #expect(bytes.prefix(count).withUnsafeBytes { FeedRow.read($0) } == nil, "cut at \(count)")
        }
    }

    @Test("a task's custom callback survives encoding, and one beyond the bound is not read")
    func callbackRow() {
        for count in [1, MessageBounds.customCallbackByteCount, MessageBounds.customCallbackByteCount + 1] {
            let text = [UInt8](repeating: 0x61, count: count)
            let bytes = Self.bytes(CallbackRow.byteCount(text)) { CallbackRow.write(text, into: $0) }
            let isBounded = count <= MessageBounds.customCallbackByteCount
            #expect(bytes.withUnsafeBytes { CallbackRow.read($0) } == (isBounded ? text : nil))
        }
        #expect(([2, 65] as [UInt8]).withUnsafeBytes { CallbackRow.read($0) } == nil)
    }

    @Test("a message survives encoding and a move, and no prefix of it is valid", arguments: seeds)
    func messages(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<400 {
            var facts = Self.facts(&random)
            try Self.withTexts(&random) { texts in
                if texts.contents.isEmpty {
                    facts.flags.remove(.hasVendorContent)
                } else {
                    facts.flags.insert(.hasVendorContent)
                }
                let written = facts
                let packed = Self.bytes(MessageRow.byteCount(texts, facts: facts)) {
                    MessageRow.write(texts, facts: written, into: $0)
                }
                try packed.withUnsafeBytes {
                    let row = try #require(MessageRow($0))
                    let read = row.facts(cid: facts.cid, table: facts.table, item: facts.item)
                    #expect(Self.isSame(read, facts) && read.byteCount == UInt32(packed.count + 85))
                    #expect(row.messageID == facts.message && row.taskID == facts.task && row.app == facts.app)
                    #expect(Self.isSame(row.payload, texts.payload))
                    #expect(Self.isSame(row.collapseKey, texts.collapseKey))
                    #expect(Self.isSame(row.alertTitle, texts.alertTitle))
                    #expect(Self.isSame(row.alertBody, texts.alertBody))
                    #expect(Self.isSame(row.vendor, texts.contents.first))
                    // The row is rewritten as in a move to the live stream.
                    let moved = MessageRow.Texts(row)
                    let copy = Self.bytes(MessageRow.byteCount(moved, facts: facts)) {
                        MessageRow.write(moved, facts: written, into: $0)
                    }
                    #expect(copy == packed)
                }
                let headByteCount = packed.count - texts.payload.count
                for cut in 0..<headByteCount {
                    #expect(packed[..<cut].withUnsafeBytes { MessageRow($0) } == nil)
                }
            }
        }
    }

    @Test("the row of a live message has at most 60 bytes beside its payload")
    func liveMessage() {
        var random = SeededGenerator(seed: 5)
        let accepted: GatewayTime = 1_795_000_000_000
        var facts = Self.facts(&random)
        facts.message = MessageID(bucket: Bucket(9), acceptedAt: accepted, digest: .max)
        facts.task = TaskID(kind: .single, month: 12, day: 31, home: Bucket(9), random: (.max, .max))
        (facts.acceptedAt, facts.timeToLive, facts.expiresAt) = (accepted, 7_200_000, accepted + 7_200_000)
        (facts.fallbackAt, facts.wakeAt) = (accepted + 10_000, accepted + 7_200_000)
        let payload = [UInt8](repeating: 7, count: 200)
        let count = payload.withUnsafeBytes {
            let command = PublishCommand(
                origin: .none, app: AppKey(1), bucket: Bucket(9), cid: .none, task: facts.task, messageDigest: 0,
                strategy: .liveElseVendor, timeToLive: 7_200_000, payload: $0)
            return MessageRow.byteCount(MessageRow.Texts(command), facts: facts)
        }
        #expect(count - 200 <= 60, "\(count)")
    }

    // MARK: Requests

    @Test("a push's row survives encoding, under its task or its request, and no prefix is valid", arguments: seeds)
    func pushes(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<400 {
            let facts = Self.facts(&random)
            let outcome = PublishOutcome(
                code: .accepted, cid: facts.cid, message: facts.message, task: facts.task,
                isLive: Bool.random(using: &random),
                fallback: PublishOutcome.Fallback(rawValue: .random(in: 0...2, using: &random)) ?? .none,
                fallbackReason: PublishOutcome.FallbackReason(rawValue: .random(in: 0...5, using: &random)) ?? .applies,
                timeToLive: facts.timeToLive, isRepeat: true, endedAs: FinalState.allCases.randomElement(using: &random)
            )
            let table: StoreKey.Table = Bool.random(using: &random) ? .message : .vendorMessage
            let row = PushRow(outcome, digest: Self.number(&random), app: facts.app, table: table, item: facts.item)
            let full = StoreKey(
                facts.bucket, .request, ownerHigh: Self.number(&random), ownerLow: Self.number(&random))
            for key in [PushRow.key(facts.task, in: facts.bucket), full] {
                let count = row.byteCount(under: key)
                let bytes = Self.bytes(count) { row.write(under: key, into: $0) }
                #expect(count <= PushRow.byteCountLimit)
                let read = try #require(bytes.withUnsafeBytes { PushRow($0, under: key) })
                #expect(read.outcome == outcome && read.digest == row.digest && read.app == facts.app)
                #expect(read.table == table && read.item == facts.item)
                for cut in 0..<count { #expect(bytes[..<cut].withUnsafeBytes { PushRow($0, under: key) } == nil) }
            }
        }
    }

    @Test("a single push has one row of at most 56 bytes beside its message")
    func singlePush() {
        var random = SeededGenerator(seed: 5)
        let facts = Self.facts(&random)
        let request: (UInt64, UInt64) = (.max, .max)
        let task = TaskID(kind: .single, month: 12, day: 31, home: facts.bucket, request: request)
        #expect(task.follows(from: request, in: facts.bucket) && !task.follows(from: (1, .max), in: facts.bucket))
        let outcome = PublishOutcome(
            code: .accepted, cid: facts.cid, message: facts.message, task: task, timeToLive: 7_200_000)
        let row = PushRow(outcome, digest: .max, app: facts.app, table: .message, item: 999)
        #expect(row.byteCount(under: PushRow.key(task, in: facts.bucket)) <= 60)
    }

    // MARK: Numbers

    @Test("a varint takes the bytes that its size needs, at most ten", arguments: seeds)
    func numbers(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let ends: [UInt64] = [0, 1, 127, 128, 16_383, 16_384, .max >> 1, .max]
        for value in ends + (0..<500).map({ _ in Self.number(&random) }) {
            let bytes = Self.bytes(RowWriter.byteCount(varint: value)) {
                var writer = RowWriter($0)
                writer.put(varint: value)
            }
            let signed = Int64(bitPattern: value)
            let other = Self.bytes(RowWriter.byteCount(signed: signed)) {
                var writer = RowWriter($0)
                writer.put(signed: signed)
            }
            bytes.withUnsafeBytes {
                var reader = RowReader($0)
                #expect(reader.nextVarint() == value && reader.isAtEnd)
            }
            other.withUnsafeBytes {
                var reader = RowReader($0)
                #expect(reader.nextSigned() == signed && reader.isAtEnd)
            }
        }
        for long in [[UInt8](repeating: 0xFF, count: 11), [UInt8](repeating: 0xFF, count: 9) + [2]] {
            long.withUnsafeBytes {
                var reader = RowReader($0)
                #expect(reader.nextVarint() == nil)
            }
        }
    }
}
