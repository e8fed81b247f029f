internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

// Broadcasts on the loop of their home. A broadcast scans all buckets in steps. Its position is stored after some of the steps.
extension TaskCoordinator {
    final class BroadcastRun {
        var record: TaskRecord
        let purpose: BroadcastScan.Purpose
        /// The partition that runs the scan, until its release.
        let home: Partition
        /// The scan's position, and the part of it that is stored.
        var position: Int
        var written: Int
        let done: (Bool) -> Void

        init(_ record: TaskRecord, _ purpose: BroadcastScan.Purpose, of home: Partition, done: @escaping (Bool) -> Void)
        {
            (self.record, self.purpose, self.home, self.done) = (record, purpose, home, done)
            position = record.broadcast?.position ?? 0
            written = position
        }
    }

    /// The number of buckets per step; a broadcast with a speed limit scans one at a time, so that its jobs are spread over time.
    static let bucketsPerStep = 16
    /// The largest number of buckets between two stored positions.
    static let bucketsPerWrite = 64

    /// Performs the work that is due for a broadcast, on behalf of its home.
    func broadcastDue(_ record: TaskRecord, of home: Partition, done: @escaping (TaskAnswer) -> Void) {
        switch record.state {
        case .open:
            run(BroadcastRun(record, record.isStreamed ? .enumerate : .deal, of: home) { _ in done(.done) })
        case .ending:
            guard record.isStreamed else { return finish(record, .ended, done) }
            run(
                BroadcastRun(record, .close(.expired), of: home) { [self] isWhole in
                    guard isWhole else { return done(.busy) }
                    finish(record, .ended, done)
                })
        case .stopping:
            sweepBroadcast(record) { [self] answer in
                guard case .swept = answer else { return done(.busy) }
                guard record.isStreamed, record.broadcast?.number ?? 0 > 0 else {
                    return finish(record, .stopped, done)
                }
                run(
                    BroadcastRun(record, .close(.revoked), of: home) { [self] isWhole in
                        guard isWhole else { return done(.busy) }
                        finish(record, .stopped, done)
                    })
            }
        default: done(.done)
        }
    }

    /// Records the end of a broadcast after a complete scan.
    private func finish(_ record: TaskRecord, _ change: TaskChange, _ done: @escaping (TaskAnswer) -> Void) {
        ask(home: record.id, .change(record.id, record.app, change)) { [self] answer in
            if case .record = answer {
                owner.context.tellEveryGateway(.broadcastEnded(record.id, record.app))
            }
            done(answer)
        }
    }

    /// Ends a broadcast's pending messages on all partitions and stops its delivery.
    func sweepBroadcast(_ record: TaskRecord, told: @escaping (TaskAnswer) -> Void) {
        askAll({ .sweep(record.id, record.app, $0) }) { answers in
            var count = 0
            for answer in answers {
                guard case .swept(let part) = answer else { return told(.busy) }
                count += part
            }
            told(.swept(count))
        }
    }

    // MARK: Steps

    private func run(_ run: BroadcastRun) {
        guard mayContinue(run.home) else { return run.done(false) }
        guard run.position < Bucket.count else { return write(run) }
        var isPaced = run.record.broadcast?.speed ?? 0 > 0
        if case .close = run.purpose { isPaced = false }
        if run.purpose == .enumerate, run.record.broadcast?.expiresAt ?? 0 <= owner.now { return run.done(false) }
        let range = run.position..<min(Bucket.count, run.position + (isPaced ? 1 : Self.bucketsPerStep))
        let count = owner.partitionCount
        let loops = Set(range.map { $0 % count }).sorted()
        let gathering = Gathering<TaskAnswer>(count: loops.count) { [self] answers in
            stepped(run, answers, to: range.upperBound)
        }
        for loop in loops {
            let scan = BroadcastScan(
                record: run.record, purpose: run.purpose, buckets: range, share: LoopShare(index: loop, count: count))
            ask(loop, .scan(scan)) { gathering.take($0) }
        }
    }

    private func stepped(_ run: BroadcastRun, _ answers: [TaskAnswer], to end: Int) {
        var (count, found): (Int, [DeviceID]) = (0, [])
        var isWhole = true
        for answer in answers {
            guard case .scanned(let part, let cids) = answer else {
                isWhole = false
                continue
            }
            count += part
            found += cids
        }
        guard isWhole else {
            // The write also checks the task's state, because the scan may be outdated.
            return later(1_000) { [self] in write(run, then: { [self] in self.run(run) }) }
        }
        guard !found.isEmpty else { return went(run, count, to: end) }
        guard let app = owner.registry[run.record.app] else { return run.done(false) }
        var content = run.record.content
        if content.timeToLive > 0, let plan = run.record.broadcast {
            // A late step shortens the time to live, so that all messages of the broadcast expire at the same time.
            content.timeToLive = max(1, plan.expiresAt - owner.now)
        }
        let sending = Sending(
            task: run.record.id, app: run.record.app, createdAt: run.record.broadcast?.launchedAt ?? 0,
            content: content, isBulk: true, permit: owner.permitOfKeptTask)
        let targets = found.map { app.target($0, of: run.record.id) }
        fanOut(sending, targets) { [self] outcomes in
            // Devices deduplicate the message, so a repeated step delivers nothing twice.
            guard !outcomes.contains(where: { $0.code.isRetryable }) else {
                return later(1_000) { [self] in self.run(run) }
            }
            guard !outcomes.contains(where: { $0.code == .stopped }) else { return run.done(false) }
            went(run, outcomes.count, to: end)
        }
    }

    private func went(_ run: BroadcastRun, _ count: Int, to end: Int) {
        run.position = end
        var delay: Int64 = 0
        if let speed = run.record.broadcast?.speed, speed > 0 { delay = Int64(count) * 1_000 / speed }
        if case .close = run.purpose { delay = 0 }
        let goOn: () -> Void = { [self] in
            if delay > 0 { later(delay) { [self] in self.run(run) } } else { self.run(run) }
        }
        guard count > 0 || end - run.written >= Self.bucketsPerWrite, end < Bucket.count else { return goOn() }
        write(run, then: goOn)
    }

    /// Stores the scan's position; the scan ends if the task was stopped or has ended.
    private func write(_ run: BroadcastRun, then goOn: (() -> Void)? = nil) {
        guard mayContinue(run.home) else { return run.done(false) }
        let place = TaskCommand.advance(
            run.record.id, run.record.app, position: run.position, during: run.record.state)
        ask(home: run.record.id, place) { [self] answer in
            switch answer {
            case .record:
                run.written = run.position
                if let goOn { goOn() } else { run.done(true) }
            case .busy: later(1_000) { [self] in write(run, then: goOn) }
            default: run.done(false)
            }
        }
    }
}
