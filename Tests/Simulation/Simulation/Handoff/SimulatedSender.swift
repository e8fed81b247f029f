internal import Delivery
internal import Wire

/// A sender service and the vendor that it calls.
final class SimulatedSender {
    enum Character: CaseIterable { case honest, slow, liar, mortal }

    let index: Int
    var character: Character
    let leaseMilliseconds: Int64
    var leaseCount: UInt64 = 0
    /// Leased batches in flight from the gateway, and jobs in progress.
    var batches: [[Job]] = []
    var past: [Job] = []

    init(index: Int, chance: inout Chance) {
        self.index = index
        character = index == 0 ? .honest : chance.one(of: Character.allCases)
        leaseMilliseconds = Int64(chance.one(of: [5_000, 20_000, 60_000]))
    }
}

// Sender services: they lease jobs, call the vendor, and report correct results, wrong results or none.
extension World {
    func step(_ sender: SimulatedSender) {
        queue.add(.senderStep(sender: sender.index), at: now + (isHealing ? 500 : chance.time(50, plan.senderGap)))
        guard isUp else { return }
        lease(sender)
        if !isHealing, sender.character == .liar, chance.perMille(300) { lie(sender) }
    }

    func lease(_ sender: SimulatedSender, limit most: Int? = nil) {
        for loop in loops {
            for channel in plan.leasedChannels where loop.shard.hasDueJobs {
                lease(sender, channel, of: loop, limit: most)
            }
        }
    }

    private func lease(_ sender: SimulatedSender, _ channel: VendorChannel, of loop: Loop, limit most: Int?) {
        eventCount += 1
        sender.leaseCount += 1
        let limit = most ?? (isHealing ? 100 : chance.one(of: [1, 2, 5, 50]))
        let isChoosy = chance.perMille(100) || plan.lacksSender && !isHealing
        loop.shard.lease(
            LeaseCommand(
                origin: Origin(route: 2 | UInt64(sender.index) << 8, request: UInt64(sender.leaseMilliseconds)),
                channel: channel, apps: isChoosy ? [plan.apps[0].key] : nil, limit: limit,
                leaseMilliseconds: sender.leaseMilliseconds,
                leaseID: (
                    UInt64(sender.index) + 1, UInt64(life) << 40 | UInt64(sender.index) << 32 | sender.leaseCount
                )),
            now: gatewayNow)
        loop.perform()
    }

    func leased(_ origin: Origin, _ jobs: [Job], _ loop: Loop) {
        guard !jobs.isEmpty else { return }
        let sender = senders[Int(origin.route >> 8)]
        for job in jobs { oracle.leased(job, sender, loop) }
        if !isHealing, sender.character == .mortal, chance.perMille(250) {
            faults.note(.senderDied)
            return
        }
        sender.batches.append(jobs)
        var delay = chance.time(5, 800)
        if !isHealing, sender.character == .slow, chance.perMille(300) {
            faults.note(.senderSlow)
            delay += sender.leaseMilliseconds * 2
        }
        queue.add(.senderResults(sender: sender.index, batch: sender.batches.count - 1), at: now + delay)
    }

    /// Shows the alerts, then reports the results to the gateway.
    func report(_ sender: SimulatedSender, batch: Int) {
        guard isUp else { return }
        eventCount += 1
        let jobs = sender.batches[batch]
        var results: [JobResult] = []
        for job in jobs {
            sender.past.append(job)
            if sender.past.count > 40 { sender.past.removeFirst(20) }
            guard let record = oracle.record(job.message) else { continue }
            if gatewayNow > job.leasedUntil { faults.note(.resultLate) }
            if !isHealing, chance.perMille(30), loop(of: record.identity.bucket).life == life {
                faults.note(.leaseExtended)
                let loop = loop(of: record.identity.bucket)
                oracle.willExtend(record, job, by: 10_000)
                loop.shard.extend(
                    [(job.message, job.leaseID)], milliseconds: 10_000, apps: nil,
                    origin: Origin(route: 3, request: 0), now: gatewayNow)
                loop.perform()
            }
            var result = JobResult(job: job.message, leaseID: job.leaseID, outcome: .accepted, vendorID: "v")
            if !isHealing, chance.perMille(plan.vendorTrouble) {
                switch chance.below(4) {
                case 0:
                    result.outcome = .retry
                    result.retryAfterMilliseconds = chance.perMille(500) ? 0 : chance.time(1, 20_000)
                    faults.note(.vendorAskedForRetry)
                case 1:
                    result.outcome = .rejected
                    result.reason = "BadTopic"
                    faults.note(.vendorRejected)
                case 2:
                    result.outcome = .unsent
                    result.reason = chance.perMille(500) ? "connectionFailed" : "credentialRests"
                    result.retryAfterMilliseconds = chance.perMille(500) ? 0 : chance.time(1, 60_000)
                    faults.note(.jobGivenBack)
                default:
                    result.outcome = .badToken
                    result.timestamp = chance.perMille(500) ? 0 : gatewayNow
                    faults.note(.badTokenReported)
                }
            }
            // An SMS is no notification of the device.
            if result.outcome == .accepted, job.channel != .sms { show(record) }
            results.append(result)
        }
        settle(results)
        guard !isHealing, sender.character == .liar, let first = results.first else { return }
        if chance.perMille(400) {
            faults.note(.resultTwice)
            settle([first])
        }
        if chance.perMille(300) {
            faults.note(.resultContradictory)
            var other = first
            other.outcome = chance.one(of: JobResult.Outcome.allCases)
            settle([other])
        }
    }

    private func show(_ record: Record) {
        record.alertCount += 1
        let device = devices[record.identity.device]
        device.alerts.append(record)
        if device.alerts.count > 8 { device.alerts.removeFirst() }
        extensionSaw(record)
    }

    /// Reports results of jobs that the sender has not leased.
    private func lie(_ sender: SimulatedSender) {
        guard !records.isEmpty else { return }
        var id: MessageID
        var lease: (UInt64, UInt64) = (UInt64(sender.index) + 1, chance.next())
        if let job = sender.past.last, chance.perMille(500) {
            faults.note(.resultContradictory)
            (id, lease) = (job.message, job.leaseID)
        } else {
            faults.note(.resultUnknownJob)
            let record = chance.one(of: records)
            id = record.id
            if id.isNone {
                id = MessageID(bucket: record.identity.bucket, acceptedAt: gatewayNow, digest: record.digest)
            }
        }
        settle([JobResult(job: id, leaseID: lease, outcome: chance.one(of: JobResult.Outcome.allCases))])
    }

    private func settle(_ results: [JobResult]) {
        var parts = [[JobResult]](repeating: [], count: loops.count)
        for result in results {
            guard let bucket = result.job.bucket else { continue }
            parts[bucket.loop(of: loops.count)].append(result)
        }
        for (index, part) in parts.enumerated() where !part.isEmpty {
            eventCount += 1
            let number = oracle.willSettle(part)
            loops[index].shard.settle(
                part, apps: nil, origin: Origin(route: 4, request: UInt64(number)), now: gatewayNow)
            loops[index].perform()
        }
    }

    func settled(_ origin: Origin, _ verdicts: [ResultVerdict]) {
        eventCount += 1
        if origin.route == 4 { oracle.settled(Int(origin.request), verdicts) }
    }
}
