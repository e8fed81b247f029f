internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

// Broadcasts on the loop of their home. A broadcast scans all buckets in steps. Its position is stored after some of the steps.
extension TaskCoordinator {
    final class BroadcastRun {
        var record: TaskRecord
        let purpose: ScanBroadcast.Purpose
        /// The partition that runs the scan, until its release.
        let home: Partition
        /// The number of scanned buckets; `written` is its last stored value.
        var position: Int
        var written: Int
        /// Receives whether the scan is complete.
        let completion: (Bool) -> Void

        init(
            _ record: TaskRecord, _ purpose: ScanBroadcast.Purpose, of home: Partition,
            completion: @escaping (Bool) -> Void
        ) {
            (self.record, self.purpose, self.home, self.completion) = (record, purpose, home, completion)
            position = record.broadcast?.position ?? 0
            written = position
        }
    }

    /// The number of buckets per step; a step with a speed limit scans one bucket, to spread jobs and messages over time.
    static let bucketsPerStep = 16
    /// The largest number of buckets between two stored positions.
    static let bucketsPerWrite = 64

    /// Performs the work that is due for a broadcast, on behalf of its home.
    func broadcastDue(_ record: TaskRecord, of home: Partition, completion: @escaping () -> Void) {
        switch record.state {
        case .open:
            run(BroadcastRun(record, record.isStreamed ? .enumerate : .deal, of: home) { _ in completion() })
        case .ending:
            close(record, as: .expired, of: home, isNeeded: record.isStreamed, then: .ended, completion: completion)
        case .stopping:
            sweep(record.id, record.app) { [self] count in
                guard count != nil else { return completion() }
                let isLaunched = record.isStreamed && record.broadcast?.number ?? 0 > 0
                close(record, as: .revoked, of: home, isNeeded: isLaunched, then: .stopped, completion: completion)
            }
        default: completion()
        }
    }

    /// Runs the closing scan if it is needed, then records the end of the broadcast.
    private func close(
        _ record: TaskRecord, as state: FinalState, of home: Partition, isNeeded: Bool, then change: TaskChange,
        completion: @escaping () -> Void
    ) {
        guard isNeeded else { return finish(record, change, completion: completion) }
        run(
            BroadcastRun(record, .close(state), of: home) { [self] isWhole in
                if isWhole { finish(record, change, completion: completion) } else { completion() }
            })
    }

    private func finish(_ record: TaskRecord, _ change: TaskChange, completion: @escaping () -> Void) {
        ask(home: record.id, ChangeTask(record.id, record.app, change)) { [self] answer in
            if answer.isChanged {
                owner.context.tellEveryGateway(.broadcastEnded(record.id, record.app))
            }
            completion()
        }
    }

    // MARK: Steps

    private func run(_ run: BroadcastRun) {
        guard mayContinue(run.home) else { return run.completion(false) }
        guard run.position < Bucket.count else { return write(run) }
        var isPaced = run.record.broadcast?.speed ?? 0 > 0
        if case .close = run.purpose { isPaced = false }
        if run.purpose == .enumerate, run.record.broadcast?.expiresAt ?? 0 <= owner.now { return run.completion(false) }
        let range = run.position..<min(Bucket.count, run.position + (isPaced ? 1 : Self.bucketsPerStep))
        let count = owner.partitionCount
        let loops = Set(range.map { $0 % count }).sorted()
        let gathering = Gathering<ScanBroadcast.Step?>(count: loops.count) { [self] answers in
            stepped(run, answers, to: range.upperBound)
        }
        for loop in loops {
            let scan = ScanBroadcast(
                record: run.record, purpose: run.purpose, buckets: range, share: LoopShare(index: loop, count: count))
            owner.ask(scan, of: loop) { gathering.take($0) }
        }
    }

    private func stepped(_ run: BroadcastRun, _ answers: [ScanBroadcast.Step?], to end: Int) {
        guard let steps = answers.allOrNil() else {
            // A partition did not answer. The retry begins with a write, which ends the scan if the task has changed.
            return later(1_000) { [self] in write(run, completion: { [self] in self.run(run) }) }
        }
        let count = steps.reduce(0) { $0 + $1.count }
        let found = steps.flatMap(\.devices)
        guard !found.isEmpty else { return went(run, count, to: end) }
        guard let app = owner.registry[run.record.app] else { return run.completion(false) }
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
            // The devices' shards deduplicate the message, so a repeated step delivers nothing twice.
            guard !outcomes.contains(where: { $0.code.isRetryable }) else {
                return later(1_000) { [self] in self.run(run) }
            }
            guard !outcomes.contains(where: { $0.code == .stopped }) else { return run.completion(false) }
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
        write(run, completion: goOn)
    }

    /// Stores the scan's position; the scan ends if the task was stopped or has ended.
    ///
    /// `completion` continues the scan. Without it, the position is the last one, and the scan is complete.
    private func write(_ run: BroadcastRun, completion: (() -> Void)? = nil) {
        guard mayContinue(run.home) else { return run.completion(false) }
        let place = AdvanceBroadcast(
            run.record.id, run.record.app, position: run.position, during: run.record.state)
        ask(home: run.record.id, place) { [self] answer in
            switch answer {
            case .changed:
                run.written = run.position
                if let completion { completion() } else { run.completion(true) }
            case .busy: later(1_000) { [self] in write(run, completion: completion) }
            case .refused, .unknown: run.completion(false)
            }
        }
    }
}
