import Delivery
import Testing
import Wire

@testable import Gateway

@Suite("Leases over all shards")
struct HandoffCoordinatorTests {
    private final class Shards: Partitions {
        let partitionCount: Int
        var leases: [(target: Int, command: LeaseCommand, answer: (LeaseAnswer?) -> Void)] = []
        var settled: [JobResult] = []
        var lookups: [(target: Int, leases: [UInt64], answer: ([LeasedJob]?) -> Void)] = []
        var knowsAllApps = true
        var knownApps: Set<AppKey> = [LinkSamples.job.app]
        var now: Int64 = 0

        init(count: Int = 2) { partitionCount = count }

        func ask<Request: PartitionRequest>(
            _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void
        ) {
            if let command = request as? LeaseCommand {
                leases.append((partition, command, { completion($0 as? Request.Answer ?? request.busy) }))
            } else if let results = (request as? SettleJobs)?.results {
                settled += results
            } else if let query = request as? LeasedJobsQuery {
                let leases = query.leases.map(\.low)
                lookups.append((partition, leases, { completion($0 as? Request.Answer ?? request.busy) }))
            }
        }

        func answer(_ answer: LeaseAnswer?, now: Int64) throws {
            self.now = now
            try #require(leases.last).answer(answer)
        }
    }

    private func coordinator(_ shards: Shards) -> HandoffCoordinator {
        HandoffCoordinator(
            first: 0, partitions: shards,
            knownApps: { .init(isComplete: shards.knowsAllApps, keys: shards.knownApps) }, clock: { shards.now })
    }

    /// The answer of a shard with further due jobs.
    private static func answer(_ jobs: [Job], due: ChannelSet = ChannelSet(.apns)) -> LeaseAnswer {
        LeaseAnswer(jobs: jobs, due: due)
    }

    /// A call for all apps that waits until `deadline`, in milliseconds.
    private static func call(
        until deadline: Int64, isCallerPresent: @escaping () -> Bool = { true }, complete: @escaping ([Job]) -> Void
    ) -> HandoffCoordinator.LeaseCall {
        .init(
            channel: .apns, apps: nil, limit: 10, leaseMilliseconds: 30_000, deadline: deadline, leaseID: (1, 2),
            isCallerPresent: isCallerPresent, complete: complete)
    }

    @Test("idle callers ask only shards that may have due jobs")
    func drainedShards() throws {
        let shards = Shards()
        let coordinator = coordinator(shards)
        var got: [[Job]] = []
        #expect(
            coordinator.lease(
                Self.call(until: 90_000) { got.append($0) }, now: 0))
        func answer(_ answer: LeaseAnswer?, _ now: Int64 = 10) throws {
            try shards.answer(answer, now: now)
        }
        var asked: [Int] {
            defer { shards.leases.removeAll() }
            return shards.leases.map(\.target)
        }
        // Shard 0 has no jobs. Shard 1 did not look.
        try answer(Self.answer([], due: []))
        try answer(nil)
        #expect(asked == [0, 1])
        coordinator.jobsAvailable([], in: 0, now: 20)
        coordinator.jobsAvailable(ChannelSet(.apns), in: 1, now: 20)
        #expect(shards.leases.map(\.target) == [1])
        // A report between the question and its answer concerns a later job.
        coordinator.jobsAvailable(ChannelSet(.apns), in: 1, now: 30)
        try answer(Self.answer([], due: []))
        #expect(shards.leases.map(\.target) == [1, 1])
        try answer(Self.answer([], due: []))
        #expect(asked == [1, 1] && got.isEmpty)
        // Every second the coordinator suspects one of the two shards, and asks for other apps' remaining jobs.
        coordinator.tick(now: 1_000)
        #expect(shards.leases.map(\.target) == [1])
        try answer(Self.answer([]), 1_001)
        coordinator.tick(now: 2_000)
        #expect(shards.leases.map(\.target) == [1, 0])
        try answer(Self.answer([], due: []), 2_001)
        #expect(shards.leases.map(\.target) == [1, 0, 1])
        try answer(Self.answer([LinkSamples.job], due: []), 2_002)
        #expect(got.map(\.count) == [1])
    }

    @Test("a report during a question, or from a new owner, is followed at once")
    func hints() throws {
        let shards = Shards(count: 3)
        let coordinator = coordinator(shards)
        #expect(
            coordinator.lease(
                Self.call(until: 90_000) { _ in }, now: 0))
        func answer(due: ChannelSet = []) throws {
            try shards.answer(Self.answer([], due: due), now: 10)
        }
        for _ in 0..<3 { try answer() }
        shards.leases.removeAll()
        // The other shards are drained. This shard's report arrives while it is being asked.
        coordinator.jobsAvailable(ChannelSet(.apns), in: 0, now: 20)
        coordinator.jobsAvailable(ChannelSet(.apns), in: 0, now: 21)
        try answer()
        #expect(shards.leases.map(\.target) == [0, 0])
        try answer()
        #expect(shards.leases.count == 2)
        // The former owner of a shard answers after the shard has moved.
        coordinator.jobsAvailable(ChannelSet(.apns), in: 1, now: 30)
        coordinator.suspect(1, now: 31)
        try answer()
        #expect(shards.leases.map(\.target) == [0, 0, 1, 1])
        try answer()
        #expect(shards.leases.count == 4)
    }

    @Test("a stalled shard delays no job of the others, and its late leases become due again")
    func silentShard() throws {
        let shards = Shards()
        let coordinator = coordinator(shards)
        var got: [[Job]] = []
        #expect(
            coordinator.lease(
                Self.call(until: 4_000) { got.append($0) }, now: 0))
        let silent = try #require(shards.leases.first)
        for second in 1...5 as ClosedRange<Int64> { coordinator.tick(now: second * 1_000) }
        #expect(shards.leases.map(\.target) == [0, 1])
        let other = try #require(shards.leases.last)
        shards.now = 5_100
        other.answer(Self.answer([LinkSamples.job]))
        #expect(got.map(\.count) == [1] && !coordinator.hasWorkUnderWay)
        shards.now = 9_000
        silent.answer(Self.answer([LinkSamples.job]))
        #expect(got.count == 1)
        #expect(shards.settled.map(\.outcome) == [.unsent])
    }

    @Test("no job goes to a sender while its app is unknown: nothing is leased, or the job becomes due again")
    func unknownApps() throws {
        let shards = Shards()
        let coordinator = coordinator(shards)
        var got: [[Job]] = []
        func lease(deadline: Int64) -> Bool {
            coordinator.lease(
                Self.call(until: deadline) { got.append($0) }, now: 0)
        }
        shards.knowsAllApps = false
        #expect(lease(deadline: 0) && got.map(\.count) == [0])
        #expect(lease(deadline: 4_000) && got.count == 1 && shards.leases.isEmpty)
        (shards.knowsAllApps, shards.knownApps) = (true, [])
        coordinator.tick(now: 1_000)
        let asked = try #require(shards.leases.first)
        shards.now = 1_100
        asked.answer(Self.answer([LinkSamples.job]))
        #expect(got.count == 1 && shards.settled.map(\.outcome) == [.unsent])
        // The job is returned once per round, because a second result under the same lease would be ignored.
        shards.knownApps = [LinkSamples.job.app]
        #expect(try #require(shards.leases.last).command.apps == [])
        #expect(lease(deadline: 4_000))
        let next = try #require(shards.leases.last)
        shards.now = 1_200
        next.answer(Self.answer([LinkSamples.job]))
        try shards.answer(Self.answer([]), now: 1_300)
        #expect(got.map(\.count) == [0, 1])
    }

    @Test("the jobs of a lease whose answer was lost become due again once their shard answers")
    func lostAnswers() throws {
        let shards = Shards()
        let coordinator = coordinator(shards)
        var got: [[Job]] = []
        #expect(coordinator.lease(Self.call(until: 90_000) { got.append($0) }, now: 0))
        try shards.answer(nil, now: 10)
        try shards.answer(Self.answer([], due: []), now: 20)
        func tick(_ now: Int64) {
            shards.now = now
            coordinator.tick(now: now)
        }
        tick(1_000)
        #expect(shards.lookups.map(\.target) == [0] && shards.lookups.map(\.leases) == [[2]])
        // The call asks the shard again under another lease, whose jobs stay with the caller.
        let leases = shards.leases.map(\.command.leaseID.1)
        #expect(Set(leases).count == leases.count)
        // One lookup at a time, and again after one without an answer.
        tick(2_000)
        #expect(shards.lookups.count == 1 && coordinator.hasWorkUnderWay)
        shards.lookups[0].answer(nil)
        tick(3_000)
        #expect(shards.lookups.map(\.leases) == [[2], [2]] && shards.settled.isEmpty)
        shards.lookups[1].answer([LeasedJob(LinkSamples.job.message, LeaseKey((1, 2)))])
        #expect(shards.settled.map(\.leaseID.1) == [2] && shards.settled.map(\.outcome) == [.unsent])
        tick(4_000)
        #expect(shards.lookups.count == 2)
        // A lease that has expired needs no lookup.
        try shards.answer(nil, now: 90_000)
        tick(200_000)
        #expect(shards.lookups.count == 2)
    }

    @Test("a question that is refused at once loses no lease, and one lookup has several leases")
    func refusedQuestions() throws {
        let shards = Shards(count: 1)
        let coordinator = coordinator(shards)
        for number in 1...20 as ClosedRange<UInt64> {
            var call = Self.call(until: 90_000) { _ in }
            call.leaseID = (number, 0)
            #expect(coordinator.lease(call, now: 0))
        }
        for lease in shards.leases { lease.answer(nil) }
        shards.now = 1_000
        coordinator.tick(now: 1_000)
        #expect(shards.lookups.isEmpty && shards.leases.count == 40)
        shards.now = 1_500
        for lease in shards.leases.dropFirst(20) { lease.answer(nil) }
        shards.now = 2_000
        coordinator.tick(now: 2_000)
        #expect(shards.lookups.map(\.leases.count) == [LeasedJobsQuery.leaseLimit])
    }

    @Test("a stop ends a call after the question in flight, with its jobs")
    func drained() throws {
        let shards = Shards()
        let coordinator = coordinator(shards)
        var got: [[Job]] = []
        #expect(coordinator.lease(Self.call(until: 90_000) { got.append($0) }, now: 0))
        coordinator.drain()
        #expect(got.isEmpty && shards.leases.count == 1)
        try shards.answer(Self.answer([LinkSamples.job]), now: 10)
        #expect(got.map(\.count) == [1] && shards.leases.count == 1 && !coordinator.hasWorkUnderWay)
    }

    @Test("jobs for a caller that disconnected during the last question become due again")
    func callerGone() throws {
        let shards = Shards(count: 1)
        let coordinator = coordinator(shards)
        var got: [[Job]] = []
        var isPresent = true
        #expect(
            coordinator.lease(Self.call(until: 9_000, isCallerPresent: { isPresent }) { got.append($0) }, now: 0))
        isPresent = false
        try shards.answer(Self.answer([LinkSamples.job], due: []), now: 10)
        #expect(got.map(\.count) == [0] && shards.settled.map(\.reason) == ["callerGone"])
    }
}
