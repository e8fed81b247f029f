import Delivery
import Journal
import Platform
import Redis
import SimulatedRedis
import Synchronization
import TestKit
import Testing
import Wire

@testable import MessageStore

/// The machine's network with replies that a test can drop or change.
private final class UnsureNetwork: RedisNetwork, Sendable {
    enum Fault: Sendable {
        case loseReplies
        case loseCommands
    }

    private let real = RedisSockets()
    /// The faults of the next exchanges with a command of this name.
    private let plan = Lock<(name: String, faults: [Fault])>(("", []))
    private let commands = Lock<[String]>([])
    /// Whether replies to `WAIT` report that no replica has the write.
    let isReplicaLate = Atomic<Bool>(false)

    func fail(_ name: String, _ faults: [Fault]) { plan.withLock { $0 = (name, faults) } }
    var names: [String] { commands.withLock { $0 } }

    private final class Connection: RedisConnection {
        let network: UnsureNetwork
        let address: RedisAddress
        let real: any RedisConnection
        init(_ network: UnsureNetwork, _ address: RedisAddress, _ real: any RedisConnection) {
            (self.network, self.address, self.real) = (network, address, real)
        }
        private var names: [String] = []
        private var fault: Fault?

        private func note(_ commands: [RedisCommand]) throws(RedisError) {
            names = commands.map(\.name)
            network.commands.withLock { $0 += names }
            fault = network.plan.withLock { plan in
                guard names.contains(plan.name), !plan.faults.isEmpty else { return nil }
                return plan.faults.removeFirst()
            }
            if case .loseCommands = fault { throw .broken(address, "planned") }
        }

        private func changed(_ replies: [RedisReply]) throws(RedisError) -> [RedisReply] {
            var replies = replies
            if case .loseReplies = fault { throw .broken(address, "planned") }
            if network.isReplicaLate.load(ordering: .relaxed) {
                for place in replies.indices where names[place] == "WAIT" { replies[place] = .integer(0) }
            }
            return replies
        }

        func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
            try note(commands)
            return try changed(try real.run(commands, timeoutMilliseconds: timeoutMilliseconds))
        }
        func begin(_ commands: [RedisCommand]) throws(RedisError) {
            try note(commands)
            try real.begin(commands)
        }
        func proceed() throws(RedisError) -> [RedisReply]? {
            guard let replies = try real.proceed() else { return nil }
            return try changed(replies)
        }
        var interest: RedisInterest? { real.interest }
        func close() { real.close() }
    }

    func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        Connection(self, address, try real.connect(to: address, timeoutMilliseconds: timeoutMilliseconds))
    }
    var monotonicMilliseconds: UInt64 { real.monotonicMilliseconds }
    func sleep(milliseconds: Int) { real.sleep(milliseconds: milliseconds) }
}

@Suite("The log on Redis", .enabled(if: RedisServers.executable != nil, "no redis-server"), .serialized)
struct RedisLogTests {
    private static let bucket = Bucket(0)
    private static let log = "{lw:test:p0}:log"

    private func key(_ number: UInt64, _ table: StoreKey.Table = .tag) -> StoreKey {
        StoreKey(Self.bucket, table, ownerHigh: 1, ownerLow: 1, item: number)
    }

    @discardableResult
    private func put(_ store: EmbeddedShardStore, _ key: StoreKey, _ text: String, wakeAt: Int64 = 0) -> Ticket {
        store.beginBatch(key.bucket)
        let bytes = Array(text.utf8)
        store.put(key, wakeAt: wakeAt, prior: .maybe(wakeAt: 0), byteCount: bytes.count) { $0.copyBytes(from: bytes) }
        let ticket = store.endBatch()
        store.turnEnded()
        return ticket
    }

    private func get(_ fixture: RedisFixture, _ key: StoreKey) throws -> String? {
        let reader = RowWitness()
        fixture.store.observer = reader
        _ = fixture.store.read([.get(key)])
        try fixture.wait("a read") { reader.replies > 0 }
        if let failure = reader.failure { throw WaitFailed(description: failure) }
        return reader.text
    }

    private func entries(_ servers: RedisServers, field: String = "b") throws -> [String] {
        try servers.command(0, "XRANGE", Self.log, "-", "+").array?.compactMap { entry in
            guard let parts = entry.array, parts[1].array?.first?.text == field else { return nil }
            return parts[0].text
        } ?? []
    }

    @Test("a group whose reply was lost is in the stream once", arguments: [true, false])
    func lostReplies(hasRun: Bool) throws {
        let servers = try RedisServers()
        let network = UnsureNetwork()
        let fixture = try RedisFixture(
            RedisCluster(seeds: servers.addresses, network: network), RedisFixture.configuration(), epoch: 1)
        defer { fixture.close() }
        let before = network.names.count { $0 == "SET" }
        for number in UInt64(1)...3 {
            network.fail("XADD", [hasRun ? .loseReplies : .loseCommands])
            let ticket = put(fixture.store, key(number), "a\(number)")
            try fixture.wait("the commit") { fixture.store.committedTicket >= ticket }
        }
        #expect(try entries(servers).count == 3)
        // WAIT covers only its own connection's writes, so after a disconnect a read and a write precede it.
        #expect(network.names.count { $0 == "SET" } - before == (hasRun ? 3 : 0))
        #expect(fixture.witness.losses.isEmpty)
    }

    @Test("nothing is reported durable before the replicas have it, and it is written once")
    func lateReplicas() throws {
        let servers = try RedisServers()
        let network = UnsureNetwork()
        let fixture = try RedisFixture(
            RedisCluster(seeds: servers.addresses, network: network), RedisFixture.configuration(), epoch: 1)
        defer { fixture.close() }
        network.isReplicaLate.store(true, ordering: .relaxed)
        let count = network.names.count { $0 == "WAIT" }
        let ticket = put(fixture.store, key(1), "a")
        try fixture.wait("several waits") { network.names.count { $0 == "WAIT" } >= count + 3 }
        #expect(fixture.store.committedTicket == 0)
        try fixture.wait("publishes refused") { !fixture.store.acceptsWrites }
        network.isReplicaLate.store(false, ordering: .relaxed)
        try fixture.wait("the commit") { fixture.store.committedTicket >= ticket }
        #expect(try entries(servers).count == 1)
        #expect(fixture.store.acceptsWrites)
    }

    @Test("a fenced owner commits nothing more and gets one notice")
    func fencing() throws {
        let servers = try RedisServers()
        let first = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 1)
        defer { first.close() }
        let ticket = put(first.store, key(1), "first")
        try first.wait("the commit") { first.store.committedTicket >= ticket }
        let second = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 2)
        defer { second.close() }
        let late = put(first.store, key(2), "late")
        try first.wait("the loss") { !first.witness.losses.isEmpty }
        put(first.store, key(3), "later")
        #expect(first.witness.losses == [.fenced(part: 0, epoch: 1, successor: 2)])
        #expect(first.store.committedTicket < late && !first.store.acceptsWrites)
        #expect(try get(second, key(1)) == "first")
        #expect(try get(second, key(2)) == nil)
        for epoch in UInt64(1)...2 {
            #expect(throws: StoreError.epochTaken(part: 0, epoch: 2)) {
                _ = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: epoch)
            }
        }
    }

    @Test("a fenced owner's rows are refused, too")
    func fencedRows() throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        let first = try RedisFixture(servers.makeCluster(), configuration, epoch: 1)
        defer { first.close() }
        let ticket = put(first.store, key(1), "old")
        try first.wait("the commit") { first.store.committedTicket >= ticket }
        configuration.youngMilliseconds = 60_000
        let second = try RedisFixture(servers.makeCluster(), configuration, epoch: 2)
        defer { second.close() }
        try second.sync(put(second.store, key(1), "new"))
        try second.spillAll()
        first.engine.requestSpill()
        try first.wait("the loss") { !first.witness.losses.isEmpty }
        #expect(try get(second, key(1)) == "new")
    }

    @Test("a failover keeps durable data, and the log continues at the new primary")
    func failover() throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        configuration.minReplicas = 0
        let fixture = try RedisFixture(servers.makeCluster(), configuration, epoch: 1)
        defer { fixture.close() }
        try fixture.sync(put(fixture.store, key(1), "before"))
        servers.kill(0)
        let ticket = put(fixture.store, key(2), "during")
        try fixture.wait("publishes refused") { !fixture.store.acceptsWrites }
        try servers.command(1, "REPLICAOF", "NO", "ONE")
        try fixture.wait("the commit") { fixture.store.committedTicket >= ticket }
        try fixture.wait("publishes taken") { fixture.store.acceptsWrites }
        #expect(!fixture.witness.events.contains { if case .entriesLost = $0 { true } else { false } })
        try fixture.spillAll()
        #expect(try get(fixture, key(1)) == "before")
        #expect(try get(fixture, key(2)) == "during")
    }

    @Test("missing durable entries are reported")
    func holes() throws {
        let servers = try RedisServers()
        let network = UnsureNetwork()
        let fixture = try RedisFixture(
            RedisCluster(seeds: servers.addresses, network: network), RedisFixture.configuration(), epoch: 1)
        defer { fixture.close() }
        for number in UInt64(1)...3 { try fixture.sync(put(fixture.store, key(number), "a")) }
        // As after a failover to a replica with only the first entry.
        let kept = try entries(servers)
        for id in kept.dropFirst() { try servers.command(0, "XDEL", Self.log, id) }
        try servers.command(0, "RENAME", Self.log, Self.log + ":old")
        for id in kept.prefix(1) { try servers.command(0, "XADD", Self.log, id, "w", "") }
        network.fail("XADD", [.loseCommands])
        try fixture.sync(put(fixture.store, key(4), "a"))
        #expect(
            fixture.witness.events.contains { event in
                if case .entriesLost(0, let from, _) = event { from == kept[0] } else { false }
            })
    }

    @Test("an opening reports a log that is older than the partition's rows, and no other")
    func olderLog() throws {
        let servers = try RedisServers()
        func isReported(epoch: UInt64) throws -> Bool {
            let fixture = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: epoch)
            defer { fixture.close() }
            try fixture.sync(put(fixture.store, key(epoch), "a"))
            return fixture.witness.events.contains { if case .logIsOlder = $0 { true } else { false } }
        }
        for epoch in UInt64(1)...3 { #expect(try !isReported(epoch: epoch)) }
        // As after a start of its server from an earlier dump.
        try servers.command(0, "DEL", Self.log)
        try servers.command(0, "XADD", Self.log, "2-1", "w", "")
        #expect(try isReported(epoch: 4))
        #expect(try !isReported(epoch: 5))
    }

    @Test(
        "an opening that ends before the store has another history leaves the loss for the next one",
        arguments: [true, false])
    func lossOutlivesOpening(isOlder: Bool) throws {
        let servers = try RedisServers()
        let first = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 1)
        for number in UInt64(1)...3 { try first.sync(put(first.store, key(number), "a")) }
        first.close()
        if isOlder {
            // As after a start of its server from an earlier dump.
            try servers.command(0, "DEL", Self.log)
        } else {
            try servers.command(0, "XDEL", Self.log, "1-2")
        }
        func losses(_ epoch: UInt64, isRenewed: Bool) throws -> Int {
            let (witness, renewals) = (RedisWitness(), Lock(0))
            var configuration = RedisFixture.configuration()
            configuration.renewHistory = { done in
                renewals.withLock { $0 += 1 }
                done(isRenewed)
            }
            let opening = Result {
                try RedisFixture(servers.makeCluster(), configuration, epoch: epoch, witness: witness).close()
            }
            if renewals.withLock({ $0 }) > 0, !isRenewed {
                #expect(throws: StoreError.self) { try opening.get() }
            } else {
                try opening.get()
            }
            let events = witness.events.filter { event in
                switch event {
                case .logIsOlder: isOlder
                case .entriesMissing: !isOlder
                default: false
                }
            }
            #expect(events.count == renewals.withLock { $0 })
            return events.count
        }
        for epoch in UInt64(2)...3 { #expect(try losses(epoch, isRenewed: false) == 1) }
        #expect(try losses(4, isRenewed: true) == 1)
        #expect(try losses(5, isRenewed: true) == 0)
    }

    @Test(
        "an owner that has lost entries writes no others before the store has another history",
        arguments: [nil, "0-1", "1-1"])
    func lossStopsLog(last: String?) throws {
        let servers = try RedisServers()
        let network = UnsureNetwork()
        let waiting = Lock<[@Sendable (Bool) -> Void]>([])
        var configuration = RedisFixture.configuration()
        configuration.renewHistory = { done in waiting.withLock { $0.append(done) } }
        let fixture = try RedisFixture(
            RedisCluster(seeds: servers.addresses, network: network), configuration, epoch: 1)
        defer { fixture.close() }
        for number in UInt64(1)...3 { try fixture.sync(put(fixture.store, key(number), "a")) }
        try servers.command(0, "DEL", Self.log)
        if let last { try servers.command(0, "XADD", Self.log, last, "w", "") }
        network.fail("XADD", [.loseCommands])
        let ticket = put(fixture.store, key(4), "a")
        try fixture.wait("the loss") { waiting.withLock { !$0.isEmpty } }
        let failedCount = fixture.engine.statistics.failedCommitCount
        try fixture.wait("more tries") { fixture.engine.statistics.failedCommitCount > failedCount + 3 }
        #expect(try entries(servers).isEmpty && fixture.store.committedTicket < ticket)
        for done in waiting.withLock({ $0 }) { done(true) }
        try fixture.sync(ticket)
        #expect(try entries(servers) == ["1-4"])
        #expect(waiting.withLock { $0.count } == 1)
    }

    @Test(
        "another program's entry stops the partition; the log names key, entry and remedy",
        arguments: [
            ("1-99999", "note", "by hand"), ("1-18446744073709551615", "note", "by hand"), ("1-2", "note", "by hand"),
            ("1-2", "b", "other bytes"), ("1-*", "note", "by hand"), ("*", "note", "by hand"),
            ("9999999999999999-1", "note", "by hand"),
        ])
    func foreignEntry(id: String, field: String, value: String) throws {
        let servers = try RedisServers()
        let fixture = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 1)
        let ticket = put(fixture.store, key(1), "a")
        try fixture.wait("the commit") { fixture.store.committedTicket >= ticket }
        let entry = try #require(try servers.command(0, "XADD", Self.log, id, field, value).text)
        put(fixture.store, key(2), "b")
        try fixture.wait("the loss") { !fixture.witness.losses.isEmpty }
        #expect(fixture.store.committedTicket == ticket && !fixture.store.acceptsWrites)
        fixture.close()
        #expect(fixture.witness.losses == [.foreignEntry(part: 0, epoch: 1, entry: entry)])
        let events = fixture.witness.events.filter { if case .foreignEntry = $0 { true } else { false } }
        let isBeyond = id.hasPrefix("9999")
        let told = OperatorAdvice.commands(in: "\(events)")
        #expect(events.count == 1 && told.count == 1)
        #expect(isBeyond ? told[0].last == entry : told[0] == ["XDEL", Self.log, entry])

        // A successor reads the log, and does not recognize the entry either.
        var epoch = UInt64(2)
        if id == "*" {
            let last = try #require(LogID(entry))
            #expect(throws: StoreError.epochTaken(part: 0, epoch: last.epoch)) {
                try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: epoch).close()
            }
            epoch = last.epoch + 1
        }
        let damage: StoreError? = #expect(throws: StoreError.self) {
            try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: epoch).close()
        }
        let text = damage.map { "\($0)" } ?? ""
        #expect(text.contains("entry \(entry) ") && text.contains("the stream \(Self.log)"))
        if isBeyond {
            // The stream keeps the id after the entry is deleted.
            try servers.command(0, "XDEL", Self.log, entry)
            #expect(throws: StoreError.self) {
                try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: epoch + 1).close()
            }
            #expect(OperatorAdvice.commands(in: text) == told)
            #expect(try servers.run(told[0]) == .status("OK"))
            // A repetition loses nothing, now or later.
            #expect(try servers.run(told[0]).fault?.text.contains("nothing was changed") == true)
        } else {
            #expect(text.contains("XDEL"))
            try servers.command(0, "XDEL", Self.log, entry)
        }
        let next = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: epoch + 2)
        defer { next.close() }
        #expect(try get(next, key(1)) == "a")
        #expect(try get(next, key(2)) == nil)
    }

    /// The last entry of a log, with an epoch far above the owner's.
    enum FarEntry: CaseIterable {
        /// A fence that no gateway claimed, according to the register.
        case fence
        case otherBytes, mark, goneAgain
        /// The register is not asked, or does not answer.
        case fenceWithoutRegister, otherBytesWithoutRegister
        case claimedFence
        /// A successor's group, while the register has lost its claim.
        case group

        var isForeign: Bool { self != .fenceWithoutRegister && self != .claimedFence && self != .group }
        var claimed: UInt64? {
            switch self {
            case .fenceWithoutRegister, .otherBytesWithoutRegister: nil
            case .claimedFence: 77
            default: 1
            }
        }
        func write(_ servers: RedisServers) throws {
            let (id, field, value) =
                switch self {
                case .fence, .fenceWithoutRegister, .claimedFence: ("77-0", "f", "123456")
                case .otherBytes, .otherBytesWithoutRegister: ("77-1", "b", String(repeating: "x", count: 200))
                case .mark: ("77-0", "w", "")
                case .goneAgain, .group: ("77-0", "note", "by hand")
                }
            try servers.command(0, "XADD", RedisLogTests.log, id, field, value)
            if self == .goneAgain { try servers.command(0, "XDEL", RedisLogTests.log, id) }
        }
    }

    @Test("an owner accepts a fence of a claimed epoch, and reports any other", arguments: FarEntry.allCases)
    func farEntry(_ entry: FarEntry) throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        let asked = Atomic<Int>(0)
        configuration.claimedEpoch = { part in
            asked.add(part == 0 ? 1 : 1_000, ordering: .relaxed)
            return entry.claimed
        }
        let fixture = try RedisFixture(servers.makeCluster(), configuration, epoch: 1)
        defer { fixture.close() }
        let ticket = put(fixture.store, key(1), "a")
        try fixture.wait("the commit") { fixture.store.committedTicket >= ticket }
        if entry == .group {
            let successor = try RedisFixture(servers.makeCluster(), configuration, epoch: 77)
            try successor.sync(put(successor.store, key(3), "c"))
            successor.close()
        } else {
            try entry.write(servers)
        }
        put(fixture.store, key(2), "b")
        try fixture.wait("the loss") { !fixture.witness.losses.isEmpty }
        #expect(fixture.store.committedTicket == ticket && asked.load(ordering: .relaxed) < 1_000)
        let loss = try #require(fixture.witness.losses.first)
        let events = fixture.witness.events.filter { if case .foreignEntry = $0 { true } else { false } }
        guard entry.isForeign else {
            #expect(loss == .fenced(part: 0, epoch: 1, successor: 77) && events.isEmpty)
            return
        }
        guard case .foreignEntry(part: 0, epoch: 1, entry: let id) = loss else {
            Issue.record("\(loss)")
            return
        }
        #expect(events.count == 1 && "\(events)".contains("XDEL \(Self.log) \(id)") && id.hasPrefix("77-"))
        // A later owner opens the partition without help, but unreadable entries stay until they are removed.
        #expect(throws: StoreError.epochTaken(part: 0, epoch: 77)) {
            try RedisFixture(servers.makeCluster(), configuration, epoch: 2).close()
        }
        var epoch = UInt64(78)
        if id == "77-1" {
            let damage: StoreError? = #expect(throws: StoreError.self) {
                try RedisFixture(servers.makeCluster(), configuration, epoch: epoch).close()
            }
            #expect(damage.map { "\($0)" }?.contains("entry 77-1 ") == true)
            try servers.command(0, "XDEL", Self.log, id)
            epoch += 1
        }
        let next = try RedisFixture(servers.makeCluster(), configuration, epoch: epoch)
        defer { next.close() }
        #expect(try get(next, key(1)) == "a")
        #expect(try get(next, key(2)) == nil)
    }

    @Test("the advice for unreadable entries opens the partition, whatever other entries exist")
    func severalBeyond() throws {
        let servers = try RedisServers()
        let first = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 1)
        try first.sync(put(first.store, key(1), "a"))
        first.close()
        for id in ["5000-0", "4503599627370495-3", "9999999999999999-1"] {
            try servers.command(0, "XADD", Self.log, id, "f", "123456")
        }
        let error: StoreError? = #expect(throws: StoreError.self) {
            try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 2).close()
        }
        let text = error.map { "\($0)" } ?? ""
        #expect(text.contains("4503599627370495-3"))
        let commands = OperatorAdvice.commands(in: text)
        #expect(commands.count == 1)
        // Without the advice for later owners' entries the first owner's advice removes none of them.
        var early = try #require(commands.first)
        early[5] = "1-18446744073709551615"
        func all() throws -> [RedisReply] { try servers.command(0, "XRANGE", Self.log, "-", "+").array ?? [] }
        let before = try all()
        #expect(try servers.run(early).fault?.text.contains("a later owner") == true)
        #expect(try all() == before)
        for command in commands { #expect(try servers.run(command) == .status("OK")) }
        #expect(try before.count > 3 && all() == Array(before.dropLast(2)))
        #expect(try servers.command(0, "EXISTS", Self.log + ":copy") == .integer(0))
        #expect(throws: StoreError.epochTaken(part: 0, epoch: 5000)) {
            try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 3).close()
        }
        let next = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 5001)
        defer { next.close() }
        #expect(try get(next, key(1)) == "a")
    }

    @Test(
        "the copy of a log has every entry unchanged, and no remembered id, on servers and in the simulation")
    func copiedLog() throws {
        let servers = try RedisServers()
        let simulated = SimulatedCluster(seed: 1)
        func both(_ words: [String]) throws -> RedisReply {
            let reply = try servers.run(words)
            let other = SimulatedNetwork.reply(simulated.intrude(words))
            // The server appends the location to a script's error.
            #expect(reply == other || reply.fault?.code == other.fault?.code, "\(words): \(reply), \(other)")
            return reply
        }
        let beyond = try #require(LogID("9999999999999999-1"))
        func command(after epoch: UInt64) throws -> [String] {
            let advice = LogMending.advice(Array(Self.log.utf8), beyond, after: epoch)
            return try #require(OperatorAdvice.commands(in: advice).first)
        }
        // Several pages, then one whose last entry has the last number, then none.
        for (count, last) in [(40, "7-3"), (3, "7-18446744073709551615"), (0, "")] {
            _ = try both(["DEL", Self.log])
            for number in 0..<count {
                _ = try both(["XADD", Self.log, "6-\(number + 1)", number % 7 == 0 ? "f" : "b", "bytes \(number)"])
            }
            if count > 0 { _ = try both(["XADD", Self.log, last, "b", "last"]) }
            let entries = try both(["XRANGE", Self.log, "-", "+"])
            for id in ["4503599627370495-3", beyond.description] { _ = try both(["XADD", Self.log, id, "x", "y"]) }
            #expect(try both(command(after: 7)) == .status("OK"))
            #expect(try both(["XRANGE", Self.log, "-", "+"]) == entries)
            // The log accepts the next owner's fence, and no entry of earlier owners.
            #expect(try both(["XADD", Self.log, "7-18446744073709551614", "b", "late"]).fault != nil)
            #expect(try both(["XADD", Self.log, "8-0", "f", "1"]) == .bytes(Array("8-0".utf8)))
            let facts = try servers.command(0, "XINFO", "STREAM", Self.log).array ?? []
            let place = try #require(facts.firstIndex { $0.text == "max-deleted-entry-id" })
            #expect(["0-0", "7-18446744073709551615"].contains(facts[place + 1].text))
            #expect(try both(command(after: 7)).fault?.text.contains("another last id") == true)
        }
    }

    @Test("a group is appended only after the bytes of its predecessor")
    func foreignPredecessor() throws {
        let servers = try RedisServers()
        var flights = GroupFlights(key: Array(Self.log.utf8), slot: 0, epoch: 1, nextNumber: 1)
        var commands: [RedisCommand] = []
        for number in UInt64(1)...2 {
            let bytes = UnsafeMutableRawPointer.allocate(byteCount: 100, alignment: 8)
            bytes.initializeMemory(as: UInt8.self, repeating: UInt8(number), count: 100)
            defer { bytes.deallocate() }
            let piece = BatchPiece(start: bytes, byteCount: 100, recordByteCount: 100, ticket: number)
            flights.add([piece], byteCount: 100, batchCount: 1, lastTicket: number, began: 1)
            let step = flights.next()
            commands.append(try #require(step).commands[0].withSource)
        }
        for (field, byte, isBehind) in [("b", "x", false), ("note", "\u{1}", false), ("b", "\u{1}", true)] {
            try servers.command(0, "DEL", Self.log)
            try servers.command(0, "XADD", Self.log, "1-1", field, String(repeating: byte, count: 100))
            let reply = try servers.run(0, commands[1])
            #expect(isBehind ? reply.text == "1-2" : reply.fault?.code == "APART")
        }
    }

    @Test("a takeover replays the log in pages and empties it")
    func takeover() throws {
        let servers = try RedisServers()
        let first = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 1)
        var last: Ticket = 0
        for number in UInt64(1)...3_000 {
            first.store.beginBatch(Self.bucket)
            let value = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 4_000)
            first.store.put(
                key(number), wakeAt: 0, prior: .none, byteCount: value.count
            ) { $0.copyBytes(from: value) }
            last = first.store.endBatch()
            if number % 40 == 0 { first.store.turnEnded() }
        }
        try first.sync(last)
        first.store.beginBatch(Self.bucket)
        first.store.delete(key(5), prior: .maybe(wakeAt: 0))
        try first.sync(first.store.endBatch())
        first.close()
        let second = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 2)
        defer { second.close() }
        #expect(second.part.replayedByteCount > 12_000_000)
        #expect(try entries(servers) == [])
        #expect(try get(second, key(1))?.utf8.count == 4_000)
        #expect(try get(second, key(3_000))?.utf8.count ?? 0 > 0)
        #expect(try get(second, key(5)) == nil)
        #expect(try servers.command(0, "HLEN", "{lw:test:g0}:r") == .integer(2_999))
    }

    @Test(
        "a damaged entry, named in the error, keeps the part closed", arguments: ["bytes", "field", "other entry"])
    func damage(kind: String) throws {
        let servers = try RedisServers()
        let first = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 1)
        try first.sync(put(first.store, key(1), "some text that is long enough"))
        first.close()
        let entry = try #require(try entries(servers).first)
        let reply = try servers.command(0, "XRANGE", Self.log, entry, entry)
        var bytes = try #require(reply.array?.first?.array?[1].array?[1].bytes)
        let id = kind == "other entry" ? "1-77" : "1-78"
        if kind == "bytes" { bytes[bytes.count / 2] ^= 1 }
        var command = RedisCommand("XADD", Self.log, id, kind == "field" ? "q" : "b")
        command.append(bytes)
        try servers.run(0, command)
        do {
            _ = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 2)
            Issue.record("the part was opened")
        } catch let error as StoreError {
            guard case .damagedLog(Self.log, _, let what) = error else { throw error }
            #expect(error.description.contains(Self.log) && !what.isEmpty)
            if kind != "field" { #expect(error.description.contains(id)) }
        }
        // No row was lost: without the entry the partition opens.
        try servers.command(0, "XDEL", Self.log, id)
        let second = try RedisFixture(servers.makeCluster(), RedisFixture.configuration(), epoch: 3)
        defer { second.close() }
        #expect(try get(second, key(1)) == "some text that is long enough")
    }

    @Test("memory that fills up refuses publishes and takes acks")
    func memory() throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        configuration.watchMilliseconds = 20
        let fixture = try RedisFixture(servers.makeCluster(), configuration, epoch: 1)
        defer { fixture.close() }
        try servers.command(0, "CONFIG", "SET", "maxmemory", "1gb")
        try fixture.sync(put(fixture.store, key(1), "a"))
        #expect(fixture.store.acceptsWrites)
        let text = try servers.command(0, "INFO", "memory").text ?? ""
        let used = try #require(RedisInformation(text).number("used_memory"))
        try servers.command(0, "CONFIG", "SET", "maxmemory", "\(used * 105 / 100)")
        try fixture.wait("publishes refused") { !fixture.store.acceptsWrites }
        let reason = try #require(fixture.engine.statistics.refusalReason)
        #expect(reason.contains("Redis at \(servers.addresses[0]) uses"), "\(reason)")
        try fixture.sync(put(fixture.store, key(2), "settled"))
        try servers.command(0, "CONFIG", "SET", "maxmemory", "0")
        try fixture.wait("publishes taken") { fixture.store.acceptsWrites }
        #expect(fixture.engine.statistics.refusalReason == nil)
    }

    @Test("settings that break the promises are named with the line to change")
    func settings() throws {
        let servers = try RedisServers()
        func check(_ minReplicas: Int) throws -> [RedisProblem] {
            try RedisSettings.check(servers.makeCluster(), name: "test", minReplicas: minReplicas)
        }
        // Unlimited memory causes a warning, not a refusal.
        let warnings = try check(1)
        #expect(warnings.map(\.name) == ["maxmemory", "maxmemory"] && !warnings.contains { $0.kind != .advice })
        #expect(warnings[0].description.contains("in redis.conf: maxmemory"))
        for server in 0...1 { try servers.command(server, "CONFIG", "SET", "maxmemory", "1gb") }
        let (found, foundOfTwo) = (try check(1), try check(2))
        #expect(found == [] && foundOfTwo.map(\.name) == ["connected replicas"])
        try servers.command(0, "CONFIG", "SET", "appendfsync", "everysec")
        try servers.command(1, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try servers.command(1, "CONFIG", "SET", "appendonly", "no")
        let problems = try check(1)
        #expect(problems.map(\.name) == ["appendfsync", "appendonly", "maxmemory-policy"])
        #expect(problems.map(\.server) == [servers.addresses[0], servers.addresses[1], servers.addresses[1]])
        #expect(problems[0].description.contains("CONFIG SET appendfsync always"))
        #expect(problems.allSatisfy { $0.kind == .wrong })
    }

    @Test("publishes are refused while a server has settings that lose what was accepted, set at run time")
    func settingsAtRunTime() throws {
        let servers = try RedisServers()
        var configuration = RedisFixture.configuration()
        (configuration.watchMilliseconds, configuration.settingsMilliseconds) = (20, 20)
        let fixture = try RedisFixture(servers.makeCluster(), configuration, epoch: 1)
        defer { fixture.close() }
        let changes = [
            (0, "appendfsync", "no", "always"), (1, "appendonly", "no", "yes"),
            (1, "maxmemory-policy", "allkeys-lru", "noeviction"),
        ]
        for (server, name, wrong, right) in changes {
            #expect(fixture.store.acceptsWrites)
            try servers.command(server, "CONFIG", "SET", name, wrong)
            try fixture.wait("refusal for \(name)") { !fixture.store.acceptsWrites }
            #expect(fixture.engine.statistics.refusalReason?.contains(name) == true)
            try servers.command(server, "CONFIG", "SET", name, right)
            try fixture.wait("acceptance after \(name)") { fixture.store.acceptsWrites }
        }
        let kinds = fixture.witness.events.compactMap { event -> Bool? in
            switch event {
            case .settingsWrong: true
            case .settingsRight: false
            default: nil
            }
        }
        #expect(kinds == [true, false, true, false, true, false])
    }
}

private final class RowWitness: ShardStoreObserver {
    var replies = 0
    var text: String?
    var failure: String?
    func storeCommitted(upTo ticket: Ticket) {}
    func storeCooled(_ key: StoreKey) {}
    func storeReplied(_ reply: StoreReply) {
        replies += 1
        failure = reply.failure
        if case .row(let row?)? = reply.results.first { text = String(decoding: row.value, as: UTF8.self) }
    }
}
