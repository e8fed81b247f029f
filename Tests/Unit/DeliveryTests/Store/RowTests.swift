import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Rows") struct RowTests {
    private static let facts = MessageFacts(
        message: MessageID(bucket: Bucket(9), acceptedAt: 1_795_000_000_000, digest: 3), task: TaskID(high: 4, low: 5),
        app: AppKey(6), cid: DeviceID(high: 7, low: 8), strategy: .vendorElseLive,
        flags: [.offline, .hasVendorContent],
        table: .vendorMessage, item: 10, acceptedAt: 1_795_000_000_000, expiresAt: 1_795_000_060_000, fallbackAt: 12,
        wakeAt: 13, timeToLive: -1, byteCount: 14)

    private static func job() -> JobRow {
        var row = JobRow(facts: facts, state: .leased, dueAt: 20)
        row.attempts = 3
        (row.lease, row.leasedUntil, row.settledLease, row.settledOutcome) = ((21, 22), 23, (24, 25), 2)
        (row.sentToken, row.sentKind, row.badgeApplied, row.isCollapsed, row.alertedAt) = (26, .voip, true, true, 27)
        row.note(.leased, 28)
        row.note(.vendorRetry, 29, "TooManyRequests")
        return row
    }

    private static func bytes(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) -> [UInt8] {
        var bytes = [UInt8](repeating: 0xEE, count: count)
        bytes.withUnsafeMutableBytes(write)
        return bytes
    }

    private static func message() -> [UInt8] {
        let payload: [UInt8] = Array("payload".utf8), key: [UInt8] = Array("key".utf8), body: [UInt8] = Array("{}".utf8)
        return payload.withUnsafeBytes { payload in
            key.withUnsafeBytes { key in
                body.withUnsafeBytes { body in
                    let command = PublishCommand(
                        origin: .none, app: facts.app, bucket: Bucket(9), cid: facts.cid, task: facts.task,
                        messageDigest: 3, strategy: .vendorElseLive, timeToLive: -1, payload: payload, collapseKey: key,
                        alertTitle: key, alertBody: payload,
                        vendor: VendorContent(
                            channel: .apns, tokenKind: .voip, pushType: .voip, priority: 10, badge: .add(-2),
                            body: body,
                            messageIDOffset: 1, badgeOffset: 2, collapseID: key))
                    let texts = MessageRow.Texts(command)
                    return bytes(MessageRow.byteCount(texts, facts: facts)) {
                        MessageRow.write(texts, facts: facts, into: $0)
                    }
                }
            }
        }
    }

    private static func trace() -> [UInt8] {
        bytes(TraceRow.byteCount(facts, sentAt: 30, endedAt: 31, job: job(), reason: "why")) {
            TraceRow.write(
                facts, finalState: .failed, isOffline: true, sentAt: 30, endedAt: 31, job: job(), reason: "why",
                into: $0)
        }
    }

    private static let push = PushRow(
        PublishOutcome(code: .accepted, cid: facts.cid, task: facts.task), digest: 1, app: facts.app, table: .message,
        item: 12)

    private static func device() -> [UInt8] {
        let profile = DeviceProfile(
            secret: [1, 2, 3],
            tokens: [
                DeviceToken(
                    channel: .apns, kind: .voip, environment: .sandbox, topic: "t", token: "abc", registeredAt: 5,
                    isQuarantined: true)
            ])
        let inner = bytes(profile.byteCount) {
            var writer = RowWriter($0)
            profile.write(&writer)
            #expect(writer.offset == profile.byteCount)
        }
        var row = DeviceRow(app: AppKey(1))
        (row.badge, row.generation, row.lastTimestamp, row.reservedSequence) = (-1, 2, 3, 4)
        row.dropped.failed = 9
        return inner.withUnsafeBytes { inner in
            bytes(DeviceRow.headerByteCount + inner.count) { row.write(profile: inner, into: $0) }
        }
    }

    @Test("a message row survives encoding")
    func messageRow() throws {
        let bytes = Self.message()
        try bytes.withUnsafeBytes {
            let row = try #require(MessageRow($0))
            #expect(row.messageID == Self.facts.message && row.taskID == Self.facts.task)
            #expect(String(decoding: row.payload, as: UTF8.self) == "payload")
            #expect(String(decoding: row.collapseKey, as: UTF8.self) == "key")
            #expect(String(decoding: row.alertTitle, as: UTF8.self) == "key")
            #expect(String(decoding: row.alertBody, as: UTF8.self) == "payload")
            let vendor = try #require(row.vendor)
            #expect(vendor.tokenKind == .voip && vendor.pushType == .voip && vendor.priority == 10)
            #expect(vendor.badge == .add(-2) && vendor.messageIDOffset == 1 && vendor.badgeOffset == 2)
            #expect(String(decoding: vendor.collapseID, as: UTF8.self) == "key")
            let facts = row.facts(cid: Self.facts.cid, table: .vendorMessage, item: 10)
            #expect(
                facts.timeToLive == -1 && facts.wakeAt == 13 && facts.fallbackAt == 12
                    && facts.flags == Self.facts.flags)
        }
    }

    @Test("job, trace and device rows survive encoding")
    func otherRows() throws {
        let job = Self.job()
        let jobBytes = Self.bytes(job.byteCount) { job.write(into: $0) }
        let readJob = try #require(jobBytes.withUnsafeBytes { JobRow($0) })
        #expect(readJob.steps == job.steps && readJob.lease == job.lease && readJob.sentKind == .voip)
        #expect(readJob.settledLease == job.settledLease && readJob.alertedAt == 27 && readJob.attempts == 3)
        #expect(
            readJob.facts.item == 10 && readJob.facts.byteCount == 14 && readJob.isCollapsed && readJob.badgeApplied)
        let trace = try #require(Self.trace().withUnsafeBytes { TraceRow($0, of: Self.facts.message) })
        #expect(trace.finalState == .failed && trace.reason == "why" && trace.steps.count == 5 && trace.attempts == 3)
        let (device, profile) = try Self.device().withUnsafeBytes {
            let (row, profile) = try #require(DeviceRow.read($0))
            return (row, try #require(DeviceProfile(profile)))
        }
        #expect(device.badge == -1 && device.reservedSequence == 4 && device.dropped.failed == 9)
        #expect(
            profile.secret == [1, 2, 3] && profile.tokens.first?.token == "abc"
                && profile.tokens.first?.isQuarantined == true)
    }

    @Test("a device's row keeps the vendor's last reason, with and without names after it")
    func vendorFailure() throws {
        var profile = DeviceProfile(secret: [1, 2, 3], tokens: [])
        let failure = VendorFailure(
            message: MessageID(high: 5, low: 6), at: 7, outcome: .badToken, attempts: 2, reason: "Unregistered")
        profile.vendorFailure = failure
        for tags in [[], [TagName(digest: 7, text: "vip")]] {
            profile.names.tags = tags
            let written = Self.bytes(profile.byteCount) {
                var writer = RowWriter($0)
                profile.write(&writer)
            }
            let read = try #require(written.withUnsafeBytes { DeviceProfile($0) })
            #expect(read.vendorFailure == failure && read.names.tags == tags)
            let end = written.count - profile.names.byteCount
            for count in 6..<end { #expect(written.prefix(count).withUnsafeBytes { DeviceProfile($0) } == nil) }
        }
    }

    /// The offset of the first token's channel and kind in `profile`.
    private static let firstTokenOffset = 1 + 3 + 1

    @Test("a token with a later version's channel or kind is kept unchanged and not used")
    func foreignTokens() throws {
        var profile = DeviceProfile(secret: [1, 2, 3], tokens: [])
        for (token, activity) in [("aa", ""), ("bb", "ride"), ("cc", "")] {
            profile.tokens.append(
                DeviceToken(
                    channel: .apns, kind: .liveActivity, environment: .production, topic: "t", token: token,
                    activity: activity, registeredAt: 5, isQuarantined: false))
        }
        func write(_ profile: DeviceProfile) -> [UInt8] {
            Self.bytes(profile.byteCount) {
                var writer = RowWriter($0)
                profile.write(&writer)
            }
        }
        let plain = write(profile)
        #expect(plain[Self.firstTokenOffset] == TokenKind.liveActivity.rawValue, "APNs is 0: as rows always were")
        for byte in [0xF0, 0xF2, 0xE2, 0x0F] as [UInt8] {
            var bytes = plain
            bytes[Self.firstTokenOffset] = byte
            var read = try #require(bytes.withUnsafeBytes { DeviceProfile($0) })
            #expect(read.tokens.map(\.token) == ["bb", "cc"] && read.tokens[0].activity == "ride")
            let any = TokenNeed(platform: .apple, kind: .liveActivity, activity: 0)
            #expect(read.appleToken(for: any, appHasTopic: true)?.token == "cc")
            read.tokens.removeAll()
            for kind in TokenKind.allCases {
                #expect(
                    read.appleToken(for: TokenNeed(platform: .apple, kind: kind, activity: 0), appHasTopic: true) == nil
                )
            }
            // The row still has the token when written again, and its bound includes it.
            for number in 0..<20 {
                read.register(
                    DeviceToken(
                        channel: .apns, kind: .alert, environment: .production, topic: "t\(number)",
                        token: "n\(number)", registeredAt: 6, isQuarantined: false), isAgain: true)
            }
            let again = try #require(write(read).withUnsafeBytes { DeviceProfile($0) })
            #expect(again.tokens == read.tokens && again.tokens.count == Limits.tokensPerDevice - 1)
            #expect(write(again)[Self.firstTokenOffset] == byte && again.byteCount == write(again).count)
        }
        for count in 0..<plain.count {
            #expect(plain.prefix(count).withUnsafeBytes { DeviceProfile($0) == nil || count == plain.count })
        }
    }

    @Test("content for a later version's channel is ignored and not used for APNs")
    func foreignContents() throws {
        var bytes = Self.message()
        #expect(try #require(bytes.withUnsafeBytes { MessageRow($0)?.vendor?.channel }) == .apns)
        // One content: its channel, its length, twelve bytes; then the payload of seven bytes.
        let place = bytes.count - 7 - 12 - 2
        #expect(Array(bytes[place - 1...place + 1]) == [1, 0, 12])
        bytes[place] = 15
        bytes.withUnsafeBytes {
            #expect(MessageRow($0)?.vendor == nil && MessageRow($0)?.payload.count == 7)
            let facts = MessageRow($0)?.facts(cid: .none, table: .message, item: 0)
            #expect(facts?.channels == ChannelSet(rawValue: 1 << 15))
        }
        var lengths = MessageContent.Lengths()
        (lengths.payload, lengths.vendorBody) = (1, 2)
        for activity in [0, 77] as [UInt64] {
            let content = MessageContent(
                strategy: .liveElseVendor, timeToLive: 1,
                vendor: MessageContent.Vendor(
                    channel: .apns, tokenKind: .liveActivity, activity: activity, pushType: .liveActivity, priority: 5,
                    badge: .set(3), messageIDOffset: 1, badgeOffset: 2),
                lengths: lengths, arena: Array("p{}".utf8))
            var bytes = Self.bytes(content.byteCount) {
                var writer = RowWriter($0)
                content.write(&writer)
                #expect(writer.offset == content.byteCount)
            }
            func read() -> MessageContent? {
                bytes.withUnsafeBytes {
                    var reader = RowReader($0)
                    return MessageContent(&reader)
                }
            }
            #expect(read() == content && read()?.vendors.first?.activity == activity)
            bytes[2] |= 0xF0
            #expect(try #require(read()).vendors.isEmpty)
        }
    }

    @Test("a task's contents survive encoding, and its commands carry the first of a platform")
    func severalContents() throws {
        var lengths = MessageContent.Lengths()
        (lengths.payload, lengths.alertTitle, lengths.vendorBody, lengths.vendorCollapseID) = (2, 3, 6, 1)
        func vendor(_ activity: UInt64, _ badge: VendorContent.Badge) -> MessageContent.Vendor {
            MessageContent.Vendor(
                channel: .apns, tokenKind: .liveActivity, activity: activity, pushType: .background, priority: 5,
                badge: badge, messageIDOffset: -1, badgeOffset: 3)
        }
        let old = TaskID(kind: .list, month: 1, day: 2, random: (3, 4))
        let new = TaskID(kind: .list, month: 5, day: 6, random: (7, 8))
        for activity in [0, 5] as [UInt64] {
            var content = MessageContent(
                strategy: .vendorElseLive, timeToLive: 9, vendor: vendor(activity, .none), lengths: lengths,
                arena: Array("ppttt{first}c".utf8.prefix(12)))
            content.vendorCarriesAll = activity == 0
            content.add(vendor(7, .add(-2)), body: Array("{\(old.text)}".utf8), collapseID: Array("second".utf8))
            content.add(vendor(0, .set(4)), body: [], collapseID: [])
            content.customCallback = Array((activity == 0 ? "" : "callback").utf8)
            var bytes = Self.bytes(content.byteCount) {
                var writer = RowWriter($0)
                content.write(&writer)
                #expect(writer.offset == content.byteCount)
            }
            func read() -> MessageContent? {
                bytes.withUnsafeBytes {
                    var reader = RowReader($0)
                    return MessageContent(&reader)
                }
            }
            #expect(try #require(read()) == content)
            let target = MessageContent.Target(
                origin: .none, app: AppKey(1), bucket: Bucket(0), cid: .none, task: old, messageDigest: 0)
            content.renamed(from: old, to: new).withCommand(for: target) { command in
                var seen: [String] = []
                let kept = KeptPublish(command)
                withExtendedLifetime(kept) {
                    kept.command.contents.forEach {
                        let texts = [$0.body, $0.collapseID].map { String(decoding: $0, as: UTF8.self) }
                        seen.append("\($0.activity) \($0.badge) \(texts)")
                    }
                }
                let callback = kept.command.customCallback
                #expect(withExtendedLifetime(kept) { Array(callback) } == content.customCallback)
                // A command has one content per platform: the first.
                #expect(seen == ["\(activity) none \(["{first", "}"])"])
                #expect(command.contents.byteCount == 7)
            }
            // The first one is for a later version's channel; the others stay.
            bytes[2] |= 0xF0
            let rest = try #require(read())
            #expect(rest.vendors == Array(content.vendors.dropFirst()) && rest.payload.elementsEqual("pp".utf8))
            rest.renamed(from: old, to: new).withCommand(for: target) {
                #expect($0.contents[.apple].map { String(decoding: $0.collapseID, as: UTF8.self) } == "second")
                #expect($0.contents[.apple].map { String(decoding: $0.body, as: UTF8.self) } == "{\(new.text)}")
            }
            for count in 0..<bytes.count {
                let cut = bytes.prefix(count).withUnsafeBytes { bytes in
                    var reader = RowReader(bytes)
                    return MessageContent(&reader)
                }
                #expect(cut == nil, "cut at \(count)")
            }
        }
    }

    @Test("a job and a trace with a later version's channel show it, and are not APNs's")
    func foreignJobs() throws {
        var facts = Self.facts
        facts.channels = ChannelSet(.apns)
        var job = JobRow(facts: facts, state: .due, dueAt: 20)
        job.sentKind = .voip
        #expect(job.channel == .apns && job.channelBits == 0)
        facts.channels = ChannelSet(rawValue: 1 << 14)
        var foreign = JobRow(facts: facts, state: .due, dueAt: 20)
        foreign.give((1, 2))
        #expect(foreign.channel == nil && foreign.channelBits == 0xE0)
        let bytes = Self.bytes(foreign.byteCount) { foreign.write(into: $0) }
        let read = try #require(bytes.withUnsafeBytes { JobRow($0) })
        #expect(read.channel == nil && read.channelBits == 0xE0 && read.facts.channels == facts.channels)
        #expect(Self.bytes(read.byteCount) { read.write(into: $0) } == bytes, "it stays what it is")
        for (row, channel) in [(job, VendorChannel.apns as VendorChannel?), (foreign, nil)] {
            var row = row
            row.note(.leased, facts.acceptedAt + 1)
            let count = TraceRow.byteCount(facts, sentAt: 0, endedAt: 9, job: row, reason: "")
            let trace = Self.bytes(count) {
                TraceRow.write(
                    facts, finalState: .failed, isOffline: true, sentAt: 0, endedAt: 9, job: row, reason: "", into: $0)
            }
            #expect(try #require(trace.withUnsafeBytes { TraceRow($0, of: facts.message) }).channel == channel)
        }
    }

    @Test("a text above 255 bytes is cut between two characters, whatever their length")
    func longTexts() throws {
        for (text, kept) in [("a", 255), ("\u{E9}", 254), ("\u{4F60}", 255), ("\u{1F600}", 252)] {
            for lead in 0..<4 {
                var job = Self.job()
                job.steps = []
                job.note(.vendorRetry, 1, String(repeating: "x", count: lead) + String(repeating: text, count: 300))
                let bytes = Self.bytes(job.byteCount) { job.write(into: $0) }
                let detail = try #require(bytes.withUnsafeBytes { JobRow($0) }?.steps.first).detail
                #expect(job.steps[0].detail.hasPrefix(detail) && !detail.contains("\u{FFFD}"))
                #expect(detail.utf8.count > 251)
                if lead == 0 { #expect(detail.utf8.count == kept) }
            }
        }
    }

    @Test("no bytes trap a decoder: prefixes are refused, and altered and random bytes are harmless")
    func anyBytes() {
        let job = Self.job()
        let rows = [
            Self.message(), Self.trace(), Self.device(), Self.bytes(job.byteCount) { job.write(into: $0) },
            Self.bytes(CountersRow.byteCount) { CountersRow(app: AppKey(1), day: 2).write(into: $0) },
            Self.bytes(Self.push.byteCount(under: Self.facts.key)) {
                Self.push.write(under: Self.facts.key, into: $0)
            },
            Self.bytes(RequestRow.byteCount) {
                RequestRow.write(
                    PublishOutcome(code: .accepted, cid: .none, task: .none), digest: 1, into: $0)
            },
        ]
        func decode(_ bytes: [UInt8]) -> Int {
            bytes.withUnsafeBytes { bytes in
                var readable = 0
                if let row = MessageRow(bytes) {
                    readable += 1 + row.payload.count &* 0 + (row.vendor?.body.count ?? 0) &* 0
                    _ = row.facts(cid: .none, table: .message, item: 0).jobKey
                }
                if JobRow(bytes) != nil { readable += 1 }
                if TraceRow(bytes, of: Self.facts.message) != nil { readable += 1 }
                if DeviceRow.read(bytes) != nil { readable += 1 }
                if CountersRow(bytes) != nil { readable += 1 }
                if RequestRow.read(bytes) != nil { readable += 1 }
                if PushRow(bytes, under: Self.facts.key) != nil { readable += 1 }
                _ = LateEventRow.read(bytes)
                return readable
            }
        }
        var random = SeededGenerator(seed: 11)
        for row in rows {
            #expect(decode(row) >= 1)
            var later = row
            later[0] = 200
            #expect(decode(later) == 0)
            for count in 0..<row.count { _ = decode(Array(row.prefix(count))) }
            for _ in 0..<4_000 {
                var bent = row
                for _ in 0..<Int.random(in: 1...6, using: &random) {
                    bent[Int.random(in: 0..<bent.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
                }
                _ = decode(bent)
            }
        }
    }

    @Test("the memory for a device and for a message is bounded")
    func sizes() {
        #expect(MemoryLayout<Device>.stride <= 320)
        #expect(MemoryLayout<Message>.stride <= 256)
    }
}
