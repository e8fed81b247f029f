internal import Delivery
internal import Wire

// Checks of jobs: their rows, leases and results.
extension Oracle {
    // MARK: Rows

    func jobWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard let job = RowInspection.job(bytes), let record = record(job.message) else {
            return fail(.content, "a job that nobody published was stored")
        }
        if record.final != nil { fail(.books, "a job row of message \(record.index) was written after its end") }
        if job.state == .leased {
            if record.strategy == .liveOnly { fail(.strategy, "strategy 3 was leased") }
            let limit = world.plan.apps[record.identity.app].maxAttempts
            if job.attempts > limit { fail(.bounds, "message \(record.index) had \(job.attempts) attempts") }
        }
        if job.badgeApplied, record.job?.badgeApplied != true {
            let before = record.identity.badge
            defer { record.badgeChange = record.identity.badge - before }
            switch record.badge {
            case .none: break
            case .set(let value): record.identity.badge = max(0, value)
            case .add(let value): record.identity.badge = max(0, record.identity.badge + value)
            }
        }
        if job.state == .leased, job.attempts != record.job?.attempts ?? 0 {
            record.badgeAtLease = (job.lease.1, record.identity.badge)
            record.tokensAtLease = record.identity.tokens
            checkHeld(record)
        }
        if record.job?.badgeApplied == true, !job.badgeApplied { fail(.badge, "a badge was unapplied") }
        moveBadge(record, isTakenBack: job.isBadgeTakenBack)
        record.job = job
    }

    /// Adjusts the badge: the vendor's refusal reverts the first lease's change, and a later acceptance applies it again.
    ///
    /// Neither applies once a caller has set the badge.
    func moveBadge(_ record: Record, isTakenBack: Bool) {
        guard let job = record.job, job.isBadgeTakenBack != isTakenBack, job.badgeRound == record.identity.badgeRound
        else { return }
        let change = isTakenBack ? -record.badgeChange : record.badgeChange
        record.identity.badge = max(0, record.identity.badge + change)
    }

    /// Checks that no message is leased that the live channel may still deliver.
    func checkHeld(_ record: Record) {
        let identity = record.identity
        guard identity.callers.isEmpty else { return }
        if identity.isBlacklisted {
            fail(.strategy, "message \(record.index) was leased though its device is blacklisted")
        }
        if identity.pushModeOff { fail(.strategy, "message \(record.index) was leased though push mode is off") }
        guard record.strategy == .liveElseVendor, record.table != .vendorMessage, identity.isReachable,
            record.timeToLive > 0, !identity.isSuspect
        else { return }
        // The live deadline of a message that expires soon is one second before its expiry.
        var missedAt = record.sentAt + world.plan.limits.backgroundLiveDeadline
        if record.expiresAt - 1_000 > record.sentAt { missedAt = min(missedAt, record.expiresAt - 1_000) }
        if record.flightLink < 0 || now < missedAt {
            fail(.strategy, "message \(record.index) was leased though its device is reachable")
        }
    }

    func jobBecameDurable(_ bytes: UnsafeRawBufferPointer) {
        guard let job = RowInspection.job(bytes), let record = record(job.message) else { return }
        record.durableJob = job
        if job.lease != (0, 0), record.durableLeases.last != job.lease.1 {
            record.durableLeases.append(job.lease.1)
        }
        noteResult(record, job.settledLease.1, job.settledOutcome)
    }

    func noteResult(_ record: Record, _ lease: UInt64, _ outcome: UInt8) {
        guard outcome != 0, record.durableResults.last.map({ $0.lease != lease || $0.outcome != outcome }) ?? true
        else { return }
        record.durableResults.append((lease, outcome))
    }

    // MARK: Senders

    func leased(_ job: Job, _ sender: SimulatedSender, _ loop: Loop) {
        guard let record = record(job.message) else { return fail(.content, "a job nobody published was leased") }
        world.log.note(world.now, "leased", Int64(record.index), Int64(job.attempt), job.leasedUntil)
        let name = "message \(record.index)"
        if record.final != nil { fail(.leasedAfterEnd, "\(name) was leased after it had ended as \(record.final!)") }
        if record.strategy == .liveOnly { fail(.strategy, "strategy 3 was leased") }
        if !record.durableLeases.contains(job.leaseID.1) {
            fail(.beforeSync, "\(name) was leased before it was durable")
        }
        let decidedAt = job.leasedUntil - sender.leaseMilliseconds
        if decidedAt >= record.expiresAt || now >= record.expiresAt {
            fail(
                .leasedAfterExpiry,
                "\(name) was leased at \(decidedAt) and shown at \(now), it expired at \(record.expiresAt)")
        }
        if record.openLease != 0, decidedAt < record.openLeaseUntil {
            fail(.lease, "\(name) was leased at \(decidedAt) while it was leased until \(record.openLeaseUntil)")
        }
        if record.acceptWasRecorded { fail(.lease, "\(name) was leased after the vendor took it") }
        (record.openLease, record.openLeaseUntil) = (job.leaseID.1, job.leasedUntil)
        record.leaseTokens[job.leaseID.1] = job.token
        let app = world.plan.apps[record.identity.app]
        if loop.unknownApps.contains(app.key) { fail(.lease, "\(name) was leased before its app was known") }
        if job.topic != (job.channel == .apns ? app.apnsTopic : "") {
            fail(.content, "\(name) was leased with topic \(job.topic)")
        }
        if job.cid != record.identity.cid { fail(.content, "\(name) was leased for another device") }
        let identity = record.identity
        if job.channel == .sms {
            guard let delay = record.followUpDelay, job.token == "" else {
                return fail(.strategy, "\(name) has no follow-up and was leased in its channel")
            }
            if decidedAt < record.acceptedAt + delay {
                fail(.strategy, "\(name) was followed up at \(decidedAt), \(delay) ms after \(record.acceptedAt)")
            }
            return
        }
        if record.badgeAtLease.lease == job.leaseID.1, !record.tokensAtLease.contains(job.token) {
            fail(.lease, "\(name) was leased with a token its device does not have: \(job.token)")
        }
        if channel(ofToken: job.token) != job.channel {
            fail(.lease, "\(name) was leased in channel \(job.channel.name) with token \(job.token)")
        }
        if job.attempt > world.plan.apps[identity.app].maxAttempts {
            fail(.bounds, "\(name) had \(job.attempt) attempts")
        }
        checkBadge(job, record)
    }

    func checkBadge(_ job: Job, _ record: Record) {
        guard record.badge != .none, job.body.count > 30 else { return }
        var text = ""
        for byte in job.body[28...] {
            guard byte != UInt8(ascii: "}") else { break }
            text.unicodeScalars.append(UnicodeScalar(byte))
        }
        guard record.badgeAtLease.lease == job.leaseID.1 else { return }
        if Int32(text) != record.badgeAtLease.badge {
            fail(.badge, "message \(record.index) carries badge \(text), not \(record.badgeAtLease.badge)")
        }
    }

    func willExtend(_ record: Record, _ job: Job, by milliseconds: Int64) {
        if record.openLease == job.leaseID.1 { record.openLease = 0 }
    }

    /// Records the reported results and returns the number under which their verdicts arrive.
    func willSettle(_ results: [JobResult]) -> Int {
        for result in results {
            guard let record = record(result.job) else { continue }
            if result.outcome == .accepted, !record.foreignLeases.contains(result.leaseID.1) {
                record.wasReportedAccepted = true
                if isOfVendor(result.leaseID.1, record) { record.alertWasReported = true }
            }
            if result.outcome == .badToken, let token = record.leaseTokens[result.leaseID.1], !token.isEmpty {
                record.identity.badTokens.insert(token)
            }
            if record.openLease == result.leaseID.1 { record.openLease = 0 }
        }
        return settlements.begin(results)
    }

    /// Returns whether a lease was a vendor's, because the lease of a follow-up has no token.
    private func isOfVendor(_ lease: UInt64, _ record: Record) -> Bool { record.leaseTokens[lease] != "" }

    func settled(_ number: Int, _ verdicts: [ResultVerdict]) {
        guard let results = settlements.end(number) else { return }
        if results.count != verdicts.count { fail(.lease, "\(verdicts.count) verdicts for \(results.count) results") }
        for (result, verdict) in zip(results, verdicts) where verdict.verdict == .recorded {
            guard let record = record(result.job) else {
                fail(.lease, "a result of an unknown job was recorded")
                continue
            }
            if record.foreignLeases.contains(result.leaseID.1) {
                fail(.lease, "a lease of another history settled message \(record.index)")
            }
            let isDurable = record.durableResults.contains {
                $0.lease == result.leaseID.1 && $0.outcome == result.outcome.rawValue
            }
            if !isDurable, !(result.outcome == .accepted && record.hasLateAccept) {
                fail(
                    .beforeSync,
                    "result \(result.outcome) of message \(record.index) was confirmed before it was durable, strategy \(record.strategy), final \(String(describing: record.final)), job \(String(describing: record.job))"
                )
            }
            if result.outcome == .accepted, record.final == nil, record.strategy == .liveElseVendor {
                record.acceptWasRecorded = true
                if isOfVendor(result.leaseID.1, record) { record.alertWasRecorded = true }
            }
        }
    }
}
