import Foundation
import Testing
import Wire

@testable import LoadGenerator

/// What several workers found must add up to what one worker would have found, bit for bit.
@Suite("Adding up workers")
struct MergeTests {
    private struct Generator: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state ^ state >> 29
        }
    }

    /// Durations from nanoseconds to minutes.
    private func durations(_ count: Int, seed: UInt64) -> [Int64] {
        var generator = Generator(state: seed)
        return (0..<count).map { _ in
            Int64(generator.next() >> 1) >> Int64.random(in: 20...60, using: &generator)
        }
    }

    @Test("histograms of parts, sent as JSON and merged, equal the histogram of all", arguments: [1, 2, 7])
    func histograms(parts: Int) throws {
        let values = durations(5_000, seed: UInt64(parts))
        var whole = Histogram()
        var pieces = [Histogram](repeating: Histogram(), count: parts)
        for (index, value) in values.enumerated() {
            whole.record(value)
            pieces[index % parts].record(value)
        }
        var merged = Histogram()
        for piece in pieces {
            merged.merge(try JSONDecoder().decode(Histogram.self, from: try JSONEncoder().encode(piece)))
        }
        #expect(merged.count == whole.count && merged.minimum == whole.minimum && merged.maximum == whole.maximum)
        for percent in [0, 1, 50, 90, 99, 99.9, 99.99, 100] {
            #expect(merged.percentile(percent) == whole.percentile(percent))
        }
        // Sums of floating point depend on their order; nothing else may.
        #expect(abs(merged.mean - whole.mean) <= whole.mean * 1e-9)
    }

    @Test("a bucket that does not exist is refused instead of trapping")
    func badBucket() {
        let text = #"{"filled":[99999999,1],"minimum":1,"maximum":1,"sum":1}"#
        #expect(throws: DecodingError.self) { try JSONDecoder().decode(Histogram.self, from: Data(text.utf8)) }
    }

    @Test("a latency series of parts equals that of all, within its coarseness, slot by slot")
    func series() throws {
        var whole = LatencySeries()
        var pieces = [LatencySeries(), LatencySeries(), LatencySeries()]
        whole.begin(at: 1_000, length: 5_000_000_000)
        for index in 0..<2 { pieces[index].begin(at: 1_000, length: 5_000_000_000) }
        for (index, value) in durations(2_000, seed: 3).enumerated() {
            let now = 1_000 + Int64(index) * 3_000_000
            whole.record(value, at: now)
            pieces[index % 2].record(value, at: now)
        }
        var merged = LatencySeries()
        for piece in pieces { merged.merge(piece) }
        #expect(merged == whole)
        var earlier = LatencySeries()
        earlier.begin(at: 7, length: 5_000_000_000)
        earlier.record(1, at: 8)
        merged.merge(earlier)
        #expect(merged == whole)
        // Slots of 0.1 s, and one for the end: what comes after 5.1 s lies behind them.
        #expect((0..<whole.slotCount).reduce(0) { $0 + whole.count(in: $1) } == 1_700)
        var exact: [Int64] = []
        for value in [Int64(5_000), 40_000, 1_000_000, 900_000_000] {
            var one = LatencySeries()
            one.begin(at: 0, length: 1_000_000_000)
            one.record(value, at: 1)
            one.record(Int64.max >> 2, at: 1)
            exact.append(try #require(one.percentile(50, in: 0)))
            #expect(exact.last! >= value && Double(exact.last!) <= Double(value) * 1.13)
        }
        #expect(LatencySeries().slotCount == 0)
    }

    @Test("sets of jobs count what both have, once")
    func jobs() {
        var one = JobSet()
        var two = JobSet()
        let first = (0..<100).map { one.insert(publisher: 0, number: UInt64($0)) }
        let again = one.insert(publisher: 0, number: 64)
        #expect(first.allSatisfy { $0 } && !again)
        for number in UInt64(90)..<300 { _ = two.insert(publisher: 0, number: number) }
        _ = two.insert(publisher: 5, number: 7)
        let common = one.merge(two)
        #expect(common == 10 && one.count == 301)
        let none = one.merge(JobSet())
        #expect(none == 0)
    }

    @Test("tallies add up every count, and jobs that two workers had become repeats")
    func tallies() {
        var one = WorkerTally()
        (one.accepted, one.delivered, one.stalls, one.busiest, one.totalCPU) = (5, 4, 1, 0.5, 10)
        one.remainder.undelivered = 1
        one.failures = ["a": 1]
        _ = one.jobs.insert(publisher: 1, number: 1)
        var two = WorkerTally()
        (two.accepted, two.delivered, two.repeats, two.busiest, two.totalCPU) = (7, 7, 2, 0.25, 20)
        two.failures = ["a": 2, "b": 1]
        two.fatal = "x"
        _ = two.jobs.insert(publisher: 1, number: 1)
        one.merge(two)
        #expect(one.accepted == 12 && one.delivered == 11 && one.stalls == 1 && one.repeats == 3)
        #expect(one.busiest == 0.5 && one.totalCPU == 30 && one.remainder.undelivered == 1)
        #expect(one.failures == ["a": 3, "b": 1] && one.fatal == "x")
    }

    private struct Bytes: ByteSource {
        var rest: ArraySlice<UInt8>
        mutating func take(_ count: Int) throws(Exchange.Failure) -> [UInt8] {
            guard count <= rest.count else { throw .init(text: "short") }
            defer { rest = rest.dropFirst(count) }
            return Array(rest.prefix(count))
        }
    }

    private func plan() throws -> WorkerPlan {
        let arguments = [
            "live", "--app-id", "a", "--app-secret", "s", "--master-secret", "m", "--data", "/nonexistent",
        ]
        let options = try BenchOptions(parsing: arguments)
        let devices = (0..<3).map {
            DeviceIdentity(cid: DeviceID(high: 7, low: $0), secret: [1, 2, UInt8($0)], lastTimestamp: $0 << 40)
        }
        return WorkerPlan(
            job: .live, index: 3, credentials: try Credentials(options), devices: devices, firstDevice: 9, senders: 1,
            httpConnections: 0, adminConnections: 2, inFlight: 11, rate: 2.5, handshakes: 4, runTag: 0xFFFF,
            httpToken: "t",
            options: WorkerPlan.RunTimes(
                timeout: 1, hold: 2, warmup: 3, duration: 4, drain: Int64.max >> 1, heartbeatSeconds: 5,
                payloadByteCount: 6, messagesPerDevice: 7, pipeline: 8, batch: 9, leaseCount: 10,
                connectsDevices: true))
    }

    @Test("plans and findings survive the way to a worker process and back; every shorter form is refused")
    func exchange() throws {
        let plan = try plan()
        let bytes = try Exchange.encode([plan, plan])
        var source = Bytes(rest: bytes[...])
        let found = try Exchange.plans(from: &source)
        #expect(found.count == 2 && source.rest.isEmpty)
        #expect(found[1].devices == plan.devices && found[1].credentials == plan.credentials)
        #expect(found[1].rate == 2.5 && found[1].options.drain == Int64.max >> 1 && found[1].job == .live)
        for count in stride(from: 0, to: bytes.count, by: 13) {
            var short = Bytes(rest: bytes[..<count])
            #expect(throws: (any Error).self) { try Exchange.plans(from: &short) }
        }

        var tally = WorkerTally()
        tally.devices = plan.devices
        tally.deliverLatency.record(123)
        _ = tally.jobs.insert(publisher: 255, number: 1_000)
        tally.fatal = "f"
        var same = Bytes(rest: try Exchange.encode(tally, of: plan)[...])
        let back = try Exchange.tally(from: &same, of: plan)
        #expect(back.devices == plan.devices && back.deliverLatency == tally.deliverLatency)
        #expect(back.jobs == tally.jobs && back.fatal == "f" && back.connectStartedAt == Int64.max)
        tally.devices[0].cid = DeviceID(high: 8, low: 8)
        var other = Bytes(rest: try Exchange.encode(tally, of: plan)[...])
        #expect(try Exchange.tally(from: &other, of: plan).devices == tally.devices)
    }

    @Test("connections are shared out to as few processes as the limit of open files allows")
    func processes() throws {
        let files = 1_000 + Limits.spareDescriptorCount
        #expect(try FileLimit.processes(for: 1_000, wish: nil, files: files) == 1)
        #expect(try FileLimit.processes(for: 1_001, wish: nil, files: files) == 2)
        #expect(try FileLimit.processes(for: 10, wish: 4, files: files) == 4)
        let error = #expect(throws: UsageError.self) { try FileLimit.processes(for: 3_500, wish: 2, files: files) }
        #expect(error?.description.contains("--processes 4") == true)
        #expect(throws: UsageError.self) { try FileLimit.processes(for: 1_000_000, wish: nil, files: files) }
    }

    @Test("workers meet at gates in shared memory")
    func sharedGates() throws {
        let memory = try SharedMemory(byteCount: Coordinator.byteCount)
        let one = try #require(Coordinator(workers: 2, sharing: memory.descriptor, isFirst: true))
        let two = try #require(Coordinator(workers: 2, sharing: memory.descriptor, isFirst: false))
        one.arrive(.ready)
        #expect(!one.isComplete(.ready) && two.gate(.ready) == .closed)
        two.arrive(.ready)
        #expect(one.isComplete(.ready) && !one.isComplete(.second))
        one.open(.ready, at: 42)
        #expect(two.gate(.ready) == .open(42))
        two.add(5, to: .delivered)
        #expect(one.count(.delivered) == 5 && one.count(.accepted) == 0)
        one.abort()
        #expect(two.gate(.ready) == .open(42) && two.gate(.second) == .aborted)
        two.finish()
        #expect(one.hasFinished)
    }
}
