import Wire

@testable import Delivery

/// One row of everything that Delivery stores, for the fixtures of the store's format.
enum FixtureRows {
    struct Row {
        var key: StoreKey
        var wakeAt: Int64
        var value: [UInt8]
    }

    private static func bytes(_ count: Int, _ write: (UnsafeMutableRawBufferPointer) -> Void) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes(write)
        return bytes
    }

    static func all(at time: Int64) -> [Row] {
        let app = AppKey(0xA99)
        var rows: [Row] = []
        for number in UInt64(1)...4 {
            let bucket = Bucket(UInt16(number * 1000))
            let cid = DeviceID(high: 0xD0D0 &* number, low: number)
            rows.append(device(cid, bucket, app, number, time))
            for sequence in UInt64(1)...3 {
                rows.append(message(cid, bucket, app, sequence, time, .message))
            }
            rows.append(message(cid, bucket, app, 0xBEEF + number, time, .vendorMessage))
            var counters = CountersRow(app: app, day: 20_000)
            counters.accepted = number * 10
            counters.finals[0] = number
            rows.append(
                Row(
                    key: StoreKey(bucket, .counters, ownerHigh: app.word, ownerLow: 20_000), wakeAt: 0,
                    value: bytes(CountersRow.byteCount) { counters.write(into: $0) }))
        }
        let states: [JobRow.State] = [.due, .leased, .accepted, .rejected, .exhausted, .cancelled]
        for (index, state) in states.enumerated() { rows += job(state, UInt64(index + 1), app, time) }
        rows += names(app, time)
        rows += task(app, time)
        rows += broadcast(app, time)
        rows += feed(app, time)
        rows.append(meta(1, Array(0..<32)))
        rows.append(meta(2, [0, 0, 0, 0, 0, 0, 0, 7]))
        return rows
    }

    private static func facts(
        _ cid: DeviceID, _ bucket: Bucket, _ app: AppKey, _ item: UInt64, _ time: Int64, _ table: StoreKey.Table
    ) -> MessageFacts {
        MessageFacts(
            message: MessageID(bucket: bucket, acceptedAt: time, digest: item), task: TaskID(high: 4, low: item),
            app: app, cid: cid, strategy: table == .message ? .liveElseVendor : .vendorElseLive,
            flags: [.offline, .hasVendorContent, .hasCollapseKey], table: table, item: item, acceptedAt: time,
            expiresAt: time + 3_600_000, fallbackAt: time + 20_000, wakeAt: time + 20_000, timeToLive: 3_600_000,
            byteCount: 0)
    }

    private static func device(_ cid: DeviceID, _ bucket: Bucket, _ app: AppKey, _ number: UInt64, _ time: Int64) -> Row
    {
        var profile = DeviceProfile(
            secret: [UInt8](repeating: UInt8(number), count: 32),
            tokens: [
                DeviceToken(
                    channel: .apns, kind: .alert, environment: .production, topic: "com.example.app",
                    token: "abcdef\(number)",
                    registeredAt: time, isQuarantined: number == 2)
            ])
        if number == 4 {
            profile.tokens.append(
                DeviceToken(
                    channel: .apns, kind: .liveActivity, environment: .sandbox, topic: "com.example.app",
                    token: "fedcba", activity: "ride", registeredAt: time + 1, isQuarantined: false))
        }
        if number == 1 || number == 3 {
            profile.vendorFailure = VendorFailure(
                message: MessageID(high: number, low: 9), at: time, outcome: .retry, attempts: 2,
                reason: "ServiceUnavailable")
        }
        if number == 3 {
            profile.names.take(AliasName(high: 0xA11A << 40, low: 5, text: "alice_王"), stamp: time)
            (profile.names.replacementDay, profile.names.replacementCount) = (20_000, 2)
            profile.names.tags = [TagName(digest: 7, text: "vip"), TagName(digest: 8, text: "广州")]
        }
        let inner = bytes(profile.byteCount) {
            var writer = RowWriter($0)
            profile.write(&writer)
        }
        var row = DeviceRow(app: app)
        (row.badge, row.generation, row.lastTimestamp) = (Int32(number), number, UInt64(time))
        (row.reservedSequence, row.queueEpoch, row.registeredAt, row.lastSeenAt) = (64, 7, time - 5, time)
        row.dropped.expired = UInt32(number)
        if number == 4 { row.flags = [.blacklisted] }
        if number == 2 { (row.broadcastSettled, row.broadcastEvaluatedBeyond) = (3, 1) }
        let value = inner.withUnsafeBytes { inner in
            bytes(DeviceRow.headerByteCount + inner.count) { row.write(profile: inner, into: $0) }
        }
        return Row(key: StoreKey(bucket, .device, cid), wakeAt: time + 86_400_000, value: value)
    }

    private static func message(
        _ cid: DeviceID, _ bucket: Bucket, _ app: AppKey, _ item: UInt64, _ time: Int64, _ table: StoreKey.Table
    ) -> Row {
        let facts = facts(cid, bucket, app, item, time, table)
        let payload = Array("payload \(item) for a device".utf8), key = Array("weather".utf8)
        let title = Array("Title \(item)".utf8), body = Array(#"{"aps":{"alert":"x"}}"#.utf8)
        let value = payload.withUnsafeBytes { payload in
            key.withUnsafeBytes { key in
                title.withUnsafeBytes { title in
                    body.withUnsafeBytes { body in
                        let command = PublishCommand(
                            origin: .none, app: app, bucket: bucket, cid: cid, task: facts.task, messageDigest: item,
                            strategy: facts.strategy, timeToLive: facts.timeToLive, payload: payload, collapseKey: key,
                            alertTitle: title, alertBody: title,
                            vendor: VendorContent(
                                channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .add(1),
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
        return Row(key: facts.key, wakeAt: facts.wakeAt, value: value)
    }

    /// Returns a job, and the request and trace of its message.
    private static func job(_ state: JobRow.State, _ number: UInt64, _ app: AppKey, _ time: Int64) -> [Row] {
        let facts = facts(
            DeviceID(high: 0xD0D0, low: 1), Bucket(1000), app, 100 + number, time, .message)
        var row = JobRow(facts: facts, state: state, dueAt: time + 1)
        row.attempts = UInt16(number)
        (row.lease, row.leasedUntil, row.settledLease, row.settledOutcome) = ((21, number), time + 30_000, (24, 25), 2)
        (row.sentToken, row.alertedAt, row.badgeApplied) = (26, state == .accepted ? time : 0, true)
        row.note(.leased, time)
        row.note(.vendorRetry, time + 5, "TooManyRequests")
        let outcome = PublishOutcome(
            code: .accepted, cid: facts.cid, message: facts.message, task: facts.task, isLive: false, fallback: .none,
            fallbackReason: .applies, timeToLive: facts.timeToLive, isRepeat: false)
        var single = outcome
        single.task = TaskID(
            kind: .single, month: 11, day: 18, home: Bucket(1000), request: (number, 0x5151 &* number))
        let push = PushRow(single, digest: number, app: app, table: .message, item: facts.item)
        let pushKey = PushRow.key(single.task, in: Bucket(1000))
        let traceByteCount = TraceRow.byteCount(
            facts, sentAt: time, endedAt: time + 9, job: row, reason: "BadDeviceToken")
        let trace = bytes(traceByteCount) {
            TraceRow.write(
                facts, finalState: .failed, isOffline: true, sentAt: time, endedAt: time + 9, job: row,
                reason: "BadDeviceToken", into: $0)
        }
        return [
            Row(key: facts.jobKey, wakeAt: row.wakeAt, value: bytes(row.byteCount) { row.write(into: $0) }),
            Row(
                key: StoreKey(Bucket(1000), .request, ownerHigh: 0x4E4E &* number, ownerLow: number), wakeAt: 0,
                value: bytes(RequestRow.byteCount) { RequestRow.write(outcome, digest: number, into: $0) }),
            Row(
                key: pushKey, wakeAt: 0,
                value: bytes(push.byteCount(under: pushKey)) { push.write(under: pushKey, into: $0) }),
            Row(key: StoreKey(Bucket(1000), .trace, facts.message), wakeAt: 0, value: trace),
        ]
    }

    private static func names(_ app: AppKey, _ time: Int64) -> [Row] {
        let (cid, name) = (DeviceID(high: 0xD0D0 * 3, low: 3), AliasName(high: 0xA11A << 40, low: 5, text: "alice_王"))
        var alias = AliasRow(app: app, text: name.text)
        alias.entries = [AliasEntry(cid: cid, bucket: Bucket(3000), stamp: time)]
        let row = alias
        let tags = [0, 7, 8].map { digest in
            Row(
                key: StoreKey(Bucket(3000), .tag, ownerHigh: app.word, ownerLow: digest, item: cid.low), wakeAt: 0,
                value: bytes(8) { $0.storeBytes(of: cid.high.littleEndian, as: UInt64.self) })
        }
        return tags + [Row(key: AliasRow.key(name), wakeAt: 0, value: bytes(row.byteCount) { row.write(into: $0) })]
    }

    private static func task(_ app: AppKey, _ time: Int64) -> [Row] {
        let id = TaskID(kind: .list, month: 11, day: 18, home: Bucket(1000), random: (5, 6))
        var lengths = MessageContent.Lengths()
        (lengths.payload, lengths.vendorBody) = (4, 2)
        let content = MessageContent(
            strategy: .vendorElseLive, timeToLive: 3_600_000,
            vendor: MessageContent.Vendor(
                channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .add(1), messageIDOffset: -1,
                badgeOffset: -1),
            lengths: lengths, arena: Array("news{}".utf8))
        let record = TaskRecord(
            id: id, app: app, state: .scheduled, createdAt: time, validUntil: time + 9, scheduleAt: time + 5,
            group: "morning", content: content)
        let cid = DeviceID(high: 0xD0D0, low: 1)
        let message = MessageID(bucket: Bucket(1000), acceptedAt: time, digest: 0xABCD_0000)
        var ledger = LedgerRow(
            cid: cid, app: app, flags: [.live, .sent], state: .failed, fallback: .armed, fallbackReason: .applies,
            acceptedAt: time, timeToLive: 3_600_000, table: .message, item: 3)
        ledger.reason = "noToken"
        let ended = ledger
        let callback = Array("order-7".utf8)
        let event = TaskEventRow(event: .action, isVendor: true, action: 90_001, time: time)
        return [
            Row(
                key: TaskRow.key(id), wakeAt: time + 5,
                value: bytes(TaskRow.byteCount(record)) { TaskRow.write(record, into: $0) }),
            Row(
                key: StoreKey(Bucket(1000), .taskMessage, id, item: message.low), wakeAt: time + 90,
                value: bytes(ended.byteCount) { ended.write(into: $0) }),
            Row(
                key: StoreKey(
                    Bucket(1000), .taskEvent, id, item: TaskEventRow.item(message, .action, action: 90_001)),
                wakeAt: time + 90, value: bytes(TaskEventRow.byteCount) { event.write(into: $0) }),
            Row(
                key: StoreKey(Bucket(1000), .taskTargets, id, item: 1), wakeAt: time + 90,
                value: bytes(TargetsRow.byteCount([cid])) { TargetsRow.write([cid], into: $0) }),
            Row(
                key: CallbackRow.key(id, in: Bucket(1000)), wakeAt: time + 90,
                value: bytes(CallbackRow.byteCount(callback)) { CallbackRow.write(callback, into: $0) }),
            Row(
                key: StoreKey(Bucket(7), .taskGroup, ownerHigh: 3, ownerLow: 4, item: id.low), wakeAt: time + 90,
                value: id.bytes),
        ]
    }

    private static func broadcast(_ app: AppKey, _ time: Int64) -> [Row] {
        var lengths = MessageContent.Lengths()
        lengths.payload = 3
        let content = MessageContent(
            strategy: .liveElseVendor, timeToLive: 7_200_000, vendor: nil, lengths: lengths, arena: Array("all".utf8))
        let id = TaskID(kind: .app, month: 11, day: 21, home: app.home, random: (9, 10))
        var record = TaskRecord(
            id: id, app: app, state: .open, createdAt: time, validUntil: time + 7_200_000, content: content)
        var audience = TagExpression()
        _ = audience.add(.any, [TagName(digest: 7, text: "red"), TagName(digest: 8, text: "blue")])
        var plan = BroadcastPlan(audience: audience, speed: 100)
        (plan.number, plan.launchedAt, plan.expiresAt, plan.position) = (3, time, time + 7_200_000, 64)
        record.broadcast = plan
        record.resumeAt = time + 60_000
        let written = record
        let row = bytes(TaskRow.byteCount(record)) { TaskRow.write(written, into: $0) }
        let ledger = LedgerRow(
            cid: DeviceID(high: 0xD0D0, low: 1), app: app, flags: [.live], state: nil, fallback: .armed,
            fallbackReason: .applies, acceptedAt: time, timeToLive: 7_200_000, table: .broadcast, item: 3)
        func key(_ number: UInt64) -> StoreKey {
            StoreKey(app.home, .broadcast, ownerHigh: app.word, ownerLow: 0, item: number)
        }
        return [
            Row(key: key(0), wakeAt: 0, value: [3, 0, 0, 0, 0, 0, 0, 0]), Row(key: key(3), wakeAt: 0, value: row),
            Row(key: TaskRow.key(id), wakeAt: time + 60_000, value: row),
            Row(
                key: StoreKey(Bucket(1000), .taskMessage, id, item: 0xABCD_0001), wakeAt: time + 10_000,
                value: bytes(ledger.byteCount) { ledger.write(into: $0) }),
        ]
    }

    private static func feed(_ app: AppKey, _ time: Int64) -> [Row] {
        let name = FeedName(app, .upstream)
        var item = FeedItem(.upstream, at: time, cid: DeviceID(high: 0xD0D0, low: 1))
        (item.request, item.payload) = (5, Array("up".utf8))
        var state = FeedState()
        (state.last, state.acked, state.count, state.byteCount) = (4, 3, 1, 71)
        let (items, head) = ([item][...], state)
        var numbers = UpstreamRow(app: app)
        numbers.add(UpstreamRow.Entry(request: 5, digest: 6, number: 4, byteCount: 2), acked: 3)
        let row = numbers
        return [
            Row(
                key: FeedHeadRow.key(name), wakeAt: 0,
                value: bytes(FeedHeadRow.byteCount) { FeedHeadRow.write(head, first: 4, into: $0) }),
            Row(
                key: FeedRow.key(name, 4), wakeAt: 0,
                value: bytes(FeedRow.byteCount(items)) { FeedRow.write(items, into: $0) }),
            Row(
                key: StoreKey(Bucket(1000), .event, ownerHigh: app.word, ownerLow: 0, item: 9), wakeAt: 0,
                value: bytes(FeedRow.byteCount(items)) { FeedRow.write(items, into: $0) }),
            Row(
                key: UpstreamRow.key(item.cid, of: app), wakeAt: time + 90,
                value: bytes(row.byteCount) { row.write(into: $0) }),
        ]
    }

    private static func meta(_ kind: UInt64, _ value: [UInt8]) -> Row {
        Row(key: StoreKey(Bucket(0), .meta, ownerHigh: kind, ownerLow: 0), wakeAt: 0, value: value)
    }

    private static func broadcast(_ record: TaskRecord) -> String {
        guard let plan = record.broadcast else { return "" }
        return
            ", number \(plan.number) to \(plan.audience.tags.map(\.text)), at \(plan.position), \(plan.speed) a second"
    }

    /// Returns the fields that today's code reads in a row.
    static func summary(_ key: StoreKey, _ value: [UInt8]) -> String {
        value.withUnsafeBytes { bytes in
            switch key.table {
            case .device:
                guard let (row, rest) = DeviceRow.read(bytes), let profile = DeviceProfile(rest) else {
                    return "unreadable"
                }
                let tokens = profile.tokens
                var names = profile.names.aliases.map { ", alias \($0.name.text)" }.joined()
                if !profile.names.tags.isEmpty { names += ", tags \(profile.names.tags.map(\.text))" }
                if row.flags.contains(.blacklisted) { names += ", blacklisted" }
                if let failure = profile.vendorFailure {
                    names += ", not taken at \(failure.at): \(failure.outcome) \(failure.reason), \(failure.attempts)"
                }
                if row.broadcastSettled > 0 {
                    names += ", broadcasts \(row.broadcastSettled) and \(row.broadcastEvaluatedBeyond) beyond"
                }
                return "badge \(row.badge), generation \(row.generation), seen \(row.lastSeenAt), reserved to "
                    + "\(row.reservedSequence), expired \(row.dropped.expired), token \(tokens.map(\.token))\(names)"
            case .message, .vendorMessage:
                guard let row = MessageRow(bytes) else { return "unreadable" }
                return "\(String(decoding: row.payload, as: UTF8.self)), \(row.strategy), expires \(row.expiresAt)"
            case .job:
                guard let row = JobRow(bytes) else { return "unreadable" }
                return
                    "\(row.state), attempts \(row.attempts), wakes \(row.wakeAt), steps \(row.steps.map { "\($0.event)" })"
            case .counters:
                guard let row = CountersRow(bytes) else { return "unreadable" }
                return "day \(row.day), accepted \(row.accepted), ended \(row.ended)"
            case .request:
                if let row = PushRow(bytes, under: key) {
                    return "push \(row.outcome.task), digest \(row.digest), message \(row.outcome.message.low)"
                }
                guard let row = RequestRow.read(bytes) else { return "unreadable" }
                return "\(row.outcome.code), digest \(row.digest), message \(row.outcome.message.low)"
            case .trace:
                guard let row = TraceRow(bytes, of: RowInspection.tracedMessage(key)) else { return "unreadable" }
                return "\(row.finalState), \(row.reason), steps \(row.steps.map { "\($0.event)" })"
            case .alias:
                guard let row = AliasRow(bytes) else { return "unreadable" }
                return "\(row.text): \(row.entries.map { "\($0.cid.low) in \($0.bucket.index) since \($0.stamp)" })"
            case .tag:
                return bytes.count == 8
                    ? "cid from \(UInt64(littleEndian: bytes.loadUnaligned(as: UInt64.self)))" : "unreadable"
            case .meta: return "\(value.count) bytes"
            case .task:
                guard let record = TaskRow.read(bytes) else { return "unreadable" }
                return "\(record.state), group \(record.group), \(record.content.payload.count) bytes for "
                    + "\(record.content.timeToLive) ms, strategy \(record.content.strategy)\(broadcast(record))"
            case .broadcast:
                guard key.item > 0 else { return "\(value.count) bytes" }
                guard let record = TaskRow.read(bytes) else { return "unreadable" }
                return "\(record.state)\(broadcast(record))"
            case .taskMessage:
                guard let row = LedgerRow(bytes) else { return "unreadable" }
                return "\(row.state.map { "\($0)" } ?? "pending") \(row.reason), fallback \(row.fallback)"
            case .taskEvent:
                guard let row = TaskEventRow(bytes) else { return "unreadable" }
                return "\(row.event) \(row.action), vendor \(row.isVendor)"
            case .taskCallback:
                guard let text = CallbackRow.read(bytes) else { return "unreadable" }
                return String(decoding: text, as: UTF8.self)
            case .taskTargets: return "\(TargetsRow.read(bytes)?.count ?? -1) devices"
            case .taskGroup: return "\(value.count) bytes"
            case .feed:
                guard key.item > 0 else {
                    guard let head = FeedHeadRow.read(bytes) else { return "unreadable" }
                    return
                        "\(head.state.count) items to \(head.state.last), acked \(head.state.acked), from \(head.first)"
                }
                guard let items = FeedRow.read(bytes) else { return "unreadable" }
                return "\(items.map { "\($0.kind) of \($0.cid.low)" })"
            case .event:
                guard let items = FeedRow.read(bytes) else { return "unreadable" }
                return "\(items.map { "\($0.kind) of \($0.cid.low)" })"
            case .upstream:
                guard let row = UpstreamRow(bytes) else { return "unreadable" }
                return "\(row.entries.count) numbers"
            case .attributes:
                guard let attributes = AttributesRow.read(bytes) else { return "unreadable" }
                return "\(attributes.platform) \(attributes.brand) \(attributes.model)"
            }
        }
    }
}
