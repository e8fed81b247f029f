internal import Delivery
internal import Wire

/// A first ack that the gateway was told of, and how far the coordinator is with the siblings.
struct SimulatedWin {
    let first: FirstAck
    let task: SimulatedTask
    var missing = 0
    var isWhole = true
}

// Pushes to several devices of which the first ack wins, as to an alias, and what the gateway's coordinator does for them. Draws
// from its own generator.
extension World {
    static let winnerSeed: UInt64 = 0xF125_7ACC

    private static let routes = (keep: UInt64(13), targets: UInt64(14), end: UInt64(15), settle: UInt64(16))

    func pushToSome() {
        let app = winnerChance.below(2)
        var found = identities.filter { $0.app == app && $0.isDurable && !$0.wasLost }
        guard isUp, found.count > 1 else { return }
        eventCount += 1
        faults.note(.firstAckPushMade)
        let task = SimulatedTask(
            index: tasks.count,
            id: TaskID(
                kind: .list, month: 1, day: 1, home: Bucket(UInt16(winnerChance.below(4_096))),
                random: (0, UInt64(tasks.count))), app: app, createdAt: gatewayNow)
        task.firstAckWins = true
        tasks.append(task)
        let strategy = winnerChance.one(of: [
            Strategy.liveElseVendor, .liveElseVendor, .liveElseVendor, .liveOnly, .vendorElseLive, .vendorOnly,
        ])
        let timeToLive = winnerChance.one(of: [plan.maximumTimeToLive, plan.maximumTimeToLive, 120_000, 20_000, 0, -1])
        let hasVendor = winnerChance.perMille(850)
        for _ in 0..<min(found.count, winnerChance.between(2, 5)) {
            let identity = found.remove(at: winnerChance.below(found.count))
            requestCount += 1
            let record = Record(
                index: records.count, identity: identity, strategy: strategy, timeToLive: timeToLive,
                hasVendor: hasVendor, badge: .none, collapse: 0, isBulk: false, request: requestCount,
                digest: (winnerChance.next() << 32) | UInt64(records.count), payloadCount: 60)
            record.task = task
            records.append(record)
            task.records.append(record)
        }
        call(task, task.records)
        queue.add(.retryList(task: task.index, attempt: 1), at: now + winnerChance.time(0, 8_000))
    }

    /// Keeps whom the task is for, then sends to each of them.
    func call(_ task: SimulatedTask, _ attempts: [Record]) {
        guard isUp else { return }
        task.calls.append(attempts)
        ask(
            task.id.home, .keepSiblings(task.id, task.records.map(\.identity.cid)), Self.routes.keep,
            task.index | (task.calls.count - 1) << 32)
    }

    private func ask(_ bucket: Bucket, _ command: TaskCommand, _ route: UInt64, _ request: Int) {
        let loop = loop(of: bucket)
        loop.shard.task(command, origin: Origin(route: route, request: UInt64(request)), now: gatewayNow)
        loop.perform()
    }

    /// A mailbox's delay, and now and then that of a loop which is busy.
    private func mailbox() -> Int64 { winnerChance.time(0, winnerChance.perMille(100) ? 4_000 : 6) }

    // MARK: The coordinator

    /// Within the performing of effects: the coordinator begins a little later.
    func firstAckTold(_ first: FirstAck) {
        guard let task = oracle.firstAckTold(first) else { return }
        wins.append(SimulatedWin(first: first, task: task))
        let win = wins.count - 1
        guard !isHealing, plan.crashWeight > 0, winnerChance.perMille(120) else {
            return queue.add(.endSiblings(win: win, life: life), at: now + winnerChance.time(0, 20))
        }
        faults.note(.crashBeforeSiblingsEnd)
        queue.add(.crash(life: life), at: now + 1)
    }

    func endSiblings(_ win: Int) {
        eventCount += 1
        let task = wins[win].task
        ask(task.id.home, .targets(task.id, from: 0), Self.routes.targets, win)
    }

    func endSibling(_ win: Int, _ record: Record) {
        eventCount += 1
        let (first, identity) = (wins[win].first, record.identity)
        ask(
            identity.bucket,
            .endSibling(first.task, first.app, cid: identity.cid, bucket: identity.bucket, digest: record.digest),
            Self.routes.end, win | record.index << 32)
    }

    func settleFirstAck(_ win: Int) {
        guard let bucket = wins[win].first.message.bucket else { return }
        ask(bucket, .settleFirstAck(wins[win].first), Self.routes.settle, win)
    }

    func firstAckAnswered(_ origin: Origin, _ answer: TaskAnswer) {
        let number = Int(origin.request & 0xFFFF_FFFF)
        switch (origin.route, answer) {
        case (Self.routes.keep, .done):
            for attempt in tasks[number].calls[Int(origin.request >> 32)] {
                queue.add(.submit(record: attempt.index, life: life), at: now + mailbox())
            }
        case (Self.routes.targets, .targets(let cids, nil)):
            let (task, first) = (wins[number].task, wins[number].first)
            guard cids == task.records.map(\.identity.cid) else {
                return fail(.content, "task \(task.index) was kept with \(cids.count) devices, not with its own")
            }
            let siblings = task.records.filter { $0.digest != first.message.low }
            wins[number].missing = siblings.count
            for sibling in siblings {
                queue.add(.endSibling(win: number, record: sibling.index, life: life), at: now + mailbox())
            }
        case (Self.routes.end, .swept), (Self.routes.end, .busy):
            if case .busy = answer {
                wins[number].isWhole = false
            } else {
                oracle.siblingEnded(records[Int(origin.request >> 32)])
            }
            wins[number].missing -= 1
            // What could not be done now stays: the shard tells of the ack again.
            guard wins[number].missing == 0, wins[number].isWhole else { return }
            queue.add(.settleFirstAck(win: number, life: life), at: now + mailbox())
        case (Self.routes.settle, .done): break
        case (_, .busy): break
        default: fail(.content, "a question about a first ack was answered with \(answer)")
        }
    }
}

extension Oracle {
    /// The gateway says that siblings are to be ended: a device has acked, and that is durable.
    func firstAckTold(_ first: FirstAck) -> SimulatedTask? {
        guard let record = record(first.message), let task = record.task, task.firstAckWins, task.id == first.task
        else {
            fail(.content, "a first ack won that nobody asked for")
            return nil
        }
        guard let state = record.durableFinal, Self.isFirstAck(state) else {
            fail(.beforeSync, "message \(record.index) won before its ack was durable")
            return nil
        }
        return task
    }

    private static func isFirstAck(_ state: FinalState) -> Bool {
        state == .delivered || state == .deliveredOffline || state == .opened
    }

    func noteFirstAck(_ record: Record, _ state: FinalState) {
        guard let task = record.task, task.firstAckWins, task.wonAt == 0, Self.isFirstAck(state) else { return }
        task.wonAt = max(1, world.now)
        world.faults.note(.firstAckWon)
    }

    /// A shard said that nothing is pending for this device any more.
    func siblingEnded(_ record: Record) {
        if record.durableTable != nil {
            fail(.finalState, "message \(record.index) is pending though the first ack of its task has ended it")
        }
        record.endedBySiblingIn = world.life
    }

    /// What a message that is new to its device must not be.
    func checkLetIn(_ record: Record, _ identity: Identity) {
        if record.endedBySiblingIn == world.life {
            fail(.finalState, "message \(record.index) was accepted after the first ack of its task had ended it")
        }
        guard let broadcast = record.dealt else { return }
        if identity.isBlacklisted {
            fail(.strategy, "message \(record.index) was accepted for a blacklisted device")
        }
        if identity.registeredAt > broadcast.launchedAt + 50 {
            fail(.content, "message \(record.index): its device registered after broadcast \(broadcast.index)")
        }
        if broadcast.isSwept {
            fail(.finalState, "message \(record.index) was accepted after broadcast \(broadcast.index) was stopped")
        }
    }

    private var areAlarmsPrompt: Bool { world.plan.limits.alarmBatch > 100 }

    /// A message ends otherwise than by the first ack of its task, long after that: nobody was told of it again.
    func checkOvertaken(_ record: Record, _ state: FinalState) {
        guard let task = record.task, task.wonAt > 0, state != .revoked, areAlarmsPrompt,
            record.durableTable != nil, record.durableSince <= task.wonAt,
            world.now - max(task.wonAt, world.startedAt) > 400_000
        else { return }
        fail(
            .finalState,
            "message \(record.index) ended as \(state) \(world.now - task.wonAt) ms after the first ack of its task")
    }

    /// Minutes after a first ack nothing that was there by then is pending for its siblings, whatever died in between.
    func checkWinners() {
        guard areAlarmsPrompt else { return }
        for task in world.tasks where task.wonAt > 0 {
            for record in task.records where record.durableTable != nil && record.durableSince <= task.wonAt {
                return fail(
                    .progress,
                    "message \(record.index) is pending \(world.now - task.wonAt) ms after the first ack of its task")
            }
        }
    }

    /// Of every first ack its shard has heard that the siblings are seen to.
    func checkSettled() {
        for loop in world.loops {
            loop.store.loadAll(table: .taskMessage) { stored in
                guard let row = RowInspection.ledger(stored.key, stored.value), row.isFirstAck,
                    stored.wakeAt < row.acceptedAt + world.plan.limits.reportRetention
                else { return }
                fail(.progress, "the siblings of message \(row.message.low & 0xFFFF_FFFF) were not seen to")
            }
        }
    }
}
