import Foundation
import TestKit
import Testing
import Wire

@testable import Delivery
@testable import MessageStore

@Suite("Embedded store: retention for a day")
struct RetentionTests {
    private static let text = String(repeating: "x", count: 1_000)

    private static func configuration(_ folder: TemporaryFolder, _ clock: TestClock) -> EmbeddedStore.Configuration {
        var configuration = StoreFixture.configuration(folder)
        configuration.now = { clock.now }
        return configuration
    }

    private func spill(_ fixture: StoreFixture, _ keys: [StoreKey], _ text: String = "request") throws {
        for key in keys { fixture.put(key, text) }
        try fixture.sync()
        try fixture.spillAll()
    }

    private func periods(_ fixture: StoreFixture, _ kind: Period.Kind) -> [Period] {
        fixture.embedded.database.ephemeralFamilies.map(\.period).filter { $0.kind == kind }
    }

    @Test("rows written before gateway time is known stay until a day after it is known")
    func unknownTime() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        let key = StoreFixture.key(1, .request)
        do {
            var configuration = Self.configuration(folder, clock)
            configuration.now = { nil }
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            try spill(fixture, [key])
            #expect(fixture.embedded.statistics.requests.milliseconds == 0)
        }
        let fixture = try StoreFixture(Self.configuration(folder, clock))
        defer { fixture.close() }
        try fixture.wait("a dated period") { periods(fixture, .requests).count == 2 }
        clock.advance(hours: 23)
        try spill(fixture, [StoreFixture.key(2, .request)])
        #expect(try fixture.text(key) == "request")
        clock.advance(hours: 2)
        try fixture.wait("the end") { periods(fixture, .requests).first?.begin != Period.undated }
        #expect(try fixture.text(key) == nil)
    }

    @Test("rows dated by a clock two days ahead expire a day after its correction, and none earlier")
    func wrongClock() throws {
        let folder = try TemporaryFolder()
        let (wrong, right) = (TestClock(), TestClock())
        wrong.advance(hours: 48)
        let old = StoreFixture.key(1, .request), ahead = StoreFixture.key(2, .request)
        let trace = StoreFixture.key(2, .trace)
        do {
            let fixture = try StoreFixture(Self.configuration(folder, right))
            defer { fixture.close() }
            try spill(fixture, [old])
        }
        do {
            let fixture = try StoreFixture(Self.configuration(folder, wrong))
            defer { fixture.close() }
            try spill(fixture, [trace])
            try fixture.wait("a period ahead") { periods(fixture, .requests).last?.begin == wrong.now }
            try spill(fixture, [ahead])
        }
        let fixture = try StoreFixture(Self.configuration(folder, right))
        defer { fixture.close() }
        try fixture.wait("a period of now") {
            periods(fixture, .requests).last?.begin == right.now && periods(fixture, .traces).last?.begin == right.now
        }
        right.advance(hours: 23)
        try spill(fixture, [StoreFixture.key(3, .request), StoreFixture.key(3, .trace)])
        for key in [old, ahead, trace] { #expect(try fixture.text(key) == "request") }
        right.advance(hours: 2)
        try fixture.wait("the end") {
            (periods(fixture, .requests) + periods(fixture, .traces)).allSatisfy { $0.begin <= right.now }
        }
        for key in [old, ahead, trace] { #expect(try fixture.text(key) == nil) }
        #expect(try fixture.text(StoreFixture.key(3, .request)) == "request")
    }

    @Test("above the budget the oldest rows are removed in parts, and the budget holds at every moment")
    func budgetWithinHours() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        var configuration = Self.configuration(folder, clock)
        configuration.requestByteLimit = 640_000
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        var next: UInt64 = 0
        // Twice the budget within the hours of one period.
        for round in 0..<64 {
            try spill(fixture, (0..<20).map { StoreFixture.key(next + $0, .request) }, Self.text)
            next += 20
            let segment = configuration.segmentByteCount
            try fixture.wait("the budget") {
                fixture.embedded.statistics.requests.byteCount <= configuration.requestByteLimit + segment
            }
            if round == 15 { #expect(fixture.embedded.statistics.requests.cutCount == 0) }
        }
        try fixture.wait("the cuts") { fixture.embedded.statistics.requests.cutCount > 0 }
        #expect(fixture.embedded.statistics.requests.cutMilliseconds == 0)
        #expect(try fixture.text(StoreFixture.key(0, .request)) == nil)
        // All rows within the budget exist, whenever periods change.
        clock.advance(hours: 5)
        try spill(fixture, [StoreFixture.key(next, .request)], Self.text)
        let kept = next - 480
        for number in stride(from: kept, through: next, by: 40) {
            #expect(try fixture.text(StoreFixture.key(number, .request)) == Self.text, "\(number)")
        }
    }

    @Test("traces above their budget cost no request id")
    func separateBudgets() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        var configuration = Self.configuration(folder, clock)
        configuration.traceByteLimit = 100_000
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        let ids = [StoreFixture.key(1, .request), StoreFixture.key(2, .request)]
        try spill(fixture, ids)
        for round in UInt64(0)..<10 {
            try spill(fixture, (0..<20).map { StoreFixture.key(round * 20 + $0, .trace) }, Self.text)
        }
        clock.advance(hours: 5)
        try fixture.wait("the cut") { fixture.embedded.statistics.traces.cutCount > 0 }
        #expect(try fixture.text(StoreFixture.key(0, .trace)) == nil)
        for key in ids { #expect(try fixture.text(key) == "request") }
        #expect(fixture.embedded.statistics.requests.cutCount == 0)
    }

    @Test("a day of request ids is kept when periods end by their size")
    func wholeDay() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        var configuration = Self.configuration(folder, clock)
        configuration.requestByteLimit = 1_000_000
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        for hour in UInt64(0)..<60 {
            try spill(fixture, (0..<20).map { StoreFixture.key(hour * 20 + $0, .request) }, Self.text)
            let from = hour < 24 ? 0 : hour - 23
            for back in [from, hour] {
                #expect(try fixture.text(StoreFixture.key(back * 20 + 7, .request)) == Self.text, "\(hour): \(back)")
            }
            clock.advance(hours: 1)
        }
        #expect(fixture.embedded.statistics.requests.cutCount == 0)
        #expect(try fixture.text(StoreFixture.key(7, .request)) == nil)
        #expect(fixture.embedded.statistics.requests.milliseconds < 30 * 3_600_000)
    }

    @Test("a million single pushes use as much of the budgets as Operations.md states")
    func capacity() throws {
        let folder = try TemporaryFolder()
        let clock = TestClock()
        let fixture = try StoreFixture(Self.configuration(folder, clock))
        defer { fixture.close() }
        let count = 20_000
        var random = SeededGenerator(seed: 3)
        let shard = fixture.shards[0]
        for _ in 0..<count {
            let bucket = Bucket(UInt16.random(in: 0..<UInt16(Bucket.count), using: &random))
            shard.beginBatch(bucket)
            for (table, byteCount) in [
                (StoreKey.Table.request, 57),
                (.trace, 49),
            ] {
                let key = StoreKey(
                    bucket, table, ownerHigh: .random(in: 0 ... .max, using: &random),
                    ownerLow: .random(in: 0 ... .max, using: &random))
                shard.put(key, wakeAt: 0, prior: .none, byteCount: byteCount) { bytes in
                    for index in bytes.indices { bytes[index] = UInt8(truncatingIfNeeded: index) }
                }
            }
            _ = shard.endBatch()
        }
        try fixture.sync()
        try fixture.spillAll()
        let statistics = fixture.embedded.statistics
        let (requests, traces) = (statistics.requests.byteCount / count, statistics.traces.byteCount / count)
        #expect((90...120).contains(requests), "\(requests) MB for a million")
        #expect((85...110).contains(traces), "\(traces) MB for a million")
    }

    @Test("a period's name has its properties, and a period ends when the next one of its kind starts")
    func names() {
        let all = [
            Period(.traces, number: 3, begin: 50), Period(.requests, number: 1, begin: Period.undated),
            Period(.requests, number: 2, begin: 100), Period(.requests, number: 4, begin: 40),
        ]
        for period in all { #expect(Period(name: period.name) == period) }
        for name in ["rows", "requests", "requests-1", "requests-x-1", "ephemeral-1", "default"] {
            #expect(Period(name: name) == nil)
        }
        let ordered = all.sorted { $0.number < $1.number }
        // The earliest date of a later period of the kind. The newest one has no end.
        #expect(ordered.indices.map { ordered.end(at: $0) } == [40, 40, nil, nil])
    }
}
