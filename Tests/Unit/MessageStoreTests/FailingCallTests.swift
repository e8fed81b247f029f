import Delivery
import Foundation
import Platform
import TestKit
import Testing
import Wire

@testable import MessageStore

#if DEBUG
/// The expected content: the rows after each batch, and the last batch known durable.
private struct Books {
    struct Row: Equatable {
        var value: [UInt8]
        var wakeAt: Int64
    }
    var states: [[StoreKey: Row]] = [[:]]
    /// The last batch before the current opening's first.
    var base = 0
    var promised = 0
    var keys = Set<StoreKey>()
    var now: [StoreKey: Row] { states[states.count - 1] }
}

/// A short run of a store in which one call, or every call from it on, fails.
///
/// A seeded script with spills and restarts is compared with plain dictionaries.
private final class StoreRun {
    let plan: FaultPlan
    private let configuration: EmbeddedStore.Configuration
    private let fatal = ErrorBox()
    private var fixture: StoreFixture?
    private let observer = Answers()
    private var books = Books()
    private var random = SeededGenerator(seed: 5)
    private let isOnce: Bool
    private(set) var problems: [String] = []
    /// All reports of the fault.
    private(set) var told: [String] = []

    final class Answers: ShardStoreObserver {
        var replies: [ReadToken: StoreReply] = [:]
        func storeCommitted(upTo ticket: Ticket) {}
        func storeCooled(_ key: StoreKey) {}
        func storeReplied(_ reply: StoreReply) { replies[reply.token] = reply }
    }

    init(
        _ folder: TemporaryFolder, _ kind: FaultPlan.Kind, at number: Int, _ extent: FaultPlan.Extent,
        isCounted: @escaping @Sendable (String) -> Bool
    ) {
        var configuration = StoreFixture.configuration(folder, segment: 8 << 10)
        configuration.readerCount = 1
        configuration.youngMilliseconds = 3_600_000
        configuration.deletionsBeforeCompaction = 4
        configuration.now = { 1_795_000_000_000 }
        let fatal = fatal
        configuration.fatal = { fatal.set($0) }
        self.configuration = configuration
        isOnce = extent == .once
        plan = FaultPlan(folder: folder.path, kind: kind, at: number, extent: extent, isCounted: isCounted)
    }

    /// Runs the script up to the first failure that ends a store.
    func play() throws {
        defer { plan.remove() }
        guard open() else { return }
        for round in 0..<3 {
            for _ in 0..<24 { guard try step() else { return close() } }
            if isOnce, try !spill() { return close() }
            close()
            guard round < 2, open() else { return }
            guard try compare() else { return close() }
        }
    }

    /// Starts without faults: durable rows must be there, and the store must work.
    func verify() throws {
        fatal.clear()
        told.removeAll()
        guard open() else {
            problems.append("no start without the fault: \(told)")
            return
        }
        defer { close() }
        guard try compare() else {
            problems.append("no reading without the fault: \(told)")
            return
        }
        try checkAlarms()
        write()
        if try !sync() || !spill() || !compare() { problems.append("no work without the fault: \(told)") }
    }

    // MARK: Steps

    private func open() -> Bool {
        do {
            let fixture = try StoreFixture(configuration)
            self.fixture = fixture
            fixture.shards[0].observer = observer
            observer.replies = [:]
            return true
        } catch {
            let text = "\(error)"
            if !(error is StoreError) || !text.contains(configuration.folder) {
                problems.append("a start failed without saying where: \(text)")
            }
            told.append(text)
            return false
        }
    }

    private func close() {
        guard let fixture else { return }
        note()
        let store = fixture.embedded
        // A written batch is visible at the next start, whether submitted or not.
        fixture.close()
        self.fixture = nil
        // The spiller may have failed just before its end.
        if let failure = store.spiller.failures.last { told.append(failure) }
        if let error = fatal.value { told.append("\(error)") }
    }

    private func note() {
        guard let shard = fixture?.shards.first else { return }
        books.promised = max(books.promised, books.base + Int(shard.committedTicket))
        if let failure = fixture?.embedded.statistics.lastSpillFailure { told.append(failure) }
    }

    /// Waits; returns false if the store failed.
    private func wait(_ what: String, until isDone: @escaping () -> Bool) throws -> Bool {
        guard let fixture else { return false }
        let fatal = fatal
        try fixture.wait(what) { isDone() || fatal.value != nil }
        note()
        return fatal.value == nil
    }

    private func step() throws -> Bool {
        guard let fixture, fatal.value == nil else { return false }
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<60:
            write()
            if Bool.random(using: &random) { fixture.shards[0].turnEnded() }
            return true
        case 60..<78: return try sync()
        case 78..<92: return try compare(Array(books.keys.sorted().prefix(6)))
        default: return try spill()
        }
    }

    private func write() {
        guard let shard = fixture?.shards.first else { return }
        let bucket = Bucket(UInt16.random(in: 0...1, using: &random))
        var state = books.now
        shard.beginBatch(bucket)
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let table = StoreKey.Table.allCases.randomElement(using: &random) ?? .message
            let key = StoreKey(
                bucket, table, ownerHigh: 1,
                ownerLow: table.isEphemeral ? UInt64(books.keys.count) + 10 : UInt64.random(in: 1...2, using: &random),
                item: table.hasItems ? UInt64.random(in: 1...3, using: &random) : 0)
            let prior: PriorRow =
                state[key].map { .maybe(wakeAt: $0.wakeAt) }
                ?? (books.keys.contains(key) ? .maybe(wakeAt: 0) : .none)
            if !table.isEphemeral, state[key] != nil, Int.random(in: 0..<3, using: &random) == 0 {
                shard.delete(key, prior: prior)
                state[key] = nil
                continue
            }
            if table.isEphemeral, state[key] != nil { continue }
            if table == .counters {
                // Sums must be correct whatever part is on disk, and however often a start replays the others.
                let bytes = [UInt8(1), 0, 0, UInt8.random(in: 1...127, using: &random)]
                guard let change = bytes.withUnsafeBytes({ CounterChange($0) }) else { continue }
                let sum = change.added(to: state[key]?.value, key)
                shard.add(key, change) { $0.copyBytes(from: sum) }
                state[key] = Books.Row(value: sum, wakeAt: 0)
                books.keys.insert(key)
                continue
            }
            let value = [UInt8](
                repeating: UInt8.random(in: 0...255, using: &random), count: Int.random(in: 0...300, using: &random))
            let hasAlarm = key.isReportedWhenCooled && Bool.random(using: &random)
            let wakeAt = hasAlarm ? Int64.random(in: 1...99, using: &random) : 0
            shard.put(key, wakeAt: wakeAt, prior: prior, byteCount: value.count) { $0.copyBytes(from: value) }
            state[key] = Books.Row(value: value, wakeAt: wakeAt)
            books.keys.insert(key)
        }
        _ = shard.endBatch()
        books.states.append(state)
    }

    private func sync() throws -> Bool {
        guard let fixture, let shard = fixture.shards.first else { return false }
        shard.turnEnded()
        return try wait("the commit") { shard.committedTicket >= shard.lastTicket }
    }

    /// Moves all young rows to the ordered store; a reported failure ends the wait.
    private func spill() throws -> Bool {
        guard try sync(), let fixture else { return false }
        let (store, shard, isOnce) = (fixture.embedded, fixture.shards[0], isOnce)
        store.requestSpill()
        return try wait("the spill") {
            store.statistics.segmentCount == 0 && shard.youngRowCount == 0
                || !isOnce && store.statistics.lastSpillFailure != nil
        }
    }

    /// Compares rows with the expected ones; after a start this finds the batch with which the store ends.
    private func compare(_ chosen: [StoreKey]? = nil) throws -> Bool {
        guard let fixture else { return false }
        let shard = fixture.shards[0]
        let keys = chosen ?? books.keys.sorted()
        guard !keys.isEmpty else { return true }
        let token = shard.read(keys.map { .get($0) })
        let observer = observer
        guard try wait("an answer", until: { observer.replies[token] != nil }),
            let reply = observer.replies[token]
        else { return false }
        if let failure = reply.failure {
            told.append(failure)
            return chosen != nil  // A failed read affects one publish, not the store.
        }
        var found: [StoreKey: Books.Row] = [:]
        for (key, result) in zip(keys, reply.results) {
            guard case .row(let row?) = result else { continue }
            found[key] = Books.Row(value: Array(row.value), wakeAt: row.wakeAt)
        }
        if chosen != nil {
            let expected = books.now.filter { keys.contains($0.key) }
            if found != expected { problems.append("a read found another row than was written") }
            return true
        }
        guard shard.lastTicket == 0 else {
            if found != books.now { problems.append("the rows are not those written") }
            return true
        }
        let isFresh = { (index: Int) in self.books.states[index] == found }
        guard let end = (books.promised..<books.states.count).last(where: isFresh) else {
            problems.append("after a start: not the rows of any batch from \(books.promised) on")
            return false
        }
        books.states.removeLast(books.states.count - end - 1)
        (books.base, books.promised) = (end, end)
        return true
    }

    private func checkAlarms() throws {
        guard let shard = fixture?.shards.first else { return }
        let observer = observer
        // A start does not know where alarms are, so it takes several reads to cover everything.
        var keys: [StoreKey] = []
        var isComplete = false
        while !isComplete {
            let token = shard.requestAlarms(upTo: 1000, limit: 1000)
            guard try wait("alarms", until: { observer.replies[token] != nil }),
                case .rows(let rows, let isAll)? = observer.replies[token]?.results.first
            else {
                problems.append("no alarms")
                return
            }
            keys += rows.map(\.key)
            isComplete = isAll
        }
        let found = Set(keys)
        let expected = Set(books.now.filter { $0.value.wakeAt != 0 }.keys)
        if found != expected || keys.count != found.count { problems.append("other alarms than were set") }
    }
}

extension StoreRun: ShowsNothing {}

@Suite("Embedded store: every call failing")
struct StoreFailingCallTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var kind: FaultPlan.Kind
        var extent: FaultPlan.Extent
        var isDatabase: Bool
        var testDescription: String { "\(isDatabase ? "RocksDB" : "system"), \(kind), \(extent)" }
    }
    static let cases: [Case] = [EIO, ENOSPC].flatMap { code in
        [false, true].flatMap { isDatabase in
            [FaultPlan.Extent.once, .fromThereOn].map {
                Case(kind: .error(code), extent: $0, isDatabase: isDatabase)
            }
        }
    }

    static let isThorough = ProcessInfo.processInfo.environment["LONGWIRE_FAULTS"] == "all"

    /// `LONGWIRE_FAULTS=all` tests every n; otherwise each case tests different ones, the first of them closer together.
    static func next(after number: Int, _ fault: Case) -> Int {
        if isThorough { return number + 1 }
        let stride = fault.kind == .error(EIO) ? 25 : 40
        return number + (number < 16 ? 3 : stride) + number / 8
    }

    @Test("a failed n-th call neither traps nor hangs, loses no durable row, and is reported", arguments: cases)
    func nthCall(_ fault: Case) throws {
        var number = 1
        var kinds = Set<String>()
        while true {
            let folder = try TemporaryFolder(isInMemory: true)
            let run = StoreRun(folder, fault.kind, at: number, fault.extent) {
                $0.hasPrefix("rocksdb") == fault.isDatabase
            }
            try run.play()
            let isOver = run.plan.callCount < number
            let here = "call \(number): \(run.plan.hits.prefix(3)), told: \(run.told.prefix(3))"
            let told = run.told
            try run.verify()
            #expect(run.problems == [], "\(here)")
            for hit in run.plan.hits { kinds.insert(String(hit.prefix { $0 != "/" })) }
            if isOver { break }
            // Leftovers that cannot be removed are harmless.
            let isTidying = run.plan.hits.allSatisfy { $0.hasPrefix("unlink") || $0.hasPrefix("rmdir") }
            #expect(!told.isEmpty || isTidying, "\(here) went unnoticed")
            number = Self.next(after: number, fault)
        }
        #expect(number > 60, "the script has only \(number) calls")
        let expected =
            fault.isDatabase
            ? [
                "open", "iterator", "step", "get", "ingest", "open file", "write file", "finish file",
                "create family",
            ].map { "rocksdb \($0) " }
            : ["open ", "write ", "read ", "fdatasync ", "fallocate ", "rename ", "fsync ", "mkdir ", "flock "]
        for call in expected where Self.isThorough {
            #expect(kinds.contains(call), "no \(call)failed in \(number) calls")
        }
    }
}
#endif
