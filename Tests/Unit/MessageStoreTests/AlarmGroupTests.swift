import Foundation
import TestKit
import Testing
import Wire

@testable import Delivery
@testable import MessageStore

/// Jobs whose app has no room stay in the store; each is reported at its own time, whatever earlier jobs exist.
@Suite("Alarms that wait for room")
struct AlarmGroupTests {
    private static let app = AppKey(7)

    private static func row(due: Int64, expires: Int64, strategy: Strategy, table: StoreKey.Table) -> [UInt8] {
        let facts = MessageFacts(
            message: MessageID(bucket: Bucket(0), acceptedAt: 0, digest: 0), task: .none, app: app, cid: .none,
            strategy: strategy, flags: [], table: table, item: 0, acceptedAt: 0, expiresAt: expires, fallbackAt: 0,
            wakeAt: 0, timeToLive: expires, byteCount: 0)
        let row = JobRow(facts: facts, state: .due, dueAt: due)
        var bytes = [UInt8](repeating: 0, count: row.byteCount)
        bytes.withUnsafeMutableBytes { row.write(into: $0) }
        return bytes
    }

    private final class Observer: ShardStoreObserver {
        var replies: [StoreReply] = []
        var found: [UInt64] = []
        func storeCommitted(upTo ticket: Ticket) {}
        func storeCooled(_ key: StoreKey) {}
        func storeReplied(_ reply: StoreReply) {
            replies.append(reply)
            if case .rows(let rows, _)? = reply.results.first { found += rows.map(\.key.ownerLow) }
        }
    }

    private func ask(_ fixture: StoreFixture, _ observer: Observer, at time: Int64) throws -> [UInt64] {
        let shard = fixture.shards[0]
        observer.found = []
        // Reads alarms outside groups, then each group, as long as one is due.
        for group in [AlarmGroup?.none] + shard.alarmGroups.map(Optional.some) {
            var rounds = 0
            while group.map({ shard.nextAlarm(of: $0) <= time }) ?? (shard.nextAlarm <= time), rounds < 200 {
                rounds += 1
                var request = AlarmRequest(upTo: time, limit: 64, group: group, fullApps: [Self.app])
                request.vendorTimeout = 30_000
                let count = observer.replies.count
                _ = shard.requestAlarms(request)
                try fixture.wait("the alarms") { observer.replies.count > count }
            }
            #expect(rounds < 200, "alarms never end")
        }
        return observer.found
    }

    @Test("a job that stays hides no later job that ends earlier, however many are between them", arguments: [1, 600])
    func hidden(between: UInt64) throws {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        defer { fixture.close() }
        let (shard, observer) = (fixture.shards[0], Observer())
        shard.observer = observer
        func put(_ number: UInt64, due: Int64, expires: Int64, _ strategy: Strategy, _ table: StoreKey.Table) {
            let bytes = Self.row(due: due, expires: expires, strategy: strategy, table: table)
            let key = StoreKey(Bucket(3), .job, ownerHigh: 1, ownerLow: number)
            shard.beginBatch(Bucket(3))
            shard.put(key, wakeAt: due, prior: .none, byteCount: bytes.count) { $0.copyBytes(from: bytes) }
            _ = shard.endBatch()
        }
        for number in 1...between {
            put(number, due: 1_000 + Int64(number), expires: 9_000_000, .liveElseVendor, .message)
        }
        put(1_001, due: 5_000, expires: 60_000, .liveElseVendor, .message)
        put(1_002, due: 5_001, expires: 9_000_000, .vendorElseLive, .vendorMessage)
        try fixture.sync()
        try fixture.spillAll()
        #expect(try ask(fixture, observer, at: 10_000) == [])
        #expect(try ask(fixture, observer, at: 35_000) == [])
        // Strategy 4 waits for half a minute. The other one's end is later.
        #expect(try ask(fixture, observer, at: 35_001) == [1_002])
        #expect(try ask(fixture, observer, at: 70_000) == [1_001])
        #expect(try ask(fixture, observer, at: 80_000) == [])
    }
}
