import Delivery
import Foundation
import Platform
import Synchronization
import TestKit
import Testing
import Wire

@testable import Journal
@testable import MessageStore

/// Durability `os`: a power failure may lose the last seconds, but no older rows.
@Suite("Embedded store without syncs")
struct UnsyncedStoreTests {
    private static let pageByteCount = 512

    /// The synced content when the spiller continued.
    private struct Synced: Sendable {
        var batchCount = 0
        var segments: [String: [UInt8]] = [:]
    }

    private static func segments(_ path: String) throws -> [String: [UInt8]] {
        let journal = path + "/journal/"
        var found: [String: [UInt8]] = [:]
        for name in try FileManager.default.contentsOfDirectory(atPath: journal) where name.hasPrefix("segment-") {
            found[name] = [UInt8](try Data(contentsOf: URL(fileURLWithPath: journal + name)))
        }
        return found
    }

    @Test("a power failure loses only the newest batches, even if rows were moved and segments reused")
    func losesTheNewestOnly() throws {
        let keys = (UInt64(0)..<9).map { StoreFixture.key($0, $0 < 4 ? .device : .message) }
        var lossCount = 0
        for seed in UInt64(1)...24 {
            var random = SeededGenerator(seed: seed)
            let folder = try TemporaryFolder(isInMemory: true)
            let synced = Lock(Synced()), batchCount = Atomic<Int>(0)
            let path = folder.path
            var configuration = StoreFixture.configuration(folder, segment: 8 << 10)
            configuration.durability = .os
            configuration.youngMilliseconds = 3_600_000
            configuration.spillFault = { step in
                guard step == .synchronized, let segments = try? Self.segments(path) else { return }
                synced.withLock { $0 = Synced(batchCount: batchCount.load(ordering: .relaxed), segments: segments) }
            }
            var states: [[StoreKey: String]] = [[:]]
            do {
                let fixture = try StoreFixture(configuration)
                defer { fixture.close() }
                for round in 0..<4 {
                    for _ in 0..<Int.random(in: 5...60, using: &random) {
                        var state = states[states.count - 1]
                        let key = keys[Int.random(in: 0..<keys.count, using: &random)]
                        if state[key] != nil, Int.random(in: 0..<4, using: &random) == 0 {
                            fixture.delete(key)
                            state[key] = nil
                        } else {
                            let text = "\(states.count) " + String(repeating: "x", count: 60)
                            fixture.put(key, text, prior: .maybe(wakeAt: 0))
                            state[key] = text
                        }
                        states.append(state)
                    }
                    try fixture.sync()
                    batchCount.store(states.count - 1, ordering: .relaxed)
                    if round < 3, Bool.random(using: &random) { try fixture.spillAll() }
                }
            }
            let known = synced.withLock { $0 }
            for (name, written) in try Self.segments(path) {
                var bytes = written
                let before = known.segments[name] ?? [UInt8](repeating: 0, count: bytes.count)
                for page in 0..<bytes.count / Self.pageByteCount
                where Int.random(in: 0..<100, using: &random) < [5, 30, 100][Int(seed % 3)] {
                    let range = page * Self.pageByteCount..<(page + 1) * Self.pageByteCount
                    bytes.replaceSubrange(range, with: before[range])
                }
                try Data(bytes).write(to: URL(fileURLWithPath: folder.path + "/journal/" + name))
            }
            let fixture = try StoreFixture(configuration)
            defer { fixture.close() }
            var found: [StoreKey: String] = [:]
            for key in keys { found[key] = try fixture.text(key) }
            let moment = states.lastIndex(of: found)
            #expect(
                moment ?? -1 >= known.batchCount, "seed \(seed): no state of the past, or one before what was synced")
            lossCount += moment == states.count - 1 ? 0 : 1
            // The store still works.
            fixture.put(keys[0], "afterwards", prior: .maybe(wakeAt: 0))
            try fixture.sync()
            try fixture.spillAll()
            #expect(try fixture.text(keys[0]) == "afterwards")
        }
        #expect(lossCount > 8)
    }

    #if DEBUG
    @Test("a segment is not recycled before the rows that replaced its own are on disk")
    func syncFails() throws {
        let folder = try TemporaryFolder()
        let failure = ErrorBox()
        var configuration = StoreFixture.configuration(folder)
        configuration.durability = .os
        configuration.youngMilliseconds = 3_600_000
        configuration.fatal = { failure.set($0) }
        let fixture = try StoreFixture(configuration)
        defer { fixture.close() }
        fixture.put(StoreFixture.key(1), "text")
        try fixture.sync()
        let name = try #require(try Self.segments(folder.path).keys.first)
        let plan = FaultPlan(
            folder: folder.path + "/journal/" + name, kind: .error(5), at: 1, extent: .fromThereOn
        ) { $0 == "fdatasync" }
        defer { plan.remove() }
        fixture.embedded.requestSpill()
        try fixture.wait("the failure") { failure.value != nil }
        #expect(fixture.embedded.statistics.spilledRowCount == 0)
        #expect(try Self.segments(folder.path)[name] != nil)
    }
    #endif
}
