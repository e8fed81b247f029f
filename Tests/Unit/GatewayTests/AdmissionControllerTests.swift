import LongwireClient
import Testing
import Wire

@testable import Gateway

@Suite("The admission of reconnecting devices")
struct AdmissionControllerTests {
    private static let millisecond: Int64 = 1_000_000

    @Test("a calm loop admits a newcomer at once")
    func calm() {
        var governor = AdmissionController()
        for second in 0..<100 {
            let verdict = governor.arrive(now: Int64(second) * 100 * Self.millisecond)
            governor.worked(80_000)
            governor.finished()
            #expect(verdict == .welcome)
        }
        #expect(governor.waitingCount == 0)
        #expect((80_000...90_000).contains(governor.cost))
    }

    @Test("a turn admits one slice of newcomers, and later turns admit more as time passes")
    func slice() {
        var governor = AdmissionController(rules: .init(slice: Self.millisecond, patience: 1_000 * Self.millisecond))
        var welcome = 0
        for _ in 0..<1_000 where governor.arrive(now: 0) == .welcome { welcome += 1 }
        // Before the first measurement a newcomer is estimated at 0.1 ms.
        #expect(welcome == 10)
        #expect(governor.waitingCount == 990)
        var taken = 0
        while governor.takeNext(now: Self.millisecond / 2) { taken += 1 }
        #expect(taken == 5)
        // The next turn has room for a slice, however long this turn took.
        while governor.takeNext(now: 500 * Self.millisecond) { taken += 1 }
        #expect(taken == 15)
    }

    @Test("at most two slices of Hellos wait for the store, and each Welcome frees one place")
    func underWay() {
        var governor = AdmissionController(
            rules: .init(slice: 2 * Self.millisecond, patience: 1_000 * Self.millisecond))
        var now: Int64 = 0
        for _ in 0..<500 { _ = governor.arrive(now: now) }
        var taken = 500 - governor.waitingCount
        for _ in 0..<taken { governor.began() }
        for _ in 0..<20 {
            now += 10 * Self.millisecond
            while governor.takeNext(now: now) {
                governor.began()
                taken += 1
            }
        }
        // At 0.1 ms each.
        #expect(taken == 40)
        #expect(!governor.hasRoom)
        governor.settled()
        let next = governor.takeNext(now: now)
        #expect(next)
    }

    @Test("Hellos of a stalled store take no room from those of other partitions")
    func excused() {
        var governor = AdmissionController(rules: .init(slice: Self.millisecond, patience: 1_000 * Self.millisecond))
        while governor.hasRoom { governor.began() }
        let full = governor.underWayCount
        governor.excuse(full - 1)
        for _ in 0..<full - 1 {
            #expect(governor.hasRoom)
            governor.began()
        }
        #expect(!governor.hasRoom)
        governor.excuse(0)
        for _ in 0..<full - 1 { governor.settled() }
        #expect(!governor.hasRoom)
        // At most four times as many Hellos are in flight if all stores stall.
        governor.excuse(governor.underWayCount)
        for _ in 0..<10 * full where governor.hasRoom {
            governor.began()
            governor.excuse(governor.underWayCount)
        }
        #expect(governor.underWayCount == 4 * full)
    }

    @Test("connections that send no Hello keep their room only briefly")
    func strangers() {
        var governor = AdmissionController()
        var (now, welcome): (Int64, Int) = (0, 0)
        for _ in 0..<1_000 where governor.arrive(now: now) == .welcome { welcome += 1 }
        while governor.waitingCount > 0, now < 200 * Self.millisecond {
            now += Self.millisecond
            while governor.takeNext(now: now) { welcome += 1 }
        }
        #expect(welcome == 1_000)
    }

    @Test("retry slots of refused devices follow the admission rate, between one second and one minute")
    func slots() {
        var governor = AdmissionController(rules: .init(slice: Self.millisecond, patience: 500 * Self.millisecond))
        var windows: [(least: UInt32, most: UInt32)] = []
        for _ in 0..<400_000 {
            if case .comeBack(let least, let most) = governor.arrive(now: 0) { windows.append((least, most)) }
        }
        // At 0.1 ms each 5,000 newcomers a second are expected: half of the rate without other load.
        #expect(governor.waitingCount == 2_500)
        #expect(windows.allSatisfy { $0.least >= 1_000 && $0.most > $0.least && $0.most <= 60_500 })
        // Slots of 0.2 ms start after the waiting devices.
        #expect((1_490...1_510).contains(windows[5_000].least))
        #expect((2_490...2_510).contains(windows[10_000].least))
        #expect(windows.last.map { $0 == (30_000, 60_000) } == true)
    }

    @Test("a relayed Hello is refused only while the loop's own devices would wait too long")
    func relayed() {
        var governor = AdmissionController(rules: .init(slice: Self.millisecond, patience: 100 * Self.millisecond))
        #expect(governor.arriveWithHello(now: 0) == .welcome)
        for _ in 0..<10_000 { _ = governor.arrive(now: 0) }
        #expect(governor.arriveWithHello(now: 0) != .welcome)
        governor.forgetAll()
        #expect(governor.arriveWithHello(now: 1) == .welcome)
    }

    // MARK: Storms

    @Test("15,000 simultaneous devices are reconnected within 5 s, and a message waits at most for a slice and a Hello")
    func storm() throws {
        var storm = StormWorld(clients: 15_000, cost: 200_000)
        try storm.run(untilSeconds: 30)
        #expect(storm.isOver)
        #expect(storm.lastWelcome < 5_000 * Self.millisecond)
        #expect(storm.longestWait < 2_500 * Self.millisecond)
        // Some devices were refused, and each of them reconnected in its slot.
        #expect(storm.refusals > 0 && storm.refusals < 15_000)
        #expect(storm.most(attemptsOf: 0.999) <= 2)
        #expect(storm.latency(at: 0.99) < 3 * Self.millisecond)

        // Without the admission control messages wait for all Hellos of the connections accepted in a turn.
        var free = StormWorld(clients: 15_000, cost: 200_000)
        free.governor = AdmissionController(rules: .init(slice: .max / 4, patience: .max / 4))
        try free.run(untilSeconds: 30)
        #expect(free.latency(at: 0.99) > 10 * Self.millisecond)
    }

    @Test("15,000 Hellos that arrive at once on accepted connections are read one slice a turn")
    func lateHellos() throws {
        var storm = StormWorld(clients: 15_000, cost: 200_000)
        // The clients' program connects all of them first.
        storm.speaksAt = 2_000 * Self.millisecond
        try storm.run(untilSeconds: 30)
        #expect(storm.isOver)
        #expect(storm.longestCrowd > 5_000)
        #expect(storm.lastWelcome < 8_000 * Self.millisecond)
        #expect(storm.latency(at: 0.99) < 3 * Self.millisecond)

        // Without the bound on reads, all Hellos would be read in one turn.
        var free = StormWorld(clients: 15_000, cost: 200_000)
        free.speaksAt = 2_000 * Self.millisecond
        free.readsAll = true
        try free.run(untilSeconds: 30)
        #expect(free.latency(at: 0.99) > 100 * Self.millisecond)
    }

    @Test("while more than a slice of newcomers waits for a read, no others are accepted and all wait longer")
    func unread() {
        var governor = AdmissionController(rules: .init(slice: Self.millisecond, patience: 1_000 * Self.millisecond))
        governor.unreadCount = 100
        #expect(governor.arrive(now: 0) == .wait)
        #expect(governor.expectedWait == 101 * 200_000)
        let whileUnread = governor.takeNext(now: 10 * Self.millisecond)
        #expect(!whileUnread)
        governor.unreadCount = 0
        let afterwards = governor.takeNext(now: 10 * Self.millisecond)
        #expect(afterwards)
    }

    @Test(
        "a turn reads one slice of newcomers, including other work for them, and none without room for their Hellos"
    )
    func reading() {
        var governor = AdmissionController(rules: .init(slice: Self.millisecond, patience: 1_000 * Self.millisecond))
        func mayRead(besides pending: Int64 = 0) -> Bool { governor.mayRead(besides: pending) }
        var verdicts = [mayRead()]
        governor.worked(600_000)
        verdicts += [mayRead(besides: 300_000), mayRead(besides: 400_000)]
        governor.worked(400_000)
        verdicts.append(mayRead())
        #expect(verdicts == [true, true, false, false])
        governor.turnEnded()
        // Every turn reads at least one.
        governor.worked(5 * Self.millisecond)
        verdicts = [mayRead(), mayRead()]
        #expect(verdicts == [true, false])
        governor.turnEnded()
        // Newcomers that only disconnected cost nothing, but their number per turn is bounded.
        var count = 0
        while count < 10_000, mayRead() { count += 1 }
        #expect(count == 256)
        governor.turnEnded()
        while governor.hasRoom { governor.began() }
        verdicts = [mayRead()]
        governor.settled()
        verdicts.append(mayRead())
        #expect(verdicts == [false, true])
    }

    @Test("a loop at a tenth of the speed refuses most devices, and readmits all in little more than their work takes")
    func slow() throws {
        var storm = StormWorld(clients: 15_000, cost: 2_000_000)
        try storm.run(untilSeconds: 120)
        #expect(storm.isOver)
        #expect(storm.lastWelcome < 45_000 * Self.millisecond)
        #expect(storm.longestWait < 3_500 * Self.millisecond)
        #expect(storm.most(attemptsOf: 0.99) <= 6)
    }

    @Test("TLS devices, which cannot receive a retry time, reconnect with their own backoff")
    func silent() throws {
        var storm = StormWorld(clients: 5_000, cost: 600_000)
        storm.isSecure = true
        try storm.run(untilSeconds: 60)
        #expect(storm.isOver)
        #expect(storm.lastWelcome < 10_000 * Self.millisecond)
        #expect(storm.longestWait < 3_000 * Self.millisecond)
    }
}

/// One loop with its admission control and real client cores, in simulated time.
private struct StormWorld {
    var governor = AdmissionController()
    var isSecure = false
    /// The time before which no client sends a Hello.
    var speaksAt: Int64 = 0
    /// Whether a turn reads all available Hellos.
    var readsAll = false
    /// The largest number of newcomers with unread bytes.
    private(set) var longestCrowd = 0
    private(set) var lastWelcome: Int64 = 0
    private(set) var longestWait: Int64 = 0
    private(set) var refusals = 0
    private var welcomed = 0
    private var clients: [ClientCore] = []
    private var attempts: [Int]
    /// Each client's next action, by millisecond.
    private var agenda: [Int64: [Int]] = [:]
    private var backlog: [Int] = []
    private var waiting: [(client: Int, since: Int64)] = []
    private var firstWaiting = 0
    private var hellos: [Int] = []
    private var latencies: [Int64] = []
    private let cost: Int64
    private var now: Int64 = 0

    private struct NoCryptography: ClientCryptography {
        func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] { [UInt8](repeating: 7, count: 32) }
        func randomWord() -> UInt64 { 1 }
    }

    init(clients count: Int, cost: Int64) {
        self.cost = cost
        attempts = Array(repeating: 0, count: count)
        var state = ClientState(appID: "demo")
        (state.cid, state.deviceSecret, state.queueEpoch) = (
            DeviceID(high: 1, low: 1), [UInt8](repeating: 1, count: 32), 5
        )
        for index in 0..<count {
            var core = ClientCore(
                configuration: ClientConfiguration(host: "g", port: 1, appID: "demo"), state: state,
                cryptography: NoCryptography(), seed: UInt64(index))
            core.start(at: time)
            _ = core.takeActions()
            clients.append(core)
            // An outage that ends: all clients connect within a quarter of a second.
            agenda[Int64(index % 250), default: []].append(index)
        }
    }

    private var time: ClientTime { ClientTime(monotonic: now / 1_000_000, wall: 1_700_000_000_000 + now / 1_000_000) }

    var isOver: Bool { welcomed == clients.count }

    func latency(at part: Double) -> Int64 {
        let sorted = latencies.sorted()
        return sorted[min(sorted.count - 1, Int(Double(sorted.count) * part))]
    }

    func most(attemptsOf part: Double) -> Int {
        let sorted = attempts.sorted()
        return sorted[min(sorted.count - 1, Int(Double(sorted.count) * part))]
    }

    mutating func run(untilSeconds limit: Int64) throws {
        var looked: Int64 = -1
        while !isOver, now < limit * 1_000_000_000 {
            let began = now
            // A connection waits in the kernel's backlog.
            while looked < now / 1_000_000 {
                looked += 1
                for client in agenda.removeValue(forKey: looked) ?? [] {
                    if case .waiting = clients[client].phase {
                        clients[client].wake(at: time)
                        _ = clients[client].takeActions()
                    }
                    backlog.append(client)
                }
            }
            accept()
            try greet()
            takeUp()
            // An idle loop sleeps.
            if now == began { now += 100_000 }
            // One message a millisecond, sent at the end of the turn in which it arrives.
            for due in (began / 1_000_000 + 1)..<(max(now, began) / 1_000_000 + 1) where due > began / 1_000_000 {
                latencies.append(now - due * 1_000_000)
            }
        }
    }

    private mutating func accept() {
        let count = min(64, backlog.count)
        for client in backlog.prefix(count) {
            attempts[client] += 1
            clients[client].connected(at: time)
            _ = clients[client].takeActions()
            switch governor.arrive(now: now) {
            case .welcome: hellos.append(client)
            case .wait: waiting.append((client, now))
            case .comeBack(let least, let most):
                refusals += 1
                now += 10_000
                sendAway(client, least, most)
            }
            now += 5_000
        }
        backlog.removeFirst(count)
    }

    private mutating func sendAway(_ client: Int, _ least: UInt32, _ most: UInt32) {
        if isSecure {
            clients[client].disconnected(reason: "end of file", at: time)
        } else {
            var close = Close()
            (close.code, close.retryAfterMinimum, close.retryAfterMaximum) = (
                CloseCode.overloaded.rawValue, least, most
            )
            var frame: [UInt8] = []
            close.appendFrame(to: &frame)
            clients[client].receive(frame, at: time)
        }
        _ = clients[client].takeActions()
        guard case .waiting(let until) = clients[client].phase else {
            Issue.record("a client that was sent away does not come back")
            return
        }
        agenda[max(until, now / 1_000_000 + 1), default: []].append(client)
    }

    private mutating func greet() throws {
        guard now >= speaksAt else { return }
        longestCrowd = max(longestCrowd, hellos.count)
        let isFree = readsAll || governor.rules.slice == .max / 4
        var readCount = 0
        defer {
            hellos.removeFirst(readCount)
            governor.unreadCount = hellos.count
        }
        for client in hellos where isFree || governor.mayRead() {
            readCount += 1
            now += cost
            governor.worked(cost)
            governor.finished()
            var welcome = Welcome()
            (welcome.generation, welcome.queueEpoch, welcome.heartbeatSeconds) = (1, 5, 300)
            var frame: [UInt8] = []
            welcome.appendFrame(to: &frame)
            clients[client].receive(frame, at: time)
            _ = clients[client].takeActions()
            try #require(clients[client].phase == .ready)
            welcomed += 1
            lastWelcome = now
        }
    }

    private mutating func takeUp() {
        defer { governor.turnEnded() }
        while firstWaiting < waiting.count, governor.takeNext(now: now) {
            longestWait = max(longestWait, now - waiting[firstWaiting].since)
            hellos.append(waiting[firstWaiting].client)
            firstWaiting += 1
            now += 5_000
        }
    }
}
