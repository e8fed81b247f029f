internal import Delivery
internal import MessageStore
internal import Wire

/// A problem of this gateway that an operator should act on.
///
/// One list feeds `/v1/health`, `/readyz`, the console, `longwire doctor` and the log, so that they agree.
/// docs/use/Operations.md, "Health findings", has a row for each name.
struct HealthFinding: Sendable, Equatable {
    enum Severity: String, Sendable {
        /// Messages, devices or operators are affected now.
        case problem
        /// The gateway works, but may fail later if the operator does not act.
        case advice
    }

    enum Name: String, Sendable, CaseIterable {
        case storeRefusesWrites, clockDiffers, certificateExpired, certificateEnds, hookFailing, webhookFailing,
            noSender,
            damagedRows, diskLow, connectionsFull, partitionsWithoutOwner, linksDown, redisAway, logLinesLost
    }

    var name: Name
    var severity: Severity
    /// The affected listener, feed or vendor channel; empty if the name can apply only once.
    var subject = ""
    var text: String
    /// The remedy.
    var advice: String
}

/// The findings of the last evaluation, which all pages show.
struct HealthReport: Sendable {
    private var watch = HealthWatch()
    private(set) var findings: [HealthFinding] = []

    /// Evaluates the figures and replaces the findings.
    ///
    /// - Returns: The findings that began and ended since the last evaluation. Two findings are the same if their names and
    ///   subjects are equal.
    mutating func look(
        at figures: MetricFigures, _ health: ClusterHealth?, wall: Int64
    ) -> (began: [HealthFinding], ended: [HealthFinding]) {
        let before = findings
        findings = watch.findings(figures, health, wall: wall)
        func isIn(_ list: [HealthFinding], _ one: HealthFinding) -> Bool {
            list.contains { $0.name == one.name && $0.subject == one.subject }
        }
        return (findings.filter { !isIn(before, $0) }, before.filter { !isIn(findings, $0) })
    }
}

/// Derives the findings from successive readings of the gateway's figures.
struct HealthWatch: Sendable {
    /// The time in milliseconds after which due jobs without a lease are a finding.
    static let leaseTimeout: Int64 = 60_000

    private var leaseCounts = PerChannel { _ in UInt64(0) }
    /// The uptime at which due jobs were first seen without a lease; `nil` while senders lease, or nothing is due.
    private var unleasedSince = PerChannel<Int64?> { _ in nil }

    /// Evaluates the figures.
    ///
    /// - Parameters:
    ///   - figures: All figures of the gateway, with all served apps.
    ///   - health: The gateway's view of its cluster; `nil` without one.
    ///   - wall: The machine's time, in seconds since 1970.
    /// - Returns: The findings, problems first.
    mutating func findings(_ figures: MetricFigures, _ health: ClusterHealth?, wall: Int64) -> [HealthFinding] {
        let found =
            Self.store(figures) + Self.clock(figures.status) + Self.certificates(figures, wall: wall)
            + Self.webhooks(figures) + handoff(figures) + Self.room(figures)
            + (health.map(Self.cluster) ?? [])
        return found.filter { $0.severity == .problem } + found.filter { $0.severity == .advice }
    }

    private static func store(_ figures: MetricFigures) -> [HealthFinding] {
        var found: [HealthFinding] = []
        if !figures.acceptsWrites {
            found.append(
                HealthFinding(
                    name: .storeRefusesWrites, severity: .problem,
                    text: figures.store.refusalReason ?? "the store refuses writes, so publishes are refused",
                    advice: "Check the disk, or the Redis servers and their replicas."))
        }
        let damaged = figures.loops.reduce(0) { $0 &+ $1.shard.damagedRows }
        if damaged > 0 {
            found.append(
                HealthFinding(
                    name: .damagedRows, severity: .problem, text: "\(damaged) stored rows have invalid content",
                    advice: "Look for damagedRow in the log, check the disk, and restore a backup."))
        }
        return found
    }

    /// Returns a finding if the gateway time differs from the machine's clock; `/readyz` shows its text as a reason.
    static func clock(_ status: GatewayStatus) -> [HealthFinding] {
        let offset = status.clockOffset
        guard status.isClockStepRefused || abs(offset) > ClockLimits.noticedOffset else { return [] }
        let direction = offset > 0 ? "behind" : "ahead of"
        let advice =
            if status.isClockStepRefused {
                "Set the machine's clock right, or restart the gateway with --accept-clock if the clock is right."
            } else if offset > 0 {
                "The gateway's time follows by 3 s a minute; a restart of the gateway takes the machine's clock at once."
            } else {
                "The gateway's time approaches the clock by 3 s a minute. Keep the clock with NTP."
            }
        return [
            HealthFinding(
                name: .clockDiffers, severity: status.isClockStepRefused ? .problem : .advice,
                text: "the gateway's time is \(abs(offset) / 1_000) s \(direction) the machine's clock", advice: advice)
        ]
    }

    private static func certificates(_ figures: MetricFigures, wall: Int64) -> [HealthFinding] {
        figures.status.certificates.compactMap { expiry in
            let left = expiry.end - wall
            guard left < figures.limits.certificateWarningDays * 86_400 else { return nil }
            let (isOver, days) = (left < 0, left / 86_400)
            let text =
                switch expiry.part {
                case .certificate:
                    isOver
                        ? "the certificate of \(expiry.listener).tls has expired"
                        : "the certificate of \(expiry.listener).tls ends in \(days) days"
                case .clientAuthorities:
                    isOver
                        ? "all clientAuthorities of \(expiry.listener).tls have expired, so every client is refused"
                        : "the last of the clientAuthorities of \(expiry.listener).tls ends in \(days) days; "
                            + "every client is refused then"
                }
            return HealthFinding(
                name: isOver ? .certificateExpired : .certificateEnds, severity: isOver ? .problem : .advice,
                subject: expiry.name, text: text,
                advice: expiry.part == .certificate
                    ? "Renew it, put the files in place and reload."
                    : "Put the certificates of valid authorities into the file and reload.")
        }
    }

    private static func webhooks(_ figures: MetricFigures) -> [HealthFinding] {
        func failure(_ name: HealthFinding.Name, _ subject: String, _ what: String, _ state: HookState)
            -> HealthFinding?
        {
            guard !state.isHealthy else { return nil }
            let cause = state.lastCause.isEmpty ? "\(state.lastFailure)" : state.lastCause
            let last = state.lastStatus > 0 ? "it answers \(state.lastStatus)" : cause
            return HealthFinding(
                name: name, severity: .problem, subject: subject, text: "\(what) fails: \(last)",
                advice: "Check the receiver and its address; the gateway retries.")
        }
        var found = figures.hook.flatMap { failure(.hookFailing, "", "the handoff hook", $0) }.map { [$0] } ?? []
        for (feed, state) in figures.webhooks.sorted(by: { $0.key < $1.key }) {
            found += failure(.webhookFailing, feed, "the webhook of \(feed)", state).map { [$0] } ?? []
        }
        return found
    }

    /// Returns a finding for each channel with due jobs that no sender service has leased for a minute.
    private mutating func handoff(_ figures: MetricFigures) -> [HealthFinding] {
        VendorChannel.allCases.compactMap { channel in
            let due = figures.loops.reduce(0) { $0 + $1.apps.reduce(0) { $0 + $1.dueJobs[channel] } }
            let leases = figures.loops.reduce(UInt64(0)) { $0 &+ $1.shard.vendors[channel].leasesGiven }
            // A failing hook leases nothing of its channels while it backs off; `hookFailing` reports it.
            let isOfFailingHook = figures.hook.map { !$0.isHealthy && $0.channels.contains(channel) } ?? false
            let isIdle = due > 0 && leases == leaseCounts[channel] && !isOfFailingHook
            leaseCounts[channel] = leases
            guard isIdle else {
                unleasedSince[channel] = nil
                return nil
            }
            let since = unleasedSince[channel] ?? figures.uptimeMilliseconds
            unleasedSince[channel] = since
            guard figures.uptimeMilliseconds - since >= Self.leaseTimeout else { return nil }
            return HealthFinding(
                name: .noSender, severity: .problem, subject: "\(channel.name)",
                text: "\(due) jobs of channel \(channel.name) are due, and no sender service leases them",
                advice: channel.isFollowUp
                    ? "Start the sender of your own that serves the channel, or check its log and its connection."
                    : "Start longwire-sender with a credential for the channel, or check its log and its connection.")
        }
    }

    private static func room(_ figures: MetricFigures) -> [HealthFinding] {
        var found: [HealthFinding] = []
        if let disk = figures.status.disk, disk.all > 0, disk.free < disk.all / 10 {
            found.append(
                HealthFinding(
                    name: .diskLow, severity: .problem,
                    text: "\(disk.free * 100 / disk.all) % of the store's disk is free",
                    advice: "Make room: without it the journal cannot be flushed, and publishes are refused."))
        }
        let limit = figures.status.connections.devices
        if limit > 0, figures.deviceConnections >= limit - limit / 20 {
            found.append(
                HealthFinding(
                    name: .connectionsFull, severity: .problem,
                    text: "\(figures.deviceConnections) of \(limit) device connections are in use",
                    advice: "Raise limits.connections and LimitNOFILE, or add a gateway."))
        }
        if figures.lostLogLines > 0 {
            found.append(
                HealthFinding(
                    name: .logLinesLost, severity: .advice, text: "\(figures.lostLogLines) log lines were dropped",
                    advice: "The reader of the log is too slow; look at it, or raise log.level."))
        }
        return found
    }

    private static func cluster(_ health: ClusterHealth) -> [HealthFinding] {
        var found: [HealthFinding] = []
        if health.redisAwaySince != nil {
            found.append(
                HealthFinding(
                    name: .redisAway, severity: .problem, text: "the register in Redis is unreachable",
                    advice: "Check the Redis servers that hold the cluster's register."))
        }
        if !health.partsWithoutOwner.isEmpty {
            found.append(
                HealthFinding(
                    name: .partitionsWithoutOwner, severity: .problem,
                    text: "\(health.partsWithoutOwner.count) partitions have no owner",
                    advice: "See longwire cluster status; start the missing gateway."))
        }
        if !health.linksDown.isEmpty {
            found.append(
                HealthFinding(
                    name: .linksDown, severity: .problem,
                    text: "no link to \(health.linksDown.joined(separator: ", "))",
                    advice: "Check cluster.listen, cluster.advertise and the firewall between the gateways."))
        }
        return found
    }
}
