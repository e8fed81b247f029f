internal import Delivery
internal import Wire

struct SimulatedWin {
    let first: FirstAck
    let task: SimulatedTask
    var missing = 0
    var isWhole = true
}

struct FirstAckModel {
    /// The generator of this part only.
    fileprivate var chance: Chance
    /// The first acks reported to the gateway.
    fileprivate var wins: [SimulatedWin] = []

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0xF125_7ACC) }

    /// Whether the server makes such a push now.
    mutating func isTime() -> Bool { chance.perMille(12) }
}

// Pushes to several devices that the first ack ends, as to an alias, and the gateway's coordinator for them. Uses its own
// generator.
extension World {
    private static let routes = (keep: UInt64(13), targets: UInt64(14), end: UInt64(15), settle: UInt64(16))

    func pushToSome() {
        let app = firstAcks.chance.below(2)
        var found = identities.filter { $0.app == app && $0.isDurable && !$0.wasLost }
        guard isUp, found.count > 1 else { return }
        eventCount += 1
        faults.note(.firstAckPushMade)
        let task = SimulatedTask(
            index: tasks.count,
            id: TaskID(
                kind: .list, month: 1, day: 1, home: Bucket(UInt16(firstAcks.chance.below(4_096))),
                random: (0, UInt64(tasks.count))), app: app, createdAt: gatewayNow)
        task.firstAckWins = true
        tasks.append(task)
        let strategy = firstAcks.chance.one(of: [
            Strategy.liveElseVendor, .liveElseVendor, .liveElseVendor, .liveOnly, .vendorElseLive, .vendorOnly,
        ])
        let timeToLive = firstAcks.chance.one(of: [
            plan.maximumTimeToLive, plan.maximumTimeToLive, 120_000, 20_000, 0, -1,
        ])
        let hasVendor = firstAcks.chance.perMille(850)
        for _ in 0..<min(found.count, firstAcks.chance.between(2, 5)) {
            let identity = found.remove(at: firstAcks.chance.below(found.count))
            requestCount += 1
            let record = Record(
                index: records.count, identity: identity, strategy: strategy, timeToLive: timeToLive,
                hasVendor: hasVendor, badge: .none, collapse: 0, isBulk: false, request: requestCount,
                digest: (firstAcks.chance.next() << 32) | UInt64(records.count), payloadCount: 60)
            record.task = task
            records.append(record)
            task.records.append(record)
        }
        call(task, task.records)
        queue.add(.retryList(task: task.index, attempt: 1), at: now + firstAcks.chance.time(0, 8_000))
    }

    /// Stores the devices of the task, then sends to each of them.
    func call(_ task: SimulatedTask, _ attempts: [Record]) {
        guard isUp else { return }
        task.calls.append(attempts)
        ask(
            task.id.home, KeepSiblings(task.id, task.records.map(\.identity.cid)), Self.routes.keep,
            task.index | (task.calls.count - 1) << 32)
    }

    private func ask(_ bucket: Bucket, _ question: some ShardQuestion, _ route: UInt64, _ request: Int) {
        let loop = loop(of: bucket)
        loop.shard.ask(question, origin: Origin(route: route, request: UInt64(request)), now: gatewayNow)
        loop.perform()
    }

    /// The delay of a mailbox; in 10 % of the cases it includes a busy loop.
    private func mailbox() -> Int64 { firstAcks.chance.time(0, firstAcks.chance.perMille(100) ? 4_000 : 6) }

    // MARK: The coordinator

    /// Called while effects are performed: the coordinator starts after a short delay.
    func firstAckTold(_ first: FirstAck) {
        guard let task = oracle.firstAckTold(first) else { return }
        firstAcks.wins.append(SimulatedWin(first: first, task: task))
        let win = firstAcks.wins.count - 1
        guard !isHealing, plan.crashWeight > 0, firstAcks.chance.perMille(120) else {
            return queue.add(.endSiblings(win: win, life: life), at: now + firstAcks.chance.time(0, 20))
        }
        faults.note(.crashBeforeSiblingsEnd)
        queue.add(.crash(life: life), at: now + 1)
    }

    func endSiblings(_ win: Int) {
        eventCount += 1
        let task = firstAcks.wins[win].task
        ask(task.id.home, ReadTargets(task.id, from: 0), Self.routes.targets, win)
    }

    func endSibling(_ win: Int, _ record: Record) {
        eventCount += 1
        let (first, identity) = (firstAcks.wins[win].first, record.identity)
        let device = DeviceAddress(app: first.app, bucket: identity.bucket, cid: identity.cid)
        ask(
            identity.bucket, EndSibling(first.task, device, digest: record.digest), Self.routes.end,
            win | record.index << 32)
    }

    func settleFirstAck(_ win: Int) {
        guard let bucket = firstAcks.wins[win].first.message.bucket else { return }
        ask(bucket, SettleFirstAck(firstAcks.wins[win].first), Self.routes.settle, win)
    }

    func firstAckAnswered(_ origin: Origin, _ answer: Answer?) {
        let number = Int(origin.request & 0xFFFF_FFFF)
        switch (origin.route, answer) {
        case (Self.routes.keep, true as Bool):
            for attempt in tasks[number].calls[Int(origin.request >> 32)] {
                queue.add(.submit(record: attempt.index, life: life), at: now + mailbox())
            }
        case (Self.routes.targets, let page as ReadTargets.Page):
            let (task, first) = (firstAcks.wins[number].task, firstAcks.wins[number].first)
            guard page.devices == task.records.map(\.identity.cid) else {
                return fail(
                    .content, "task \(task.index) was kept with \(page.devices.count) devices, not with its own")
            }
            let siblings = task.records.filter { $0.digest != first.message.low }
            firstAcks.wins[number].missing = siblings.count
            for sibling in siblings {
                queue.add(.endSibling(win: number, record: sibling.index, life: life), at: now + mailbox())
            }
        case (Self.routes.end, let count):
            if count == nil {
                firstAcks.wins[number].isWhole = false
            } else {
                oracle.siblingEnded(records[Int(origin.request >> 32)])
            }
            firstAcks.wins[number].missing -= 1
            // Unfinished work stays pending: the shard reports the ack again.
            guard firstAcks.wins[number].missing == 0, firstAcks.wins[number].isWhole else { return }
            queue.add(.settleFirstAck(win: number, life: life), at: now + mailbox())
        case (Self.routes.settle, true as Bool): break
        case (_, nil): break
        default: fail(.content, "a question about a first ack was answered with \(String(describing: answer))")
        }
    }
}
