internal import Delivery
internal import TestKit
internal import Wire

/// A few hostile devices, senders and sender services against one shard on the in-memory store.
///
/// Input: a script of frames and commands. Invariants after every step: accepted = Σ final states + pending. A device's sequences
/// increase. Acked and synced messages are never sent again. The store contract holds. At the end every message has ended.
enum ShardFuzz {
    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        var world = ShardWorld(&script)
        while !script.isAtEnd, world.steps < 120 { try world.step(&script) }
        try world.finish()
    }
}

private struct ShardWorld {
    private struct Device {
        var phone: Phone
        var messages: [UInt64: MessageID] = [:]
        /// The sequences delivered in the current session and not acked.
        var sent: Set<UInt64> = []
        var acked: Set<UInt64> = []
        var last: [UInt32: UInt64] = [:]
    }

    private let harness: DeliveryHarness
    private var devices: [Device]
    private var jobs: [Job] = []
    private(set) var steps = 0

    init(_ script: inout Script) {
        var limits = ShardLimits()
        (limits.sequenceBlock, limits.window, limits.cachedDeviceCount) = (4, 3, 2)
        (limits.dueJobReadAhead, limits.alarmBatch) = (4, 2)
        let choice = script.byte()
        harness = DeliveryHarness(limits: limits) {
            $0.queuedMessageLimit = 6
            $0.maxAttempts = 2
            $0.overflowPolicy = choice & 1 == 0 ? .dropOldest : .reject
        }
        devices = []
        for index in 0..<3 {
            devices.append(Device(phone: harness.register(token: choice & UInt8(2 << index) == 0 ? "t\(index)" : nil)))
        }
    }

    // MARK: Steps

    mutating func step(_ script: inout Script) throws {
        steps += 1
        let who = script.choice(devices.count)
        let phone = devices[who].phone
        switch script.choice(18) {
        case 0...3: publish(phone, &script)
        case 4, 5: try acknowledge(who, &script)
        case 6: try connect(who, &script)
        case 7:
            harness.shard.sessionEnded(phone.session, announced: script.flag(), now: harness.now)
            devices[who].sent = []
        case 8: try update(phone, &script)
        case 9: try feedback(phone, &script)
        case 10:
            harness.shard.reject(
                phone.session, sequence: script.number(), reason: script.text(upTo: 255), now: harness.now)
        case 11: jobs += harness.lease(1 + script.choice(5), milliseconds: Int64(script.byte()) * 100)
        case 12: settle(&script)
        case 13: harness.advance(script.pick([1, 500, 3_000, 10_000, 60_000, 7_200_000]))
        case 14: harness.store.cool { _ in true }
        case 15: harness.store.failingReads = [harness.store.readCount + 1 + script.choice(3)]
        case 16:
            harness.flush()
            try check()
            harness.crash()
            for index in devices.indices { (devices[index].sent, devices[index].last) = ([], [:]) }
        default: harness.shard.heard(phone.session, now: harness.now)
        }
        harness.flush()
        try check()
    }

    private mutating func publish(_ phone: Phone, _ script: inout Script) {
        let strategies: [Strategy] = [.liveElseVendor, .vendorOnly, .liveOnly, .vendorElseLive]
        let badges: [VendorContent.Badge] = [.none, .add(1), .set(5), .add(.max), .set(.min)]
        let way = script.byte()
        harness.submit(
            phone, "m\(steps)", strategy: strategies[Int(way & 3)],
            timeToLive: script.pick([7_200_000, 20_000, 3_000, 0, -1]), vendor: way & 4 == 0,
            badge: script.pick(badges), collapseKey: ["", "", "a", "b"][Int(way >> 3 & 3)],
            requestKey: way & 32 == 0 ? (0, 0) : (1, UInt64(way >> 6)), requestDigest: UInt64(way >> 7),
            isBulk: script.flag())
    }

    /// Sends an Ack as parsed from the wire: anything that its view accepts.
    private mutating func acknowledge(_ who: Int, _ script: inout Script) throws {
        var ack = Ack()
        var ranges: [SequenceRange] = []
        let cumulative = script.number()
        var floor = cumulative
        for _ in 0..<script.choice(4) {
            let (first, firstOver) = floor.addingReportingOverflow(1 + UInt64(script.choice(4)))
            let (last, lastOver) = first.addingReportingOverflow(script.number())
            guard !firstOver, !lastOver else { break }
            ranges.append(SequenceRange(first: first, last: last))
            floor = last
        }
        ack.positions = [StreamPosition(stream: 0, sequence: cumulative, ranges: ranges)]
        var body: [UInt8] = []
        ack.appendBody(to: &body)
        let view: AckView
        do throws(WireError) { view = try AckView(decoding: body.span.bytes) } catch { return }
        // Messages sent in response to this ack are not covered by it, even if their sequences are.
        collect()
        let covered = devices[who].sent.filter { sequence in
            sequence <= cumulative || ranges.contains { ($0.first...$0.last).contains(sequence) }
        }
        let phone = devices[who].phone
        view.withRanges {
            harness.shard.acknowledge(phone.session, cumulative: view.sequence, ranges: $0, now: harness.now)
        }
        harness.flush()
        collect()
        // No part of the ack counts if it closed the session or the session had ended before.
        guard !wasClosed(phone.session) else { return }
        devices[who].acked.formUnion(covered)
        devices[who].sent.subtract(covered)
    }

    private mutating func connect(_ who: Int, _ script: inout Script) throws {
        var hello = Hello()
        hello.applicationState = script.pick([.foreground, .background, .terminated])
        hello.keepsRunning = script.flag()
        hello.queueEpoch = 7
        hello.window = UInt32(truncatingIfNeeded: script.number())
        hello.heartbeatSeconds = UInt32(truncatingIfNeeded: script.number())
        if script.flag() { hello.badge = Int32(truncatingIfNeeded: script.number()) }
        let position = script.choice(4) == 0 ? script.number() : 0
        if position > 0 { hello.positions = [StreamPosition(sequence: position)] }
        if script.flag(), let known = devices[who].messages.values.min() { hello.opened = [known] }
        if script.choice(4) == 0 { hello.tokens = tokens(&script) }
        if script.choice(8) == 0 { hello.proof = [9] }
        let skew = script.choice(8) == 0 ? script.number() : 0
        let count = harness.welcomes.count
        let before = devices[who].phone
        collect()
        // An ack counts only for messages that its own session was sent.
        let sentBefore = devices[who].sent
        devices[who].sent = []
        harness.connect(&devices[who].phone) {
            hello.timestamp = $0.timestamp &+ skew
            $0 = hello
        }
        collect()
        let isWelcome = harness.welcomes.dropFirst(count).contains { $0.session == devices[who].phone.session }
        guard isWelcome else {
            // The older session stays unless it was closed, too.
            if !wasClosed(before.session) {
                devices[who].phone.session = before.session
                devices[who].sent.formUnion(sentBefore)
            }
            return
        }
        try require(hello.proof.isEmpty, "welcomed without a proof")
    }

    private func tokens(_ script: inout Script) -> [VendorToken] {
        (0..<script.choice(4)).map { _ in
            VendorToken(
                kind: script.pick(VendorToken.Kind.allCases), environment: .sandbox, topic: script.text(upTo: 4),
                token: script.text(upTo: 8))
        }
    }

    private func update(_ phone: Phone, _ script: inout Script) throws {
        let update: DeviceUpdate
        if script.flag() {
            do throws(WireError) {
                update = try DeviceUpdate(decoding: script.bytes(upTo: 64).span.bytes)
            } catch { return }
        } else {
            var made = DeviceUpdate()
            made.applicationState = script.pick([.foreground, .background, .terminated])
            made.keepsRunning = script.flag()
            if script.flag() { made.badge = Int32(truncatingIfNeeded: script.number()) }
            if script.flag() { made.pushModeOff = script.flag() }
            if script.flag() { made.tokens = tokens(&script) }
            update = made
        }
        harness.shard.update(phone.session, update, now: harness.now)
    }

    private func feedback(_ phone: Phone, _ script: inout Script) throws {
        var feedback = Feedback()
        feedback.kind = script.pick([.opened, .shown, .action])
        let known = devices.flatMap { $0.messages.values }.sorted()
        feedback.messageID =
            known.isEmpty || script.choice(4) == 0
            ? MessageID(high: script.number(), low: script.number()) : known[script.choice(known.count)]
        feedback.action = UInt32(script.byte())
        harness.shard.feedback(phone.session, feedback, now: harness.now)
    }

    private mutating func settle(_ script: inout Script) {
        let outcome = script.pick(JobResult.Outcome.allCases)
        let isForeign = jobs.isEmpty || script.choice(4) == 0
        let message =
            isForeign
            ? MessageID(high: script.number() & 0x0FFF_FFFF_FFFF_FFFF, low: script.number())
            : jobs[script.choice(jobs.count)].message
        let lease = jobs.first { $0.message == message }?.leaseID ?? (script.number(), 1)
        if script.choice(8) == 0 {
            harness.shard.extend([(message, lease)], milliseconds: 5_000, apps: nil, origin: .none, now: harness.now)
        } else {
            harness.shard.settle(
                [
                    JobResult(
                        job: message, leaseID: lease, outcome: outcome, reason: script.text(upTo: 64),
                        timestamp: Int64(bitPattern: script.number()), retryAfterMilliseconds: Int64(script.byte()) * 10
                    )
                ], apps: nil, origin: .none, now: harness.now)
        }
    }

    // MARK: Invariants

    private func wasClosed(_ session: SessionRef) -> Bool { harness.closes.contains { $0.session == session } }

    private var surprise: String?

    private mutating func collect() {
        for delivery in harness.takeDelivered() {
            guard let index = devices.firstIndex(where: { $0.phone.session == delivery.session }) else { continue }
            let (slot, sequence) = (delivery.session.slot, delivery.sequence)
            if devices[index].acked.contains(sequence) { surprise = "\(sequence) came after its ack was synced" }
            if let known = devices[index].messages[sequence], known != delivery.message {
                surprise = "the sequence \(sequence) was given twice"
            }
            if let last = devices[index].last[slot], sequence <= last, delivery.attempt < 2 {
                surprise = "\(sequence) came after \(last)"
            }
            devices[index].messages[sequence] = delivery.message
            devices[index].sent.insert(sequence)
            devices[index].last[slot] = max(sequence, devices[index].last[slot] ?? 0)
        }
    }

    private mutating func check() throws {
        collect()
        if let surprise { throw FuzzFailure(description: "step \(steps): \(surprise)") }
        if let imbalance = harness.imbalance() { throw FuzzFailure(description: "step \(steps): \(imbalance)") }
        if let violation = harness.store.violations.first {
            throw FuzzFailure(description: "step \(steps): \(violation)")
        }
    }

    /// Ends the faults; every message must end, and nothing may stay in memory.
    mutating func finish() throws {
        harness.store.failingReads = []
        for _ in 0..<4 { harness.advance(70_000) }
        for _ in 0..<6 { harness.advance(1_500_000) }
        for _ in 0..<8 { harness.advance(60_000) }
        try check()
        let left = [StoreKey.Table.message, .vendorMessage, .job].map { harness.rowCount($0) }
        try require(left == [0, 0, 0], "rows are left: \(left)")
        let statistics = harness.statistics
        try require(statistics.messagesInMemory == 0 && statistics.jobsInMemory == 0, "messages are left in memory")
        try require(statistics.waitingCommands == 0, "commands still wait")
    }
}
