// The simulated world: one thread, one seed, in the order of the event queue.
//
// The shards, the frames and the clients are real. The store, the network, the clock, the vendor, the publishers and the sender
// services are simulated. `Oracle` checks the run.

package import Delivery
internal import Directory
internal import Wire

package final class World {
    static let queueEpoch: UInt64 = 7
    static let bucketCount = 24
    static let gatewayStart: GatewayTime = 1_795_000_000_000

    package let seed: UInt64
    var chance: Chance
    var plan: Plan
    var queue = EventQueue()
    package internal(set) var faults = FaultCounts()
    var log = EventLog(capacity: 400)
    package internal(set) var eventCount = 0
    package internal(set) var violation: Violation?
    /// Digests of the abstract states of devices and messages.
    package private(set) var states = Set<UInt64>()
    let oracle = Oracle()

    /// True time in milliseconds since the run began.
    var now: Int64 = 0
    /// The start point of gateway time, which is linear; slewing changes its slope.
    private var clockStart: (now: Int64, time: GatewayTime) = (0, World.gatewayStart)
    private var partsPerMillion: Int64 = 0

    // The gateway.
    var life = 1
    var isUp = true
    var startedAt: Int64 = 0
    var loops: [Loop] = []
    let engine: any WorldEngine
    var isSyncing = false
    /// The time until which the disk answers no read.
    var readsFailUntil: Int64 = 0
    var syncUpTo: [Ticket] = []
    /// Connections to flush or to notify at the end of the event.
    var dirtyLinks: [Link] = []

    // The other participants.
    var links: [Link] = []
    var devices: [SimulatedDevice] = []
    var identities: [Identity] = []
    var records: [Record] = []
    var tasks: [SimulatedTask] = []
    var requestCount = 0
    /// Whether an app's server makes calls about names, blacklist and badge.
    let hasServer: Bool
    var names: NamesModel
    let hasBroadcasts: Bool
    var broadcasting: BroadcastModel
    var firstAcks: FirstAckModel
    /// Whether devices send receipts over HTTPS.
    let hasReceipts: Bool
    var receipts: ReceiptModel
    /// Whether devices send upstream and servers read feeds.
    let hasFeeds: Bool
    var feeds: FeedModel
    /// Whether restores, loops without some apps, and half-closes happen.
    let hasRareWeather: Bool
    var rare: RareWeather
    var history = StoreHistory(ofNewStore: 1)
    var senders: [SimulatedSender] = []
    /// Whether the faults have stopped.
    var isHealing = false

    /// - Parameters:
    ///   - seed: the run's seed.
    ///   - hasServer: whether an app's server takes part, with names, blacklist and badge.
    ///   - hasBroadcasts: whether the server sends broadcasts and pushes that the first ack ends.
    ///   - hasReceipts: whether devices also report over HTTPS.
    ///   - hasFeeds: whether servers read their feeds; `nil`: with every fourth seed.
    ///   - hasRareWeather: whether restores, unknown apps and half-closes happen; `nil`: with every third seed.
    ///   - engine: the storage of the rows.
    ///   - adjust: changes the shards' limits, to plant a fault.
    package init(
        seed: UInt64, hasServer: Bool = true, hasBroadcasts: Bool = true, hasReceipts: Bool = true,
        hasFeeds: Bool? = nil, hasRareWeather: Bool? = nil, engine: any WorldEngine = SimulatedStores(),
        adjust: (inout ShardLimits) -> Void = { _ in }
    ) {
        (self.seed, self.engine) = (seed, engine)
        self.hasServer = hasServer
        self.hasBroadcasts = hasBroadcasts
        self.hasReceipts = hasReceipts
        self.hasFeeds = hasFeeds ?? seed.isMultiple(of: 4)
        self.hasRareWeather = hasRareWeather ?? seed.isMultiple(of: 3)
        rare = RareWeather(seed: seed)
        feeds = FeedModel(seed: seed)
        receipts = ReceiptModel(seed: seed)
        broadcasting = BroadcastModel(seed: seed)
        firstAcks = FirstAckModel(seed: seed)
        chance = Chance(seed: seed)
        plan = Plan(&chance)
        if seed >= Plan.severalVendorsSeed { plan.channels = [.apns, .fcm, .hms, .harmony] }
        plan.hasFollowUps = seed >= Plan.followUpSeed
        names = NamesModel(seed: seed)
        adjust(&plan.limits)
        if self.hasFeeds { feeds.configure(&plan.apps) }
        oracle.world = self
        startLoops(count: engine.loopCount ?? plan.loopCount)
        for index in 0..<plan.deviceCount {
            let isLiar = index >= plan.deviceCount - plan.lyingDevices
            devices.append(SimulatedDevice(index: index, app: chance.below(2), isLiar: isLiar, world: self))
        }
        for index in 0..<plan.senderCount { senders.append(SimulatedSender(index: index, chance: &chance)) }
        for device in devices { device.start() }
        for sender in senders { queue.add(.senderStep(sender: sender.index), at: 100 + Int64(sender.index) * 37) }
        queue.add(.operation, at: 200)
        if self.hasFeeds { beginFollowing() }
    }

    /// Breaks the reference cycles between links, identities, records and tasks.
    deinit {
        for identity in identities { (identity.liveLink, identity.callers, identity.bySequence) = (nil, [], [:]) }
        for link in links { (link.identity, link.inFlight, link.recalled) = (nil, [], []) }
        for record in records {
            (record.task, record.revokes, record.broadcast, record.dealt) = (nil, nil, nil, nil)
        }
    }

    // MARK: Time

    var gatewayNow: GatewayTime {
        let elapsed = now - clockStart.now
        return clockStart.time + elapsed + elapsed * partsPerMillion / 1_000_000
    }

    func slew(_ speed: Int64) {
        clockStart = (now, gatewayNow)
        partsPerMillion = speed
    }

    func jumpForward(_ milliseconds: Int64) { clockStart = (now, gatewayNow + milliseconds) }

    // MARK: Running

    /// Runs `events` events, then ends all faults and checks the result.
    package func run(events: Int) {
        while violation == nil, eventCount < events { step() }
        if violation == nil { heal() }
    }

    func step() {
        guard let (time, event) = queue.next() else { return }
        now = max(now, time)
        handle(event)
        endTurn()
        if eventCount & 7 == 0, let record = records.last { visit(record) }
    }

    /// Records the abstract state of a device and one of its messages; sizes are reduced to classes.
    private func visit(_ newest: Record) {
        let record = records[max(0, newest.index - Int(eventCount >> 3) % 24)]
        let identity = record.identity
        var state: UInt64 = 1
        func add(_ value: Int, below bound: Int) { state = state &* UInt64(bound) &+ UInt64(min(value, bound - 1)) }
        func add(_ flag: Bool) { add(flag ? 1 : 0, below: 2) }
        add(identity.liveLink.map { $0.phase == .open ? 2 : 1 } ?? 0, below: 3)
        add(Int(identity.state.rawValue), below: 3)
        add(identity.keepsRunning)
        add(identity.pushModeOff)
        add(identity.isBlacklisted)
        add(identity.isSuspect)
        add(identity.callers.count, below: 3)
        let inFlight = identity.liveLink?.inFlight.count ?? 0
        add(inFlight == 0 ? 0 : inFlight < (identity.liveLink?.window ?? 1) ? 1 : 2, below: 3)
        add([0, 1, 2, 2, 3][min(identity.pendingCount, 4)], below: 4)
        add(devices[identity.device].isFrozen)
        add(Int(record.strategy.rawValue), below: 5)
        add(record.timeToLive > 0 ? 0 : 1, below: 2)
        add(record.table == nil ? 0 : record.table == .message ? 1 : 2, below: 3)
        add(record.durableTable != nil)
        add(record.wasSent)
        add(record.flightLink >= 0)
        add(record.mustBeOffline || record.wasAcceptedOffline)
        add(Int(record.job?.state.rawValue ?? 0), below: 7)
        add(Int(record.job?.attempts ?? 0), below: 3)
        add(record.job?.isCollapsed ?? false)
        add(Int(record.final?.rawValue ?? 0), below: 10)
        states.insert(state)
    }

    private func handle(_ event: Event) {
        switch event {
        case .operation:
            guard !isHealing else { return }
            operate()
            if hasServer, names.isTime() { directSomething() }
            if hasBroadcasts, broadcasting.isTime() { broadcastSomething() }
            if hasBroadcasts, firstAcks.isTime() { pushToSome() }
            if hasFeeds, feeds.isTime() { sendUpstream() }
            if hasRareWeather, rare.isTime() { disturbRarely() }
            queue.add(.operation, at: now + chance.time(0, plan.operationGap))
        case .segment(let link, let toGateway, let offset, let bytes):
            arrive(links[link], toGateway: toGateway, offset: offset, bytes: bytes)
        case .hangUp(let link, let toGateway, let offset):
            hangUpArrived(links[link], toGateway: toGateway, offset: offset)
        case .connectDone(let link): connectDone(links[link])
        case .connectFailed(let link):
            eventCount += 1
            let device = devices[links[link].device]
            links[link].isOpenAtClient = false
            if device.link === links[link] { device.connectionLost("refused") }
        case .clientWake(let device): devices[device].wake()
        case .resume(let device): devices[device].resume()
        case .handshakeTimeout(let link):
            let link = links[link]
            if link.isOpenAtGateway, link.phase == .awaitingHello, link.life == life {
                eventCount += 1
                close(link, .helloTimeout)
            }
        case .tick(let loop, let itsLife):
            if itsLife == life, isUp { tick(loops[loop]) }
        case .sync(let itsLife): if itsLife == life, isUp { sync() }
        case .completion(let loop, let itsLife, let ticket):
            guard itsLife == life, isUp else { return }
            eventCount += 1
            log.note(now, "completion", Int64(loop), Int64(ticket))
            loops[loop].store.complete(upTo: ticket)
        case .reply(let loop, let itsLife, let token, let fails):
            guard itsLife == life, isUp else { return }
            eventCount += 1
            log.note(now, "reply", Int64(loop), Int64(token), fails ? 1 : 0)
            loops[loop].store.answer(token, failing: fails && !isHealing)
        case .retryPublish(let record, let attempt): retry(records[record], attempt: attempt)
        case .retryList(let task, let attempt): retry(tasks[task], attempt: attempt)
        case .senderStep(let sender): step(senders[sender])
        case .senderResults(let sender, let batch): report(senders[sender], batch: batch)
        case .endMet(let record): meetEnd(of: records[record])
        case .directoryStep(let number, let itsLife): if itsLife == life, isUp { carryOut(number) }
        case .directoryReply(let number, let itsLife): if itsLife == life, isUp { takeReply(number) }
        case .retryBroadcast(let index, let attempt): retryBroadcast(index, attempt: attempt)
        case .launch(let loop, let itsLife, let index): if itsLife == life, isUp { launch(index, on: loops[loop]) }
        case .broadcastStep(let request, let itsLife): if itsLife == life, isUp { broadcastStep(request) }
        case .broadcastAdvance(let request, let itsLife): if itsLife == life, isUp { broadcastAdvance(request) }
        case .stopBroadcast(let index, let itsLife): if itsLife == life, isUp, !isHealing { stopBroadcast(index) }
        case .submit(let record, let itsLife):
            if itsLife == life, isUp { submit(records[record], conflicting: false) }
        case .endSiblings(let win, let itsLife): if itsLife == life, isUp { endSiblings(win) }
        case .endSibling(let win, let record, let itsLife):
            if itsLife == life, isUp { endSibling(win, records[record]) }
        case .settleFirstAck(let win, let itsLife): if itsLife == life, isUp { settleFirstAck(win) }
        case .receipt(let number): makeReceipt(number)
        case .feed(let step): take(step)
        case .appsKnown(let loop, let itsLife): if itsLife == life, isUp { learnApps(loops[loop]) }
        case .finishSession(let link): finishSession(links[link])
        case .endHalfClosed(let link, let isTimeout): endHalfClosed(links[link], isTimeout: isTimeout)
        case .crash(let itsLife): if itsLife == life, !isHealing { crash() }
        case .restart: restart()
        }
    }

    /// Ends a loop's turn: flushes connections, passes batches to the committer and sets timers.
    private func endTurn() {
        while let link = dirtyLinks.popLast() { flush(link) }
        guard isUp else { return }
        var hasBatches = false
        for loop in loops {
            if loop.store.waitingBatchCount > 0 { hasBatches = true }
            loop.store.turnEnded()
            armTick(loop)
            if let text = loop.store.violations.first { fail(.storeContract, text) }
        }
        if hasBatches, !isSyncing { beginSync() }
        if engine.hasLostParts { crash() }
    }

    func fail(_ kind: ViolationKind, _ text: @autoclosure () -> String) {
        guard violation == nil else { return }
        violation = Violation(kind: kind, text: text(), time: now)
    }

    // MARK: The committer

    private func beginSync() {
        isSyncing = true
        syncUpTo = loops.map(\.store.lastTicket)
        var duration = chance.time(0, plan.syncTime)
        if !isHealing, chance.perMille(plan.syncStall) {
            faults.note(.syncStalled)
            duration += chance.time(200, 6_000)
        }
        queue.add(.sync(life: life), at: now + max(duration, engine.lead))
    }

    /// The batches are on disk; each shard is notified after a short delay.
    private func sync() {
        isSyncing = false
        eventCount += 1
        for (index, loop) in loops.enumerated() {
            let ticket = syncUpTo[index]
            guard ticket > loop.store.durableTicket else { continue }
            loop.store.makeDurable(upTo: ticket)
            queue.add(.completion(loop: index, life: life, ticket: ticket), at: now + engine.lead + chance.time(0, 2))
        }
        log.note(now, "sync", Int64(eventCount))
    }

    // MARK: Ticks

    private func armTick(_ loop: Loop) {
        let distance = loop.shard.nextTimer - gatewayNow
        // At least once a second, at most once a millisecond.
        let time = now + max(1, min(1_000, distance))
        guard time < loop.tickAt else { return }
        loop.tickAt = time
        queue.add(.tick(loop: loop.index, life: life), at: time)
    }

    private func tick(_ loop: Loop) {
        guard loop.tickAt <= now else { return }
        loop.tickAt = .max
        let gatewayNow = gatewayNow
        if loop.shard.nextTimer <= gatewayNow {
            eventCount += 1
            log.note(now, "timer", Int64(loop.index))
        }
        loop.shard.advance(to: gatewayNow)
        loop.perform()
    }

    // MARK: Starts and crashes of the process

    func startLoops(count: Int) {
        loops = []
        let stores = engine.makeStores(count: count, in: self)
        var start = BroadcastStart()
        for store in stores {
            store.loadAll(table: .broadcast) { row in
                start.take(row)
                found(row.key, row.value)
            }
        }
        broadcasting.processStarted()
        for (index, store) in stores.enumerated() {
            store.witness = oracle
            var counters: [StoredRow] = []
            store.loadAll(table: .counters) { counters.append($0) }
            let loop = Loop(
                index: index, life: life, store: store, world: self, apps: appsAtStart(of: index), counters: counters,
                broadcasts: start.of(LoopShare(index: index, count: count)), now: gatewayNow)
            let itsLife = life
            store.onRead = { [unowned self] token, isForAlarms in
                scheduleReply(loop: index, life: itsLife, token: token, isForAlarms: isForAlarms)
            }
            loops.append(loop)
        }
        isSyncing = false
        if hasFeeds { feedsStarted() }
    }

    private func scheduleReply(loop: Int, life: Int, token: ReadToken, isForAlarms: Bool) {
        var delay = chance.time(0, plan.readTime)
        var fails = false
        if !isHealing {
            if chance.perMille(plan.readStall) {
                faults.note(.readDelayed)
                delay += chance.time(50, 3_000)
            }
            if engine.hasReadFailures, chance.perMille(plan.readTrouble) || now < readsFailUntil {
                fails = true
                faults.note(isForAlarms ? .alarmReadFailed : .readFailed)
            }
        }
        queue.add(.reply(loop: loop, life: life, token: token, fails: fails), at: now + max(delay, engine.lead))
    }

    /// Ends the process; the engine keeps the surviving rows.
    func crash() {
        guard isUp else { return }
        faults.note(.processCrashed)
        eventCount += 1
        log.note(now, "crash", Int64(life))
        isUp = false
        engine.crash(in: self)
        life += 1
        oracle.processDied()
        // A process that dies resets its connections. A machine that dies leaves them half-open.
        let isMachine = chance.perMille(300)
        for link in links where link.isOpenAtGateway { gatewayEndDied(link, isSilent: isMachine) }
        queue.add(.restart, at: now + chance.time(1, chance.perMille(200) ? 30_000 : 2_000) + engine.lead)
    }

    private func restart() {
        eventCount += 1
        var count = loops.count
        if engine.loopCount == nil, chance.perMille(500) {
            count = chance.between(1, 4)
            if count != loops.count { faults.note(.loopCountChanged) }
        }
        if !isHealing, chance.perMille(150) {
            faults.note(.clockJumpedForward)
            jumpForward(chance.time(1_000, 3_600_000))
        }
        if rare.wantsRestore { restoreSomeBackup() }
        startLoops(count: count)
        if loops.allSatisfy(\.unknownApps.isEmpty) { oracle.checkQueuedBytes() }
        (isUp, startedAt) = (true, now)
        log.note(now, "restart", Int64(life), Int64(count))
    }

    func loop(of bucket: Bucket) -> Loop { loops[bucket.loop(of: loops.count)] }
}

extension World {
    /// The violation and the command that reproduces it, or `nil`.
    package var report: String? {
        guard let violation else { return nil }
        return "seed \(seed), event \(eventCount): \(violation)\n"
            + "replay: LONGWIRE_SEED=\(seed) swift test --filter SimulationTests, or longwire-soak --seed \(seed) --seeds 1\n"
            + log.text.joined(separator: "\n")
    }
}

extension World {
    /// A digest of all messages and their final states.
    package var fingerprint: UInt64 {
        records.reduce(UInt64(now)) { sum, record in
            (sum ^ UInt64(record.durableFinal?.rawValue ?? 0) &+ record.sequence << 8) &* 0x9E37_79B9_7F4A_7C15
        }
    }
}
