import Delivery
import Foundation
import Platform
import Synchronization
import TestKit
import Wire

@testable import MessageStore

/// A shard's loop that the test runs; posted tasks are queued until then.
final class ManualLoop: @unchecked Sendable {
    // `@unchecked Sendable` is sound because `tasks` is used only under the condition's lock.
    private let condition = NSCondition()
    private var tasks: [@Sendable () -> Void] = []

    func post(_ task: @escaping @Sendable () -> Void) {
        condition.lock()
        tasks.append(task)
        condition.signal()
        condition.unlock()
    }

    /// Runs the posted tasks, waiting at most `seconds` for one.
    func turn(waitingAtMost seconds: Double = 0) {
        condition.lock()
        if tasks.isEmpty, seconds > 0 { _ = condition.wait(until: Date(timeIntervalSinceNow: seconds)) }
        let now = tasks
        tasks = []
        condition.unlock()
        for task in now { task() }
    }

    /// Drops tasks that did not run, because they may retain the shard that owns this loop.
    func end() {
        condition.lock()
        let left = tasks
        tasks = []
        condition.unlock()
        withExtendedLifetime(left) {}
    }
}

struct WaitFailed: Error, CustomStringConvertible {
    var description: String
}

/// A temporary folder, removed with the object.
final class TemporaryFolder {
    let path: String

    // - Parameter isInMemory: whether to use a memory file system if available, for tests that sync often.
    init(isInMemory: Bool = false) throws {
        let isInMemory = isInMemory && FileManager.default.isWritableFile(atPath: "/dev/shm")
        path = (isInMemory ? "/dev/shm/" : NSTemporaryDirectory()) + "longwire-store-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }
    deinit { try? FileManager.default.removeItem(atPath: path) }
}

/// An embedded store with some shards on loops that the test runs.
final class StoreFixture {
    let loop = ManualLoop()
    private(set) var store: EmbeddedStore?
    private(set) var shards: [EmbeddedShardStore] = []

    init(_ configuration: EmbeddedStore.Configuration, shardCount: Int = 1) throws {
        let store = try EmbeddedStore(configuration)
        self.store = store
        let loop = loop
        for index in 0..<shardCount {
            shards.append(store.makeShard(index: index, of: shardCount, post: loop.post))
        }
    }

    deinit { close() }

    static func configuration(_ folder: TemporaryFolder, segment: Int = 64 << 10) -> EmbeddedStore.Configuration {
        var configuration = EmbeddedStore.Configuration(folder: folder.path)
        configuration.segmentByteCount = segment
        configuration.blockCacheByteCount = 1 << 20
        configuration.gatherMicroseconds = 0
        configuration.spillerTickMilliseconds = 5
        return configuration
    }

    var embedded: EmbeddedStore {
        guard let store else { preconditionFailure("the fixture is closed") }
        return store
    }

    func shard(of bucket: Bucket) -> EmbeddedShardStore { shards[bucket.loop(of: shards.count)] }

    func close() {
        for shard in shards { shard.close() }
        shards = []
        store?.close()
        store = nil
        loop.end()
    }

    /// Runs the loop until `isDone`.
    func wait(_ what: String, until isDone: () -> Bool) throws {
        let limit = SystemClock.monotonicMilliseconds + 60_000
        while !isDone() {
            guard SystemClock.monotonicMilliseconds < limit else {
                throw WaitFailed(description: "waited in vain for \(what)")
            }
            loop.turn(waitingAtMost: 0.05)
        }
    }

    func sync(_ tickets: [Ticket]) throws {
        for shard in shards { shard.turnEnded() }
        try wait("the commit") { zip(shards, tickets).allSatisfy { $0.committedTicket >= $1 } }
    }

    func spillAll() throws {
        embedded.requestSpill()
        try wait("the spill") {
            embedded.statistics.segmentCount == 0 && shards.allSatisfy { $0.youngRowCount == 0 }
        }
    }
}

/// An object that a failed expectation shows without its content.
///
/// An expectation copies its operands with all their content, and crashes at a part that cannot be copied, such as a lock.
protocol ShowsNothing: CustomReflectable {}

extension ShowsNothing {
    var customMirror: Mirror { Mirror(self, children: EmptyCollection<Mirror.Child>()) }
}

extension StoreFixture: ShowsNothing {}
extension EmbeddedStore: ShowsNothing {}
extension EmbeddedShardStore: ShowsNothing {}

final class EmbeddedStoreHarness: ShardStoreHarness {
    private let configuration: EmbeddedStore.Configuration
    private let isSpilling: Bool
    private var fixture: StoreFixture
    private let counting = CountingStore()
    private var shardCount = 1

    init(_ configuration: EmbeddedStore.Configuration, isSpilling: Bool) throws {
        (self.configuration, self.isSpilling) = (configuration, isSpilling)
        fixture = try StoreFixture(configuration)
        counting.store = fixture.shards[0]
    }

    var store: any ShardStore { counting }

    func sync() throws { try fixture.sync([counting.lastTicket]) }

    func answerReads() throws {
        try fixture.wait("replies") { counting.waitingReads == 0 }
    }

    func cool() throws {
        guard isSpilling else { return }
        // Reads in flight keep rows in memory.
        try fixture.spillAll()
    }

    func breathe() { fixture.loop.turn(waitingAtMost: 0.002) }

    func reopen() throws {
        fixture.close()
        fixture = try StoreFixture(configuration)
        counting.reset(fixture.shards[0])
    }

    func close() { fixture.close() }

    /// Waits until the index of alarms has this number of entries.
    func waitForAlarms(_ expected: Int) throws {
        let database = fixture.embedded.database
        func count() throws -> Int {
            let iterator = try DatabaseIterator(database, database.alarms, prefix: EmptyCollection())
            try iterator.seekToFirst()
            var count = 0
            while iterator.current != nil {
                count += 1
                try iterator.advance()
            }
            return count
        }
        try fixture.wait("\(expected) alarms") { (try? count()) == expected }
    }

    var spilledRowCount: Int { fixture.embedded.statistics.spilledRowCount }
}

/// Forwards all calls and counts the unanswered ones.
final class CountingStore: ShardStore, ShardStoreObserver {
    var store: EmbeddedShardStore? { didSet { store?.observer = self } }
    weak var observer: (any ShardStoreObserver)?
    private(set) var lastTicket: Ticket = 0
    private(set) var waitingReads = 0

    func reset(_ store: EmbeddedShardStore) {
        (lastTicket, waitingReads) = (0, 0)
        self.store = store
    }

    private var real: EmbeddedShardStore {
        guard let store else { preconditionFailure("no store") }
        return store
    }

    func storeCommitted(upTo ticket: Ticket) { observer?.storeCommitted(upTo: ticket) }
    func storeReplied(_ reply: StoreReply) {
        waitingReads -= 1
        observer?.storeReplied(reply)
    }
    func storeCooled(_ key: StoreKey) { observer?.storeCooled(key) }

    func storeBreached(_ breach: StoreBreach) { observer?.storeBreached(breach) }
    var batchByteCount: Int { real.batchByteCount }

    func beginBatch(_ bucket: Bucket) { real.beginBatch(bucket) }
    func put(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void
    ) -> ValueLocation {
        real.put(key, wakeAt: wakeAt, prior: prior, byteCount: byteCount, write: write)
    }
    func add(_ key: StoreKey, _ change: CounterChange, total: (UnsafeMutableRawBufferPointer) -> Void) {
        real.add(key, change, total: total)
    }
    func delete(_ key: StoreKey, prior: PriorRow) { real.delete(key, prior: prior) }
    func endBatch() -> Ticket {
        lastTicket = real.endBatch()
        return lastTicket
    }
    var committedTicket: Ticket { real.committedTicket }
    var acceptsWrites: Bool { real.acceptsWrites }
    var isShortOfRoom: Bool { real.isShortOfRoom }
    func value(at location: ValueLocation) -> UnsafeRawBufferPointer { real.value(at: location) }
    func young(_ key: StoreKey) -> YoungLookup { real.young(key) }
    func isCertainlyAbsent(_ key: StoreKey) -> Bool { real.isCertainlyAbsent(key) }
    func read(_ requests: [StoreRead]) -> ReadToken {
        waitingReads += 1
        return real.read(requests)
    }
    func requestAlarms(_ request: AlarmRequest) -> ReadToken {
        waitingReads += 1
        return real.requestAlarms(request)
    }
    var nextAlarm: Int64 { real.nextAlarm }
    var alarmGroups: [AlarmGroup] { real.alarmGroups }
    func nextAlarm(of group: AlarmGroup) -> Int64 { real.nextAlarm(of: group) }
    func leaveAlarm(_ key: StoreKey, wakeAt: Int64, in group: AlarmGroup, until: Int64) {
        real.leaveAlarm(key, wakeAt: wakeAt, in: group, until: until)
    }
    func recallAlarms(of group: AlarmGroup, in bucket: Bucket) { real.recallAlarms(of: group, in: bucket) }
}
