internal import Delivery
internal import Wire

/// Leases and settlements over all shards, for the callers of one loop: the handoff API's long polls and the hook.
///
/// A lease asks the shards that may have due jobs (`DuePartitions`) one after another, this loop's own first, so that it never
/// leases more jobs than requested. Without due jobs it waits for a report of a shard or for its timeout. It also asks again
/// every second, because a shard reports due jobs of an app only if it had none before.
final class HandoffCoordinator {
    /// A lease request of the handoff API or the hook.
    struct LeaseCall {
        var channel: VendorChannel
        var apps: Set<AppKey>?
        var limit: Int
        var leaseMilliseconds: Int64
        /// The end of the long poll, in monotonic milliseconds.
        var deadline: Int64
        /// The lease id of the first question; that of each later one is greater by one.
        var leaseID: (UInt64, UInt64)
        /// Called before each lease and before the answer.
        ///
        /// Jobs leased to a disconnected caller would be delayed until the lease expires.
        var isCallerPresent: () -> Bool
        var complete: ([Job]) -> Void
    }

    private struct Round {
        var call: LeaseCall
        var jobs: [Job] = []
        var asked = 0
        var isAsking = false
        /// The number and time of the last question, its shard, and that shard's report count at the time.
        var question: UInt64 = 0
        var questionAt: Int64 = 0
        var target = 0
        var reports: UInt32 = 0
        /// Whether the round ends after the question in flight, because the gateway stops.
        var isEnding = false
        /// Whether jobs were reported during the round, possibly by a shard that was already asked.
        var wasHinted = false
    }

    struct KnownApps {
        /// `false` if this gateway does not know all apps; it could then not name the app of a job.
        var isComplete: Bool
        var keys: Set<AppKey>
    }

    /// Above any `limits.longPolls`, which the admin listener enforces.
    static let roundLimit = 1 << 17
    /// The most settlements in flight; a settlement lasts one commit, so a higher number indicates a faulty caller.
    static let settlementLimit = 1_024

    /// The timeout of a shard's answer; the round then skips a shard whose disk or Redis server is stalled.
    private static let answerMilliseconds: Int64 = 5_000
    /// The time for which jobs that came too late for their round are offered back to their shard.
    private static let giveBackMilliseconds: Int64 = 120_000

    /// The delay before another lease of a returned job.
    private static let retryMilliseconds: Int64 = 1_000

    /// The partition that each round asks first.
    private let first: Int
    private unowned let partitions: any Partitions
    private let knownApps: () -> KnownApps
    /// The clock in monotonic milliseconds.
    private let clock: () -> Int64
    private let count: Int
    private var rounds = StampedTable<Round>(limit: HandoffCoordinator.roundLimit)
    private var due: DuePartitions
    private var lost = LostLeases()
    private var settlementCount = 0
    private(set) lazy var kept = KeptResults { [unowned self] results, complete in
        settle(results, apps: nil, complete: complete)
    }

    init(
        first: Int, partitions: any Partitions, knownApps: @escaping () -> KnownApps, clock: @escaping () -> Int64
    ) {
        (self.first, self.partitions, self.knownApps, self.clock) = (first, partitions, knownApps, clock)
        count = partitions.partitionCount
        due = DuePartitions(count: count)
    }

    var waitingCount: Int { rounds.count }

    /// Starts a lease; returns `false`, without calling `complete`, if too many callers are waiting.
    func lease(_ call: LeaseCall, now: Int64) -> Bool {
        guard let (slot, stamp) = rounds.insert(Round(call: call)) else { return false }
        step(slot, stamp, now: now)
        return true
    }

    /// Settles several jobs; verdicts have the same order.
    ///
    /// Jobs of apps outside `apps` (`nil` for all) are reported as unknown. Returns `false` if too many settlements are in
    /// flight.
    func settle(
        _ results: [JobResult], apps: Set<AppKey>?, complete: @escaping ([ResultVerdict]) -> Void
    ) -> Bool {
        spread(results.map(\.job), complete: complete) { places in
            SettleJobs(results: places.map { results[$0] }, apps: apps)
        }
    }

    /// Records receipts of vendors, with verdicts as in `settle`.
    func take(
        _ receipts: [VendorReceipt], apps: Set<AppKey>?, complete: @escaping ([ResultVerdict]) -> Void
    ) -> Bool {
        spread(receipts.map(\.message), complete: complete) { places in
            TakeReceipts(receipts: places.map { receipts[$0] }, apps: apps)
        }
    }

    func extend(
        _ items: [ExtendItem], milliseconds: Int64, apps: Set<AppKey>?, complete: @escaping ([ResultVerdict]) -> Void
    ) -> Bool {
        spread(items.map(\.job), complete: complete) { places in
            ExtendLeases(items: places.map { items[$0] }, milliseconds: milliseconds, apps: apps)
        }
    }

    /// Handles a partition's answer; `nil` means that the question was refused, or that its answer was lost.
    private func leased(_ slot: UInt32, _ stamp: UInt32, _ question: UInt64, _ answer: LeaseAnswer?) {
        let (jobs, now) = (answer?.jobs ?? [], clock())
        guard var round = rounds[slot, stamp], round.isAsking, round.question == question else {
            return giveBack(jobs, "callerGone", now: now)
        }
        round.isAsking = false
        round.asked += 1
        if let answer, !answer.due.contains(ChannelSet(round.call.channel)) {
            due.drained(round.target, round.call.channel, reports: round.reports)
        }
        let known = jobs.isEmpty ? [] : knownApps().keys
        round.jobs += jobs.filter { known.contains($0.app) }
        // Another gateway may know the app earlier than this one. This round excludes that app from now on.
        let unnamed = jobs.filter { !known.contains($0.app) }
        if !unnamed.isEmpty {
            giveBack(unnamed, "appNotKnownHere", now: now)
            round.call.apps = round.call.apps?.intersection(known) ?? known
        }
        rounds[slot, stamp] = round
        step(slot, stamp, now: now)
    }

    /// Returns jobs that no sender received to their shard, without counting an attempt; they are due after `retryMilliseconds`.
    private func giveBack(_ jobs: [(MessageID, leaseID: (UInt64, UInt64))], _ reason: String, until: Int64) {
        guard !jobs.isEmpty else { return }
        kept.settle(
            jobs.map { job, leaseID in
                JobResult(
                    job: job, leaseID: leaseID, outcome: .unsent, reason: reason,
                    retryAfterMilliseconds: Self.retryMilliseconds)
            }, until: until)
    }

    private func giveBack(_ jobs: [Job], _ reason: String, now: Int64) {
        giveBack(jobs.map { ($0.message, $0.leaseID) }, reason, until: now + Self.giveBackMilliseconds)
    }

    /// Wakes the calls that wait for jobs of these channels.
    func jobsAvailable(_ channels: ChannelSet, in partition: Int, now: Int64) {
        due.reported(partition, channels)
        lookAgain(now: now) { channels.contains(ChannelSet($0.channel)) }
    }

    /// Asks a shard again after it got a new owner or its reports may be lost.
    func suspect(_ partition: Int, now: Int64) {
        due.reported(partition, .all)
        lookAgain(now: now) { _ in true }
    }

    /// Asks the shards that may have jobs, and checks that callers are still connected; called about once a second.
    func tick(now: Int64) {
        passBySilent(now: now)
        // At least one shard is always suspected, so each round checks its caller.
        due.suspectNext()
        recoverLost(now: now)
        lookAgain(now: now) { _ in true }
        kept.tick(now: now)
    }

    /// Asks for the jobs of lost leases and gives them back.
    private func recoverLost(now: Int64) {
        for (partition, keys) in lost.questions(now: now) {
            partitions.ask(LeasedJobsQuery(leases: keys), of: partition) { [self] jobs in
                lost.end(partition, keys, isAnswered: jobs != nil)
                giveBack(
                    (jobs ?? []).map { ($0.message, $0.lease.words) }, "answerLost",
                    until: clock() + Self.giveBackMilliseconds)
            }
        }
    }

    /// Whether a caller waits for a shard's answer, or results wait for a partition.
    var hasWorkUnderWay: Bool { rounds.count > 0 || settlementCount > 0 || kept.count > 0 || lost.isAnyAsked }

    /// Ends all waiting because the gateway stops.
    ///
    /// A call with a question in flight ends after the answer. Otherwise jobs leased to it would be delayed until the lease
    /// expires.
    func drain() {
        recoverLost(now: clock())
        var idle: [(UInt32, UInt32)] = []
        var busy: [(UInt32, UInt32)] = []
        rounds.forEach { slot, stamp, round in
            if round.isAsking { busy.append((slot, stamp)) } else { idle.append((slot, stamp)) }
        }
        for (slot, stamp) in busy { rounds[slot, stamp]?.isEnding = true }
        for (slot, stamp) in idle {
            end(slot, stamp, now: clock())
        }
    }

    /// Skips a stalled shard, so that it does not block the jobs of other shards.
    private func passBySilent(now: Int64) {
        var late: [(UInt32, UInt32)] = []
        rounds.forEach { slot, stamp, round in
            if round.isAsking, now >= round.questionAt + Self.answerMilliseconds { late.append((slot, stamp)) }
        }
        for (slot, stamp) in late {
            rounds[slot, stamp]?.isAsking = false
            rounds[slot, stamp]?.asked += 1
            step(slot, stamp, now: now)
        }
    }

    private func lookAgain(now: Int64, where isMeant: (LeaseCall) -> Bool) {
        var idle: [(UInt32, UInt32)] = []
        var busy: [(UInt32, UInt32)] = []
        rounds.forEach { slot, stamp, round in
            guard isMeant(round.call) else { return }
            if round.isAsking { busy.append((slot, stamp)) } else { idle.append((slot, stamp)) }
        }
        for (slot, stamp) in busy { rounds[slot, stamp]?.wasHinted = true }
        for (slot, stamp) in idle {
            rounds[slot, stamp]?.asked = 0
            step(slot, stamp, now: now)
        }
    }

    /// Advances a round: asks the next shard, completes the round or leaves it waiting.
    private func step(_ slot: UInt32, _ stamp: UInt32, now: Int64) {
        guard var round = rounds[slot, stamp], !round.isAsking else { return }
        passDrained(&round)
        if round.asked >= count && round.jobs.isEmpty && round.wasHinted {
            (round.wasHinted, round.asked) = (false, 0)
            passDrained(&round)
        }
        if round.isEnding { return end(slot, stamp, now: now) }
        let isFull = round.jobs.count >= round.call.limit
        if isFull || round.asked >= count || !knownApps().isComplete {
            if round.jobs.isEmpty && now < round.call.deadline {
                rounds[slot, stamp] = round  // waits for a hint or the tick
                return
            }
            return end(slot, stamp, now: now)
        }
        guard round.call.isCallerPresent() else { return end(slot, stamp, now: now) }
        let target = (first + round.asked) % count
        (round.isAsking, round.questionAt) = (true, now)
        (round.target, round.reports) = (target, due.reports(of: target, round.call.channel))
        round.question += 1
        rounds[slot, stamp] = round
        let question = round.question
        // Each question leases under a different id. The return of a lost lease therefore returns no job of another question.
        let leaseID = (round.call.leaseID.0, round.call.leaseID.1 &+ (question - 1))
        let command = LeaseCommand(
            origin: .none, channel: round.call.channel, apps: round.call.apps,
            limit: round.call.limit - round.jobs.count, leaseMilliseconds: round.call.leaseMilliseconds,
            leaseID: leaseID)
        let lease = LostLeases.Lease(target, LeaseKey(leaseID), until: now + command.leaseMilliseconds)
        partitions.ask(command, of: target) { [self] answer in
            // A question that was refused at once reached no partition.
            if answer == nil, clock() > now { lost.add(lease, now: clock()) }
            leased(slot, stamp, question, answer)
        }
    }

    /// Completes a round; jobs for a caller that has disconnected become due again.
    private func end(_ slot: UInt32, _ stamp: UInt32, now: Int64) {
        guard let round = rounds.remove(slot, stamp) else { return }
        let isReceived = round.jobs.isEmpty || round.call.isCallerPresent()
        if !isReceived { giveBack(round.jobs, "callerGone", now: now) }
        round.call.complete(isReceived ? round.jobs : [])
    }

    private func passDrained(_ round: inout Round) {
        while round.asked < count, !due.mayHave((first + round.asked) % count, round.call.channel) {
            round.asked += 1
        }
    }

    /// Asks each partition about its jobs; `request` receives the indices of a partition's jobs.
    private func spread<Request: PartitionRequest>(
        _ jobs: [MessageID], complete: @escaping ([ResultVerdict]) -> Void, request: (_ places: [Int]) -> Request
    ) -> Bool where Request.Answer == [ResultVerdict] {
        var verdicts = jobs.map { ResultVerdict(job: $0, verdict: .unknownJob) }
        var places: [Int: [Int]] = [:]
        for (place, job) in jobs.enumerated() {
            // An id that names no bucket does not belong to this gateway and stays unknown.
            guard let bucket = job.bucket else { continue }
            places[bucket.loop(of: count), default: []].append(place)
            verdicts[place].verdict = .storeFailed  // until its partition has answered
        }
        guard !places.isEmpty else {
            complete(verdicts)
            return true
        }
        guard settlementCount < Self.settlementLimit else { return false }
        settlementCount += 1
        var missing = places.count
        for (target, itsPlaces) in places.sorted(by: { $0.key < $1.key }) {
            partitions.ask(request(itsPlaces), of: target) { [self] answers in
                for (place, verdict) in zip(itsPlaces, answers) { verdicts[place] = verdict }
                missing -= 1
                guard missing == 0 else { return }
                settlementCount -= 1
                complete(verdicts)
            }
        }
        return true
    }
}
