internal import Delivery
internal import Wire

// Lists to several devices, retries, stops and revokes.
extension World {
    func publishList() {
        let app = chance.below(2)
        var found = identities.filter { $0.app == app && $0.isDurable }
        guard !found.isEmpty else { return }
        let task = SimulatedTask(
            index: tasks.count,
            id: TaskID(
                kind: .list, month: 1, day: 1, home: Bucket(UInt16(chance.below(4_096))),
                random: (0, UInt64(tasks.count))), app: app, createdAt: gatewayNow)
        tasks.append(task)
        let strategy = chance.one(of: [
            Strategy.liveElseVendor, .liveElseVendor, .vendorOnly, .liveOnly, .vendorElseLive,
        ])
        let timeToLive = chance.one(of: [plan.maximumTimeToLive, 20_000, 3_000, 0, -1])
        let hasVendor = chance.perMille(850)
        for _ in 0..<min(found.count, chance.between(2, 5)) {
            let identity = found.remove(at: chance.below(found.count))
            requestCount += 1
            let record = Record(
                index: records.count, identity: identity, strategy: strategy, timeToLive: timeToLive,
                hasVendor: hasVendor, badge: .none, collapse: 0, isBulk: true, request: requestCount,
                digest: (chance.next() << 32) | UInt64(records.count), payloadCount: 60)
            record.task = task
            records.append(record)
            task.records.append(record)
            submit(record, conflicting: false)
        }
        queue.add(.retryList(task: task.index, attempt: 1), at: now + chance.time(0, 8_000))
    }

    /// Repeats a list call; a device that already has the message must not receive it again.
    func retry(_ task: SimulatedTask, attempt: Int) {
        guard !isHealing, !task.isStopped, !task.isWithdrawn, isUp else { return }
        faults.note(.listRetried)
        var copies: [Record] = []
        for first in task.records {
            let copy = Record(
                index: records.count, identity: first.identity, strategy: first.strategy,
                timeToLive: first.timeToLive, hasVendor: first.hasVendor, badge: .none, collapse: 0, isBulk: true,
                request: first.request, digest: first.digest, payloadCount: first.payloadCount)
            copy.task = task
            records.append(copy)
            copies.append(copy)
            if !task.firstAckWins { submit(copy, conflicting: false) }
        }
        if task.firstAckWins { call(task, copies) }
        if attempt < 3 {
            queue.add(.retryList(task: task.index, attempt: attempt + 1), at: now + chance.time(0, 20_000))
        }
    }

    func stopSomeTask() {
        let open = tasks.suffix(40).filter { !$0.isStopped }
        guard isUp, !open.isEmpty else { return }
        let task = chance.one(of: open)
        faults.note(.taskStopped)
        eventCount += 1
        task.isStopped = true
        (task.sweepsMissing, task.sweepLife, task.hasSweepFailed) = (loops.count, life, false)
        for record in task.records { record.mayBeRevoked = true }
        for loop in loops {
            loop.shard.ask(
                SweepTask(task.id, plan.apps[task.app].key, share(of: loop)),
                origin: Origin(route: 11, request: UInt64(task.index)), now: gatewayNow)
            loop.perform()
        }
    }

    /// Revokes one recent message of a list or a single push.
    func revokeSomething() {
        let known = records.suffix(60).filter {
            $0.revokes == nil && $0.identity.isDurable && first(of: $0) === $0 && isFoundByTask($0)
                && ($0.broadcast == nil && $0.dealt == nil || $0.everDurable)
        }
        guard isUp, !known.isEmpty else { return }
        let old = chance.one(of: known)
        faults.note(.messageRevoked)
        mayBeRevoked(old)
        old.task?.isWithdrawn = true
        let record = Record(
            index: records.count, identity: old.identity, strategy: .liveOnly, timeToLive: plan.maximumTimeToLive,
            hasVendor: false, badge: .none, collapse: 0, isBulk: false, request: 0,
            digest: (chance.next() << 32) | UInt64(records.count), payloadCount: 16)
        record.revokes = old
        records.append(record)
        submit(record, conflicting: false)
    }

    /// Returns the record under which a message of this record is found; for a list it is the first attempt.
    private func first(of record: Record) -> Record { records[Int(record.digest & 0xFFFF_FFFF)] }

    /// An answer to a question; `nil`: busy.
    typealias Answer = any Codable & Sendable

    func taskAnswered(_ origin: Origin, _ answer: Answer?) {
        if origin.route == Self.reportRoute { return reportAnswered(origin, answer) }
        if origin.route == Self.feedRoute { return feedAnswered(origin, answer as? FeedAnswer) }
        if origin.route > 20 { return broadcastAnswered(origin, answer) }
        if origin.route > 12 { return firstAckAnswered(origin, answer) }
        let task = tasks[Int(origin.request & 0xFFFF_FFFF)]
        if let totals = (answer as? Found<TaskTotals>)?.value { return oracle.total(task, totals) }
        guard answer == nil || answer is Int else { return fail(.content, "a task was answered with something else") }
        guard task.sweepLife == life else { return }
        if answer == nil { task.hasSweepFailed = true }
        task.sweepsMissing -= 1
        guard task.sweepsMissing == 0, !task.hasSweepFailed else { return }
        oracle.stopped(task)
    }

    func share(of loop: Loop) -> LoopShare {
        LoopShare(index: loop.index, count: loops.count, bucketCount: World.bucketCount)
    }

    func askTotals() {
        for task in tasks {
            for loop in loops {
                loop.shard.ask(
                    TaskTotalsQuery(task.id, plan.apps[task.app].key, share(of: loop)),
                    origin: Origin(route: 12, request: UInt64(task.index)), now: gatewayNow)
                loop.perform()
            }
        }
        pass(milliseconds: 30_000)
    }
}
