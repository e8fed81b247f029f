// Results of leased jobs from senders. Results are idempotent by (jobId, leaseId). A late `accepted` always counts; other late
// outcomes are stale.

internal import Structures
package import Wire

private final class VerdictOperation {
    let origin: Origin
    /// The apps that the caller may access; `nil`: all.
    let apps: Set<AppKey>?
    var verdicts: [ResultVerdict]
    var outstanding: Int

    init(_ origin: Origin, _ apps: Set<AppKey>?, _ jobs: [MessageID]) {
        (self.origin, self.apps) = (origin, apps)
        verdicts = jobs.map { ResultVerdict(job: $0, verdict: .unknownJob) }
        outstanding = jobs.count + 1
    }

    func sees(_ app: AppKey) -> Bool { apps?.contains(app) ?? true }
}

extension Shard {
    /// Handles results.
    ///
    /// The verdicts follow as `.settled` when all changes are durable.
    ///
    /// A job of an app outside `apps` (`nil`: all) is reported as unknown.
    package mutating func settle(_ results: [JobResult], apps: Set<AppKey>?, origin: Origin, now: GatewayTime) {
        begin(now)
        let operation = VerdictOperation(origin, apps, results.map(\.job))
        for (index, result) in results.enumerated() {
            withJob(result.job, operation, index) { shard, job in
                shard.settle(result, job)
            } ended: { shard, trace, done in
                shard.settleEnded(result, trace, completion: done)
            }
        }
        verdictDone(operation)
    }

    /// Extends leases to `milliseconds` from now; the verdicts follow as `.settled`.
    package mutating func extend(
        _ jobs: [(job: MessageID, leaseID: (UInt64, UInt64))], milliseconds: Int64, apps: Set<AppKey>?, origin: Origin,
        now: GatewayTime
    ) {
        begin(now)
        let operation = VerdictOperation(origin, apps, jobs.map(\.job))
        for (index, wanted) in jobs.enumerated() {
            withJob(wanted.job, operation, index) { shard, job in
                let entry = shard.jobs.at(job.slot)
                // A vendor may have accepted the message under another lease, so that this lease's copy must not be sent.
                guard entry.value.row.state != .cancelled, entry.value.row.state != .accepted,
                    !entry.value.row.isCollapsed
                else { return .cancelled }
                guard entry.value.row.state == .leased, entry.value.row.lease == wanted.leaseID,
                    entry.value.row.leasedUntil > shard.now
                else { return .stale }
                entry.value.row.leasedUntil = shard.now + max(1, milliseconds)
                shard.inBatch(of: job.device) { shard in
                    shard.writeJob(job.slot)
                }
                shard.placeJob(job.slot)
                return .recorded
            } ended: { shard, _, done in
                done(&shard, .cancelled)
            }
        }
        verdictDone(operation)
    }

    /// Finds a job and its device, or the trace of an ended message, and records the verdict.
    private mutating func withJob(
        _ message: MessageID, _ operation: VerdictOperation, _ index: Int,
        pending act: @escaping (inout Shard, LoadedJob) -> ResultVerdict.Verdict,
        ended:
            @escaping (
                inout Shard, TraceRow, @escaping (inout Shard, ResultVerdict.Verdict) -> Void
            ) -> Void
    ) {
        findJob(message) { shard, found in
            let job: JobSlot
            switch found {
            case .unreadable:
                operation.verdicts[index].verdict = .storeFailed
                return shard.verdictDone(operation)
            case .absent: return shard.withEnded(message, operation, index, ended)
            case .found(let slot): job = slot
            }
            guard operation.sees(shard.jobs.at(job).value.row.facts.app) else {
                // A caller without access to the app must not learn that the job exists.
                shard.dropJobIfDone(job)
                shard.verdictDone(operation)
                return
            }
            shard.whenReady(shard.jobs.at(job).value.device) { shard, device, readiness in
                if readiness != .ready {
                    operation.verdicts[index].verdict = readiness.mayBeRepeated ? .storeFailed : .unknownJob
                    shard.verdictDone(operation)
                    return
                }
                shard.withJob(message, device: device) { shard, found in
                    switch found {
                    case .found(let job):
                        operation.verdicts[index].verdict = act(&shard, job)
                        if let left = shard.jobs.find(message) { shard.dropJobIfDone(left) }
                    // The message ended during the read of its device.
                    case .absent: return shard.withEnded(message, operation, index, ended)
                    case .unreadable: operation.verdicts[index].verdict = .storeFailed
                    }
                    shard.verdictDone(operation)
                }
            }
        }
    }

    private mutating func withEnded(
        _ message: MessageID, _ operation: VerdictOperation, _ index: Int,
        _ ended:
            @escaping (
                inout Shard, TraceRow, @escaping (inout Shard, ResultVerdict.Verdict) -> Void
            ) -> Void
    ) {
        guard let bucket = message.bucket else { return verdictDone(operation) }
        readTrace(message, bucket: bucket) { shard, found in
            let trace: TraceRow
            switch found {
            case .found(let row) where operation.sees(row.facts.app): trace = row
            case .found, .absent:
                operation.verdicts[index].verdict = .unknownJob
                return shard.verdictDone(operation)
            case .unreadable:
                operation.verdicts[index].verdict = .storeFailed
                return shard.verdictDone(operation)
            }
            ended(&shard, trace) { shard, verdict in
                operation.verdicts[index].verdict = verdict
                shard.verdictDone(operation)
            }
        }
    }

    private mutating func verdictDone(_ operation: VerdictOperation) {
        operation.outstanding -= 1
        guard operation.outstanding == 0 else { return }
        whenDurable(.settled(operation.origin, operation.verdicts))
    }

    // MARK: One result

    private mutating func settle(_ result: JobResult, _ job: LoadedJob) -> ResultVerdict.Verdict {
        let entry = jobs.at(job.slot)
        if let given = entry.value.row.leases.first(where: { $0.id == result.leaseID }) {
            if given.hasTaken(result.outcome) { return .recorded }
        } else {
            // The lease is unknown or was forgotten because of later leases. A message that the vendor accepted under a forgotten
            // lease must not be sent to the vendor again.
            guard result.outcome == .accepted, entry.value.row.hasForgottenLeases else {
                count(entry.value.row, result.leaseID) { $0.resultsStale &+= 1 }
                return .stale
            }
            if entry.value.row.alertedAt > 0 { return .recorded }
        }
        let isCurrent = entry.value.row.state == .leased && entry.value.row.lease == result.leaseID
        guard isCurrent || result.outcome == .accepted || isPlanted(.lateResultCounts) else {
            count(entry.value.row, result.leaseID) { $0.resultsStale &+= 1 }
            return .stale
        }
        let reason = result.reason.bounded(JobResult.reasonByteCount)
        entry.value.row.settle(result.leaseID, result.outcome)
        if entry.value.place == .leasing { entry.value.place = .none }
        // An `unsent` job never reached the vendor, and a follow-up has no vendor. Neither changes the stored vendor failure.
        if result.outcome != .unsent, !entry.value.row.isOfFollowUp(result.leaseID) {
            noteVendor(result.outcome, reason, entry.value.row, job.device)
        }
        switch result.outcome {
        case .accepted: vendorAccepted(job, result)
        case .retry: vendorRetry(job, result, reason)
        case .rejected:
            count(entry.value.row) { $0.resultsRejected &+= 1 }
            entry.value.row.note(.vendorRejected, now, reason)
            endVendorPart(job, state: .rejected, reason: reason.isEmpty ? "rejected" : reason)
        // A follow-up uses no token of the device, so no token is quarantined.
        case .badToken where entry.value.row.isFollowUp:
            count(entry.value.row) { $0.resultsBadToken &+= 1 }
            entry.value.row.note(.badToken, now, reason)
            endVendorPart(job, state: .rejected, reason: reason.isEmpty ? "badToken" : reason)
        case .badToken: badToken(job, result, reason)
        case .unsent: unsent(job, result, reason)
        }
        return .recorded
    }

    /// Counts a result in the channel of its lease.
    private mutating func count(_ row: JobRow, _ lease: (UInt64, UInt64), _ change: (inout VendorStatistics) -> Void) {
        if let channel = row.channel(of: lease) { change(&numbers[channel]) }
    }

    /// Stores the vendor's last failure in the device's record, or removes it after an acceptance.
    private mutating func noteVendor(
        _ outcome: JobResult.Outcome, _ reason: String, _ row: JobRow, _ device: DeviceSlot
    ) {
        let hasFailure = devices.at(device).value.flags.contains(.vendorFailed)
        guard outcome != .accepted || hasFailure else { return }
        var profile = profile(device)
        let failure = VendorFailure(
            message: row.facts.message, at: now, outcome: outcome, attempts: row.attempts, reason: reason)
        if outcome == .accepted {
            profile.vendorFailure = nil
        } else if let known = profile.vendorFailure, known.isLike(failure),
            now - known.at < Self.failureRepeatMilliseconds
        {
            return
        } else {
            profile.vendorFailure = failure
        }
        save(profile, device)
    }

    /// The interval in ms between writes of an equal failure; it limits writes during a vendor outage.
    private static let failureRepeatMilliseconds: Int64 = 60_000

    /// Records the vendor's acceptance by a sender's result, or, without one, by a report of the vendor's notification.
    mutating func vendorAccepted(_ job: LoadedJob, _ result: JobResult? = nil) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.at(slot)
        let isOfFollowUp = result.map { entry.value.row.isOfFollowUp($0.leaseID) } ?? false
        // A late acceptance by the vendor takes the job back from the follow-up channel.
        if entry.value.row.isFollowUp, !isOfFollowUp, let vendor = entry.value.row.vendorChannel {
            // The list that the job leaves is that of its present channel.
            jobs.unplace(slot)
            entry.value.row.channel = vendor
            // A follow-up that was accepted before showed no alert.
            entry.value.row.alertedAt = 0
        }
        if let result { count(entry.value.row, result.leaseID) { $0.resultsAccepted &+= 1 } }
        entry.value.row.note(.vendorAccepted, now, result?.vendorID.bounded(JobResult.reasonByteCount) ?? "")
        // The vendor's timestamp counts only if it is between the acceptance and now.
        let facts = entry.value.row.facts
        let timestamp = result?.timestamp ?? 0
        let isPlausible = timestamp >= facts.acceptedAt && timestamp <= now
        if entry.value.row.alertedAt == 0 { entry.value.row.alertedAt = isPlausible ? timestamp : now }
        entry.value.row.state = .accepted
        // The vendor may accept a message whose job had ended. Its reverted badge change then applies again.
        if !isOfFollowUp { moveBadge(slot, isTakenBack: false) }
        var verdict = facts.strategy.vendorAccepted(VendorPart(entry.value.row, now: now))
        // A newer message under the collapse key replaces the part that the alert did not carry.
        if verdict == .goesLive, entry.value.row.isCollapsed || isPlanted(.acceptedPartLost) {
            verdict = .ends(.handedOff)
        }
        guard verdict != .goesLive else { return moveToLive(job, isAlerted: true) }
        inBatch(of: device) { shard in
            switch verdict {
            case .ends(let state):
                if !entry.value.row.isAlertCounted { shard.noteAlertEvent(slot) }
                shard.end(facts, state, message: entry.value.message, job: slot)
            case .goesLive, .stays:
                shard.countAlert(slot)
                shard.writeJob(slot)
                shard.placeJob(slot)
            }
        }
    }

    private mutating func vendorRetry(_ job: LoadedJob, _ result: JobResult, _ reason: String) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.at(slot)
        count(entry.value.row) { $0.resultsRetry &+= 1 }
        entry.value.row.note(.vendorRetry, now, reason)
        if entry.value.row.isCollapsed {
            endVendorPart(job, state: .cancelled, reason: "collapsed")
            return
        }
        guard Int(entry.value.row.attempts) < apps[Int(entry.value.appIndex)].maxAttempts else {
            count(entry.value.row) { $0.jobsExhausted &+= 1 }
            endVendorPart(job, state: .exhausted, reason: "exhausted")
            return
        }
        let backoff = min(
            limits.retryDelay.upperBound, limits.retryDelay.lowerBound << Int64(min(20, entry.value.row.attempts)))
        let delay = result.retryAfterMilliseconds > 0 ? result.retryAfterMilliseconds : backoff
        makeDueAgain(slot, of: device, after: min(delay, Self.longestRetryDelay))
    }

    /// The longest delay in ms that a sender may request.
    private static var longestRetryDelay: Int64 { 86_400_000 }

    /// Makes an unsent job due again; its lease does not count against `maxAttempts`.
    private mutating func unsent(_ job: LoadedJob, _ result: JobResult, _ reason: String) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.at(slot)
        count(entry.value.row) { $0.resultsUnsent &+= 1 }
        entry.value.row.noteUnsent(now, reason)
        if entry.value.row.isCollapsed {
            endVendorPart(job, state: .cancelled, reason: "collapsed")
            return
        }
        if entry.value.row.attempts > 0 { entry.value.row.attempts -= 1 }
        let wanted = result.retryAfterMilliseconds > 0 ? result.retryAfterMilliseconds : limits.unsentDelay
        let delay = min(max(wanted, limits.retryDelay.lowerBound), Self.longestRetryDelay)
        let facts = entry.value.row.facts
        // A message that goes live when the vendor fails does not wait beyond its vendor timeout.
        if facts.strategy.mustBeLeasedInTime(in: facts.table),
            now + delay >= facts.acceptedAt + limits.vendorFirstPatience
        {
            endVendorPart(job, state: .cancelled, reason: "unsent")
            return
        }
        makeDueAgain(slot, of: device, after: delay)
    }

    private mutating func makeDueAgain(_ slot: JobSlot, of device: DeviceSlot, after delay: Int64) {
        let entry = jobs.at(slot)
        entry.value.row.state = .due
        entry.value.row.dueAt = now + delay
        inBatch(of: device) { shard in
            shard.writeJob(slot)
        }
        placeJob(slot)
    }

    /// Quarantines the leased token, unless the device has replaced it or registered it again.
    private mutating func badToken(_ job: LoadedJob, _ result: JobResult, _ reason: String) {
        let (slot, device) = (job.slot, job.device)
        let entry = jobs.at(slot)
        count(entry.value.row) { $0.resultsBadToken &+= 1 }
        entry.value.row.note(.badToken, now, reason)
        guard let channel = entry.value.row.channel else { return }
        let sent = (digest: entry.value.row.sentToken, kind: entry.value.row.sentKind)
        let isAnyBad = isPlanted(.currentTokenQuarantined)
        var profile = profile(device)
        let (quarantined, hasOther) = profile.quarantine(
            channel, sent.kind, appHasTopic: apps[Int(entry.value.appIndex)].hasTopic, timestamp: result.timestamp
        ) { $0.digest == sent.digest || isAnyBad }
        if quarantined {
            let facts = entry.value.row.facts
            save(profile, device)
            inBatch(of: device) { $0.noteQuarantine(facts, channel, reason) }
        }
        let isWanted = hasOther && !entry.value.row.isCollapsed
        if isWanted, Int(entry.value.row.attempts) < apps[Int(entry.value.appIndex)].maxAttempts {
            entry.value.row.state = .due
            entry.value.row.dueAt = now
            inBatch(of: device) { shard in
                shard.writeJob(slot)
            }
            placeJob(slot)
        } else {
            endVendorPart(job, state: .rejected, reason: "badToken")
        }
    }

    mutating func noteQuarantine(_ facts: MessageFacts, _ channel: VendorChannel, _ reason: String) {
        noteEvent(
            .tokenQuarantined, message: facts.message, task: facts.task, reason: reason, detail: .channel(channel),
            hasCallback: facts.hasCallback)
    }

    /// Handles a result for an ended message; its trace row shows which results were already counted.
    private mutating func settleEnded(
        _ result: JobResult, _ trace: TraceRow,
        completion: @escaping (inout Shard, ResultVerdict.Verdict) -> Void
    ) {
        if let given = trace.leases.first(where: { $0.id == result.leaseID }) {
            if given.hasTaken(result.outcome) { return completion(&self, .recorded) }
        } else {
            // The lease is unknown. As for a pending message (`settle`), only an acceptance counts, and only if leases were
            // forgotten.
            guard result.outcome == .accepted, trace.leases.first?.isAfterForgotten == true else {
                countStale(trace)
                return completion(&self, .stale)
            }
            if trace.settledLease == result.leaseID, trace.settledOutcome == result.outcome.rawValue {
                return completion(&self, .recorded)
            }
        }
        // If the device already had the message, the vendor's acceptance is recorded as a second alert.
        let event: TraceEvent =
            trace.finalState == .delivered || trace.finalState == .deliveredOffline || trace.finalState == .opened
            ? .alertedTwice : .vendorAccepted
        guard result.outcome == .accepted, let key = Self.lateKey(event, trace.facts.message) else {
            countStale(trace)
            return completion(&self, .stale)
        }
        lookUp(key) { shard, late in
            switch late {
            case .found: return completion(&shard, .recorded)
            case .unreadable: return completion(&shard, .storeFailed)
            case .absent: break
            }
            // The trace names one channel. The channel is that of the result only if both or neither are of a follow-up.
            let isOfFollowUp = trace.leases.first { $0.id == result.leaseID }?.isOfFollowUp ?? false
            let channel = trace.channel?.isFollowUp == isOfFollowUp ? trace.channel : nil
            if let channel {
                shard.numbers[channel].resultsAccepted &+= 1
                if event == .alertedTwice { shard.numbers[channel].alertedTwice &+= 1 }
            }
            shard.inBatch(in: trace.facts.bucket) { shard in
                shard.noteLate(
                    event, of: trace.facts.message, detail: result.vendorID.bounded(JobResult.reasonByteCount))
                shard.noteTaskEvent(.alerted, isVendor: true, task: trace.facts.task, message: trace.facts.message)
                // A long trace lacks its middle steps, so the final state is also checked.
                let wasAlerted =
                    trace.steps.contains { $0.event == .vendorAccepted } || trace.finalState == .opened
                    || trace.finalState == .handedOff
                let wasReached = wasAlerted || trace.wasReached
                if !wasAlerted {
                    let reach: CountersRow.Reach = wasReached ? [.alerted] : [.alerted, .reached]
                    shard.counters.count(reach, of: trace.facts, vendor: channel, now: shard.now)
                }
            }
            completion(&shard, .recorded)
        }
    }

    private mutating func countStale(_ trace: TraceRow) {
        if let channel = trace.channel { numbers[channel].resultsStale &+= 1 }
    }
}
