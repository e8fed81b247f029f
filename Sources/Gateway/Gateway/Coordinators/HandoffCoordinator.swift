internal import Delivery
internal import Wire

/// Leases and settlements over all shards, for the callers of one loop: the handoff API's long polls and the hook.
///
/// A lease asks the shards that may have due jobs (`DuePartitions`) one after another, this loop's own first, so that it
/// never takes more than was asked for. With nothing due it waits until a shard reports jobs or the wait is over. Every second
/// it asks again where jobs of other apps may be left: a report says only "where there were none".
final class HandoffCoordinator {
    /// What one caller of this loop waits for: `PushAPI.LeaseRequest` as it applies here, or a lease for the hook.
    struct LeaseCall {
        var channel: VendorChannel
        var apps: Set<AppKey>?
        var limit: Int
        var leaseMilliseconds: Int64
        /// Monotonic milliseconds until which an empty answer is put off.
        var deadline: Int64
        var leaseID: (UInt64, UInt64)
        /// Looked at before each lease: jobs leased to a caller that left would wait out their lease.
        var isCallerPresent: () -> Bool
        var complete: ([Job]) -> Void
    }

    /// One call's round of the loops.
    private struct Round {
        var call: LeaseCall
        var jobs: [Job] = []
        /// How many shards this round has asked.
        var asked = 0
        /// True between a question and its answer.
        var isAsking = false
        /// The last question's number and time, its shard, and how often that had reported jobs.
        var question: UInt64 = 0
        var questionAt: Int64 = 0
        var target = 0
        var reports: UInt32 = 0
        /// Jobs were reported while the round was under way: it may have passed them.
        var wasHinted = false
    }

    private struct Settlement {
        var verdicts: [ResultVerdict]
        /// For each shard asked, the places its verdicts take.
        var places: [UInt64: [Int]]
        var complete: ([ResultVerdict]) -> Void
    }

    /// Sends a command to a shard; the answer comes back through `leased` or `settled`.
    struct Outlet {
        var lease: (Int, LeaseCommand) -> Void
        var settle: (Int, [JobResult], Set<AppKey>?, Origin) -> Void
        var extend: (Int, [ExtendItem], Int64, Set<AppKey>?, Origin) -> Void
        /// False while this gateway does not know all apps: it could not name the app of a job.
        var knowsAllApps: () -> Bool
        var knownApps: () -> Set<AppKey>
        /// Names what waits in one of the coordinator's slots.
        var route: (_ slot: UInt32, _ stamp: UInt32) -> Route
    }

    /// Above any `limits.longPolls`, which the admin front keeps for its callers.
    static let roundLimit = 1 << 17
    /// Settlements last a commit; more than this at once means that a caller has gone wrong.
    static let settlementLimit = 1_024

    /// A shard that has not answered by then waits for its disk or its Redis server: the round goes on without it.
    private static let answerMilliseconds: Int64 = 5_000
    /// How long jobs that came too late for their round are offered to their shard again.
    private static let giveBackMilliseconds: Int64 = 120_000

    private let loop: Int
    private let loopCount: Int
    private var rounds = StampedTable<Round>(limit: HandoffCoordinator.roundLimit)
    private var due: DuePartitions
    private var settlements = StampedTable<Settlement>(limit: HandoffCoordinator.settlementLimit)
    var outlet: Outlet?
    /// What the hook's receiver has answered.
    private(set) lazy var kept = KeptResults { [unowned self] results, complete in
        settle(results, apps: nil, complete: complete)
    }

    init(loop: Int, loopCount: Int) {
        (self.loop, self.loopCount, due) = (loop, loopCount, DuePartitions(count: loopCount))
    }

    var waitingCount: Int { rounds.count }

    /// False when too many are waiting already; `complete` is not called then.
    func lease(_ call: LeaseCall, now: Int64) -> Bool {
        guard let (slot, stamp) = rounds.insert(Round(call: call)) else { return false }
        step(slot, stamp, now: now)
        return true
    }

    /// Settles several jobs; verdicts come in the same order.
    ///
    /// Jobs of apps other than `apps` (`nil`: all) are unknown to the caller. False when too many are waiting.
    func settle(
        _ results: [JobResult], apps: Set<AppKey>?, complete: @escaping ([ResultVerdict]) -> Void
    ) -> Bool {
        spread(results.map(\.job), complete: complete) { target, places, origin in
            self.outlet?.settle(target, places.map { results[$0] }, apps, origin)
        }
    }

    func extend(
        _ items: [ExtendItem], milliseconds: Int64, apps: Set<AppKey>?, complete: @escaping ([ResultVerdict]) -> Void
    ) -> Bool {
        spread(items.map(\.job), complete: complete) { target, places, origin in
            self.outlet?.extend(target, places.map { items[$0] }, milliseconds, apps, origin)
        }
    }

    /// A shard's answer to a lease command; `nil`: it did not look, and may have jobs.
    func leased(_ origin: Origin, _ answer: LeaseAnswer?, now: Int64) {
        guard let route = Route(origin.route) else { return }
        let jobs = answer?.jobs ?? []
        guard var round = rounds[route.slot, route.stamp], round.isAsking, round.question == origin.request else {
            return giveBack(jobs, "callerGone", now: now)
        }
        round.isAsking = false
        round.asked += 1
        if let answer, !answer.due.contains(ChannelSet(round.call.channel)) {
            due.drained(round.target, round.call.channel, reports: round.reports)
        }
        let known = jobs.isEmpty ? [] : outlet?.knownApps() ?? []
        round.jobs += jobs.filter { known.contains($0.app) }
        // Another gateway may have the app's settings earlier than this one. The rest of the round excludes that app.
        let unnamed = jobs.filter { !known.contains($0.app) }
        if !unnamed.isEmpty {
            giveBack(unnamed, "appNotKnownHere", now: now)
            round.call.apps = round.call.apps?.intersection(known) ?? known
        }
        rounds[route.slot, route.stamp] = round
        step(route.slot, route.stamp, now: now)
    }

    /// Returns jobs to their shard, due at once, without counting an attempt.
    private func giveBack(_ jobs: [Job], _ reason: String, now: Int64) {
        guard !jobs.isEmpty else { return }
        kept.settle(
            jobs.map { JobResult(job: $0.message, leaseID: $0.leaseID, outcome: .unsent, reason: reason) },
            until: now + Self.giveBackMilliseconds)
    }

    func settled(_ origin: Origin, _ verdicts: [ResultVerdict]) {
        guard let route = Route(origin.route), var settlement = settlements[route.slot, route.stamp] else { return }
        guard let places = settlement.places.removeValue(forKey: origin.request) else { return }
        for (place, verdict) in zip(places, verdicts) { settlement.verdicts[place] = verdict }
        settlements[route.slot, route.stamp] = settlement
        guard settlement.places.isEmpty else { return }
        settlements.remove(route.slot, route.stamp)
        settlement.complete(settlement.verdicts)
    }

    /// A shard has due jobs of these channels: the calls that wait for one of them ask again.
    func jobsAvailable(_ channels: ChannelSet, in partition: Int, now: Int64) {
        due.reported(partition, channels)
        lookAgain(now: now) { channels.contains(ChannelSet($0.channel)) }
    }

    /// Another gateway owns the shard now, or its reports may be lost: what it answered before counts no more.
    func suspect(_ partition: Int, now: Int64) {
        due.reported(partition, .all)
        lookAgain(now: now) { _ in true }
    }

    /// Called about once a second: asks the shards that may have jobs, and looks whether callers are still there.
    func tick(now: Int64) {
        passBySilent(now: now)
        // At least one shard is suspected, so each round looks after its caller.
        due.suspectNext()
        lookAgain(now: now) { _ in true }
        kept.tick(now: now)
    }

    /// True while a caller waits for the answer to something that a shard was asked, or a part has results to take.
    var hasWorkUnderWay: Bool { rounds.count > 0 || settlements.count > 0 || kept.count > 0 }

    /// Ends all waiting; for a stop.
    ///
    /// Who has asked a shard gets its answer first: jobs leased to a caller that never heard of them would wait out
    /// their lease.
    func drain() {
        var idle: [(UInt32, UInt32)] = []
        var busy: [(UInt32, UInt32)] = []
        rounds.forEach { slot, stamp, round in
            if round.isAsking { busy.append((slot, stamp)) } else { idle.append((slot, stamp)) }
        }
        for (slot, stamp) in busy { rounds[slot, stamp]?.call.deadline = 0 }
        for (slot, stamp) in idle {
            guard let round = rounds.remove(slot, stamp) else { continue }
            round.call.complete(round.jobs)
        }
    }

    /// One shard that stands still keeps no job of the others from their senders.
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

    /// Moves one round on: asks the next shard, finishes it, or leaves it waiting.
    private func step(_ slot: UInt32, _ stamp: UInt32, now: Int64) {
        guard var round = rounds[slot, stamp], !round.isAsking else { return }
        passDrained(&round)
        if round.asked >= loopCount && round.jobs.isEmpty && round.wasHinted {
            (round.wasHinted, round.asked) = (false, 0)
            passDrained(&round)
        }
        let isFull = round.jobs.count >= round.call.limit
        if isFull || round.asked >= loopCount || outlet?.knowsAllApps() == false {
            if round.jobs.isEmpty && now < round.call.deadline {
                rounds[slot, stamp] = round  // waits for a hint or the tick
                return
            }
            rounds.remove(slot, stamp)
            round.call.complete(round.jobs)
            return
        }
        guard round.call.isCallerPresent() else {
            rounds.remove(slot, stamp)
            round.call.complete(round.jobs)
            return
        }
        let target = (loop + round.asked) % loopCount
        (round.isAsking, round.questionAt) = (true, now)
        (round.target, round.reports) = (target, due.reports(of: target, round.call.channel))
        round.question += 1
        rounds[slot, stamp] = round
        guard let route = outlet?.route(slot, stamp) else { return }
        outlet?.lease(
            target,
            LeaseCommand(
                origin: route.origin(round.question), channel: round.call.channel, apps: round.call.apps,
                limit: round.call.limit - round.jobs.count,
                leaseMilliseconds: round.call.leaseMilliseconds, leaseID: round.call.leaseID))
    }

    /// Passes by the shards that have no due jobs.
    private func passDrained(_ round: inout Round) {
        while round.asked < loopCount, !due.mayHave((loop + round.asked) % loopCount, round.call.channel) {
            round.asked += 1
        }
    }

    private func spread(
        _ jobs: [MessageID], complete: @escaping ([ResultVerdict]) -> Void,
        send: (_ target: Int, _ places: [Int], Origin) -> Void
    ) -> Bool {
        var verdicts = jobs.map { ResultVerdict(job: $0, verdict: .unknownJob) }
        var places: [UInt64: [Int]] = [:]
        for (place, job) in jobs.enumerated() {
            // An id that names no bucket is none of ours and stays unknown.
            guard let bucket = job.bucket else { continue }
            places[UInt64(bucket.loop(of: loopCount)), default: []].append(place)
        }
        guard !places.isEmpty else {
            complete(verdicts)
            return true
        }
        for (place, job) in jobs.enumerated() where job.bucket != nil {
            verdicts[place].verdict = .storeFailed  // until its shard has spoken
        }
        guard
            let (slot, stamp) = settlements.insert(
                Settlement(verdicts: verdicts, places: places, complete: complete))
        else { return false }
        guard let route = outlet?.route(slot, stamp) else { return false }
        for (target, itsPlaces) in places.sorted(by: { $0.key < $1.key }) {
            send(Int(target), itsPlaces, route.origin(target))
        }
        return true
    }
}
