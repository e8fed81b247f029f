internal import Campaigns
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Wire

/// One event loop with everything it owns: a delivery shard, its store, sessions, HTTP exchanges in flight.
///
/// Confined to its loop's thread. Other loops reach it through its mailbox only. After every call into the shard the
/// shard's effects are performed at once, since the bytes they point to are valid until the next call.
final class GatewayLoop {
    let index: Int
    let loop: EventLoop
    /// What all loops share and none changes.
    let context: GatewayContext
    let store: EmbeddedShardStore

    private(set) var snapshot: GatewaySnapshot
    private let core: UnsafeMutablePointer<Core>
    private var mailboxes: [Mailbox<LoopMessage>] = []
    private var dueTasks: [TaskRecord] = []
    private var lastSecond: UInt64 = 0
    private var handshakes = HandshakeQueue()
    private var listeners: [Listener] = []
    private var reportedAcceptFailures: UInt64 = 0
    let publisher = NativePublisher()
    let handoffDesk: HandoffDesk
    private(set) lazy var publicFront = PublicFront(self)
    private(set) lazy var directoryFront = DirectoryFront(self)
    private(set) lazy var adminFront = AdminFront(self)
    private(set) lazy var campaigns = CampaignFront(self)
    /// On the loop that owns the gateway's own rows.
    private lazy var campaignKeeper = CampaignKeeper(self)
    /// Rows of the gateway's own that wait to be durable.
    private var metaWaiters: [(ticket: Ticket, done: () -> Void)] = []

    /// What this turn gathered for one other loop.
    private struct Outgoing {
        var publishes: CommandBatch?
        var answers: AnswerBatch?
        var messages: [LoopMessage] = []
    }

    /// What every message changes.
    ///
    /// It stands behind a pointer, because each access to a class's own variable is checked at run time for overlaps
    /// with others: at some 90 instructions an access those checks were a sixth of what a message cost.
    private struct Core: ~Copyable {
        var shard: Shard
        var effects: [Effect] = []
        var deferred: [LoopAnswer] = []
        var round: [LoopAnswer] = []
        var isAnswering = false
        var outgoing: [Outgoing]
        var hasJobNews = false
        var clock: ClockMapping
        var cachedNow: GatewayTime = 0
        var metrics = LoopMetrics()
        // `beginHandshake` keeps the configured limit, which is for all loops together and may change.
        var sessions = StampedTable<DeviceConnection>(limit: Route.slotLimit)
        var senders = StampedTable<SenderConnection>(limit: Route.slotLimit)
        var frameByteLimit: Int
    }

    var metrics: LoopMetrics {
        _read { yield core.pointee.metrics }
        _modify { yield &core.pointee.metrics }
    }

    var sessions: StampedTable<DeviceConnection> {
        _read { yield core.pointee.sessions }
        _modify { yield &core.pointee.sessions }
    }

    var senders: StampedTable<SenderConnection> {
        _read { yield core.pointee.senders }
        _modify { yield &core.pointee.senders }
    }

    var clock: ClockMapping { core.pointee.clock }
    /// The largest body of a frame; asked for with each one.
    var frameByteLimit: Int { core.pointee.frameByteLimit }

    /// Made on the thread that starts the gateway, before the loop runs.
    init(
        index: Int, loop: EventLoop, store: EmbeddedShardStore, context: GatewayContext, snapshot: GatewaySnapshot,
        clock: ClockMapping
    ) throws {
        (self.index, self.loop, self.store) = (index, loop, store)
        (self.context, self.snapshot) = (context, snapshot)
        handoffDesk = HandoffDesk(loop: index, loopCount: context.loopCount)
        let now = clock.time(atBoot: ClockReader.boot())
        let counters = try CounterRows(loading: store)
        core = .allocate(capacity: 1)
        core.initialize(
            to: Core(
                shard: Shard(
                    limits: snapshot.limits.shardLimits, apps: snapshot.settings, store: store,
                    verifier: HelloVerifier(), queueEpoch: context.queueEpoch, counters: counters.rows, now: now),
                outgoing: (0..<context.loopCount).map { _ in Outgoing() }, clock: clock,
                frameByteLimit: snapshot.limits.frameBytes))
        withExtendedLifetime(counters) {}
        store.observer = self
        handoffDesk.outlet = HandoffDesk.Outlet(
            lease: { [unowned self] target, command in lease(on: target, command) },
            settle: { [unowned self] target, results, origin in settle(on: target, results, origin) },
            extend: { [unowned self] target, items, milliseconds, origin in
                extend(on: target, items, milliseconds, origin)
            })
        loop.onTurnEnd(.beforeFlush) { [unowned self] in endTurn() }
        loop.onStop {
            // What the last turn wrote goes to the committer before the shard is taken out of service.
            store.turnEnded()
            store.close()
        }
        loop.onTick { [unowned self] _ in tick() }
        guard loop.hasOwnTable else { return }
        loop.onArrival { [unowned self] connection, cargo in
            guard let connection, let cargo = cargo as? AdoptedConnection.Cargo else { return endConnection() }
            DeviceConnection.adopt(
                AdoptedConnection(connection: connection, isSecure: cargo.isSecure, hello: cargo.hello), on: self)
        }
    }

    deinit {
        core.deinitialize(count: 1)
        core.deallocate()
    }

    /// Opens this loop's mailbox; to be called before any loop runs.
    func openMailbox() -> Mailbox<LoopMessage> {
        Mailbox(into: loop, capacity: snapshot.limits.mailboxItems) { [unowned self] messages in receive(messages) }
    }

    func connect(_ mailboxes: [Mailbox<LoopMessage>]) { self.mailboxes = mailboxes }

    /// Gateway time, read once a turn.
    var now: GatewayTime {
        if core.pointee.cachedNow == 0 { core.pointee.cachedNow = clock.time(atBoot: ClockReader.boot()) }
        return core.pointee.cachedNow
    }

    var loopCount: Int { context.loopCount }
    var limits: GatewayLimits { snapshot.limits }
    var registry: AppRegistry { snapshot.registry }
    var log: Log { context.log }
    var statistics: ShardStatistics { core.pointee.shard.statistics }

    /// The control thread moved the clock's mapping.
    func setClock(_ mapping: ClockMapping) {
        core.pointee.clock = mapping
        core.pointee.cachedNow = 0
    }

    // MARK: Turn

    private func tick() {
        core.pointee.shard.advance(to: now)
        perform()
        while let connection = handshakes.popDue(now: loop.now) { connection.handshakeTimedOut() }
        if loop.now >= lastSecond + 1_000 {
            lastSecond = loop.now
            handoffDesk.tick(now: Int64(loop.now))
            reportAcceptFailures()
            if index == 0 { campaignKeeper.tick() }
        }
    }

    /// Sends off what the turn gathered: batches to the committer, messages to the other loops.
    private func endTurn() {
        if core.pointee.hasJobNews {
            core.pointee.hasJobNews = false
            handoffDesk.jobsAvailable(now: Int64(loop.now))
        }
        store.turnEnded()
        for target in core.pointee.outgoing.indices where target != index { dispatch(to: target) }
        core.pointee.cachedNow = 0
        metrics.count(.turns)
    }

    private func dispatch(to target: Int) {
        if let batch = core.pointee.outgoing[target].publishes {
            core.pointee.outgoing[target].publishes = nil
            core.pointee.outgoing[target].messages.append(.publishes(batch))
        }
        if let answers = core.pointee.outgoing[target].answers {
            core.pointee.outgoing[target].answers = nil
            core.pointee.outgoing[target].messages.append(.answers(answers))
        }
        guard !core.pointee.outgoing[target].messages.isEmpty else { return }
        if mailboxes[target].send(contentsOf: &core.pointee.outgoing[target].messages) { return }
        // One turn's messages may be more than a mailbox holds at all, so they go in pieces.
        mailboxes[target].send(prefixOf: &core.pointee.outgoing[target].messages)
        refuse(&core.pointee.outgoing[target].messages)
    }

    /// The mailbox is full: publishes are answered as busy, the rest waits for a later turn, at most until the next tick.
    private func refuse(_ messages: inout [LoopMessage]) {
        guard !messages.isEmpty else { return }
        metrics.count(.mailboxRefusals)
        var kept: [LoopMessage] = []
        for message in messages {
            switch message {
            case .publishes(let batch):
                batch.forEach { command in
                    let outcome = PublishOutcome(code: .busy, cid: command.cid, task: command.task)
                    answer(.published(command.origin, outcome))
                }
            case .list(let fanout):
                fanout.forEach { command in
                    answer(
                        .published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task)))
                }
            case .adopt, .lease, .settle, .extend, .deviceStatus, .trace, .directory, .charge, .task, .answers,
                .jobsAvailable:
                kept.append(message)
            }
        }
        messages = kept
        guard !core.pointee.deferred.isEmpty else { return }
        let member = LoopBound(self, on: loop)
        loop.submit { member.wrapped.answerDeferred() }
    }

    // MARK: Handshakes

    /// Lets the log tell when this listener's accepts fail.
    func watch(_ listener: Listener) { listeners.append(listener) }

    private func reportAcceptFailures() {
        let count = listeners.reduce(0) { $0 + $1.exhaustedCount }
        guard count > reportedAcceptFailures else { return }
        log.write(.error, .acceptFailed, [.loop: LogValue(index), .count: LogValue(count - reportedAcceptFailures)])
        reportedAcceptFailures = count
    }

    /// Counts a connection in; false when there are too many, or too many that shake hands.
    ///
    /// In any case `endHandshake` and `endConnection` are owed.
    func beginHandshake(_ connection: some Handshaking) -> Bool {
        let isRoom = context.connections.enter(limit: limits.connections)
        guard context.handshakes.enter(limit: limits.connectionsBeforeHello), isRoom else { return false }
        let deadline = loop.now + UInt64(limits.helloTimeoutMilliseconds)
        connection.handshakePlace = handshakes.append(connection, deadline: deadline)
        return true
    }

    func endHandshake(_ connection: some Handshaking) {
        context.handshakes.leave()
        handshakes.remove(connection.handshakePlace)
    }

    /// A connection is over; one that only moves to another loop stays counted.
    func endConnection() { context.connections.leave() }

    /// When a closed client may come back: at random in this window, which both ends at 0 leave to the client.
    func retryWindow(for code: CloseCode) -> (UInt32, UInt32) {
        switch code {
        case .overloaded: (1_000, 15_000)
        case .shuttingDown: (500, UInt32(clamping: limits.reconnectSpreadSeconds * 1_000))
        case .replaced: (30_000, 60_000)
        case .clockSkew: (0, 1_000)
        default: (0, 0)
        }
    }

    /// A new configuration is in force.
    func reload(_ snapshot: GatewaySnapshot) {
        self.snapshot = snapshot
        core.pointee.frameByteLimit = snapshot.limits.frameBytes
        core.pointee.shard.reload(apps: snapshot.settings, limits: snapshot.limits.shardLimits)
        publicFront.reload(snapshot)
        adminFront.reload(snapshot)
    }

    /// Voids a push token: durably first, then on every loop, then `done` on this one.
    func revoke(_ token: TokenID, done: @escaping () -> Void) {
        let answer = LoopBound(done, on: loop)
        let (asker, context) = (loop, context)
        context.members[Bucket(0).loop(of: loopCount)].submit { keeper in
            MetaRows.write(token, on: keeper) {
                for member in context.members { member.submit { $0.publicFront.revoke(token) } }
                // Behind the revocation in every loop's queue, this one's own included.
                asker.submit { answer.wrapped() }
            }
        }
    }

    func metricsPart() -> MetricsGatherer.Part {
        let statistics = core.pointee.shard.statistics
        // What the shard counts itself is put into the copy, so that nothing is counted twice on a message's way.
        var page = metrics
        page.count(.messagesAccepted, Int(statistics.accepted))
        for state in FinalState.allCases { page.count(.ended(state), Int(statistics.ended(state))) }
        page.count(.acksReceived, Int(statistics.ended(.delivered) + statistics.ended(.deliveredOffline)))
        page.count(.acksIgnored, Int(statistics.acksIgnored))
        page.count(.alertedTwice, Int(statistics.alertedTwice))
        page.count(.jobsLeased, Int(statistics.leasesGiven))
        page.count(.resultAccepted, Int(statistics.resultsAccepted))
        page.count(.resultRetry, Int(statistics.resultsRetry))
        page.count(.resultRejected, Int(statistics.resultsRejected))
        page.count(.resultBadToken, Int(statistics.resultsBadToken))
        page.count(.resultStale, Int(statistics.resultsStale))
        return MetricsGatherer.Part(
            metrics: page, statistics: statistics, deviceSessions: sessions.count, senderSessions: senders.count,
            openStreams: loop.streamCount, waitingLongPolls: handoffDesk.waitingCount,
            mailboxItems: mailboxes[index].count, youngRows: store.youngRowCount)
    }

    /// Somebody waits for an answer that is not out yet.
    var hasWorkUnderWay: Bool {
        var isSenderOwed = false
        senders.forEach { _, _, sender in isSenderOwed = isSenderOwed || sender.isOwedAnswers }
        return isSenderOwed || publicFront.hasWorkUnderWay || directoryFront.hasWorkUnderWay
            || handoffDesk.hasWorkUnderWay || campaigns.desk.hasWorkUnderWay
            || core.pointee.shard.statistics.pendingEffects > 0
    }

    /// Tells every connection that the gateway stops.
    func beginStop() {
        var devices: [DeviceConnection] = []
        sessions.forEach { _, _, connection in devices.append(connection) }
        for device in devices { device.close(.shuttingDown, reason: "the gateway is stopping") }
        var all: [SenderConnection] = []
        senders.forEach { _, _, connection in all.append(connection) }
        for sender in all { sender.stop() }
        handoffDesk.drain()
        if index == 0 { campaignKeeper.writeRates() }
    }

    // MARK: Rows of the gateway's own

    /// Writes a row of the table `meta`; only on the loop that owns bucket 0.
    ///
    /// `done` runs when it is durable.
    func putMeta(high: UInt64, low: UInt64, item: UInt64, _ value: [UInt8], done: @escaping () -> Void) {
        let bucket = Bucket(0)
        precondition(bucket.loop(of: loopCount) == index, "meta rows belong to bucket 0")
        store.beginBatch(bucket)
        store.put(
            StoreKey(bucket, .meta, ownerHigh: high, ownerLow: low, item: item), wakeAt: 0, prior: .maybe(wakeAt: 0),
            byteCount: value.count
        ) { $0.copyBytes(from: value) }
        metaWaiters.append((store.endBatch(), done))
    }

    /// Removes such a row.
    func deleteMeta(high: UInt64, low: UInt64, item: UInt64) {
        store.beginBatch(Bucket(0))
        store.delete(
            StoreKey(Bucket(0), .meta, ownerHigh: high, ownerLow: low, item: item), prior: .maybe(wakeAt: 0))
        _ = store.endBatch()
    }

    // MARK: Into shards, this one or another

    func publish(_ command: borrowing PublishCommand) {
        let target = command.bucket.loop(of: loopCount)
        if target == index {
            core.pointee.shard.publish(command, now: now)
            perform()
            return
        }
        let batch =
            core.pointee.outgoing[target].publishes ?? context.spares.takeCommands()
        batch.append(command)
        if batch.byteCount >= CommandBatch.byteLimit {
            core.pointee.outgoing[target].publishes = nil
            core.pointee.outgoing[target].messages.append(.publishes(batch))
        } else {
            core.pointee.outgoing[target].publishes = batch
        }
    }

    func queryStatus(of device: DeviceAddress, origin: Origin) {
        let target = device.bucket.loop(of: loopCount)
        guard target == index else { return send(.deviceStatus(device, origin), to: target) }
        core.pointee.shard.status(of: device.cid, bucket: device.bucket, app: device.app, origin: origin, now: now)
        perform()
    }

    func queryTrace(of message: MessageID, bucket: Bucket, origin: Origin) {
        let target = bucket.loop(of: loopCount)
        guard target == index else { return send(.trace(message, origin), to: target) }
        core.pointee.shard.trace(of: message, origin: origin, now: now)
        perform()
    }

    /// One step of a directory operation.
    func direct(_ command: DirectoryCommand, to target: Int) {
        guard target == index else { return send(.directory(command), to: target) }
        core.pointee.shard.directory(command, now: now)
        perform()
    }

    func task(_ command: TaskCommand, on target: Int, origin: Origin) {
        guard target == index else { return send(.task(command, origin), to: target) }
        core.pointee.shard.task(command, origin: origin, now: now)
        perform()
    }

    func publish(_ fanout: Fanout, on target: Int) {
        guard target == index else { return send(.list(fanout), to: target) }
        fanout.forEach { command in
            core.pointee.shard.publish(command, now: now)
            perform()
        }
    }

    private func lease(on target: Int, _ command: LeaseCommand) {
        guard target == index else { return send(.lease(command), to: target) }
        core.pointee.shard.lease(command, now: now)
        perform()
    }

    private func settle(on target: Int, _ results: [JobResult], _ origin: Origin) {
        guard target == index else { return send(.settle(results, origin), to: target) }
        core.pointee.shard.settle(results, origin: origin, now: now)
        perform()
    }

    private func extend(on target: Int, _ items: [ExtendItem], _ milliseconds: Int64, _ origin: Origin) {
        guard target == index else { return send(.extend(items, milliseconds: milliseconds, origin), to: target) }
        core.pointee.shard.extend(
            items.map { ($0.job, $0.leaseID) }, milliseconds: milliseconds, origin: origin, now: now)
        perform()
    }

    /// Sends a connection to its device's loop.
    func move(_ adopted: AdoptedConnection, to target: Int) {
        guard loop.hasOwnTable else { return send(.adopt(adopted), to: target) }
        guard !context.members[target].pass(adopted) else { return }
        // The connection is closed already: its client comes back after its own backoff.
        metrics.count(.mailboxRefusals)
        endConnection()
    }

    func send(_ message: LoopMessage, to target: Int) { core.pointee.outgoing[target].messages.append(message) }

    // MARK: Sessions

    func hello(_ command: HelloCommand) {
        core.pointee.shard.hello(command, now: now)
        perform()
    }

    func heard(_ session: SessionRef) {
        // Hardly ever anything; but what there is points to bytes that the next call may free.
        if core.pointee.shard.heard(session, now: now) { perform() }
    }

    func acknowledge(_ session: SessionRef, _ ack: borrowing AckView) {
        ack.withRanges { ranges in
            core.pointee.shard.acknowledge(session, cumulative: ack.sequence, ranges: ranges, now: now)
        }
        perform()
        for rejected in ack.rejected where rejected.stream == 0 {
            core.pointee.shard.reject(session, sequence: rejected.sequence, reason: rejected.reason, now: now)
            perform()
        }
    }

    func update(_ session: SessionRef, _ update: DeviceUpdate) {
        core.pointee.shard.update(session, update, now: now)
        perform()
    }

    func feedback(_ session: SessionRef, _ feedback: Feedback) {
        core.pointee.shard.feedback(session, feedback, now: now)
        perform()
    }

    func sessionEnded(_ session: SessionRef, announced: Bool) {
        core.pointee.shard.sessionEnded(session, announced: announced, now: now)
        perform()
    }

    // MARK: Mailbox

    func receive(_ messages: [LoopMessage]) {
        for message in messages {
            switch message {
            case .publishes(let batch):
                batch.forEach { command in
                    core.pointee.shard.publish(command, now: now)
                    perform()
                }
                context.spares.keep(batch)
            case .answers(let answers):
                answers.forEach { take($0) }
                context.spares.keep(answers)
            case .adopt(let adopted):
                DeviceConnection.adopt(adopted, on: self)
            case .lease(let command):
                lease(on: index, command)
            case .settle(let results, let origin):
                settle(on: index, results, origin)
            case .extend(let items, let milliseconds, let origin):
                extend(on: index, items, milliseconds, origin)
            case .deviceStatus(let device, let origin):
                queryStatus(of: device, origin: origin)
            case .trace(let message, let origin):
                core.pointee.shard.trace(of: message, origin: origin, now: now)
                perform()
            case .directory(let command):
                direct(command, to: index)
            case .charge(let app, let call, let origin):
                answer(.charged(origin, directoryFront.count(call, app: app)))
            case .task(let command, let origin): task(command, on: index, origin: origin)
            case .list(let fanout): publish(fanout, on: index)
            case .jobsAvailable:
                handoffDesk.jobsAvailable(now: Int64(loop.now))
            }
        }
    }

    // MARK: Effects

    /// Performs everything the shard wants done, then what must not happen in the midst of it.
    ///
    /// While effects are performed the shard is not called: their bytes would move. An answer for this loop itself may
    /// lead to the next command, so it is put off until they are done.
    private func perform() {
        core.pointee.shard.takeEffects(into: &core.pointee.effects)
        for index in core.pointee.effects.indices { perform(core.pointee.effects[index]) }
        core.pointee.effects.removeAll(keepingCapacity: true)
        answerDeferred()
        guard !dueTasks.isEmpty else { return }
        let due = dueTasks
        dueTasks.removeAll()
        for record in due { campaigns.desk.taskDue(record) }
    }

    private func answerDeferred() {
        guard !core.pointee.isAnswering, !core.pointee.deferred.isEmpty else { return }
        core.pointee.isAnswering = true
        defer { core.pointee.isAnswering = false }
        while !core.pointee.deferred.isEmpty {
            swap(&core.pointee.round, &core.pointee.deferred)
            for index in core.pointee.round.indices { take(core.pointee.round[index]) }
            core.pointee.round.removeAll(keepingCapacity: true)
        }
    }

    private func perform(_ effect: Effect) {
        switch effect {
        case .deliver(let session, let deliver):
            sessions[session.slot, session.stamp]?.send(deliver)
        case .publishAnswered(let origin, let outcome):
            if outcome.code != .accepted { metrics.count(.published(outcome.code)) }
            answer(.published(origin, outcome))
        case .welcome(let session, let welcome):
            sessions[session.slot, session.stamp]?.welcome(welcome)
        case .ping(let session):
            sessions[session.slot, session.stamp]?.ping()
        case .updated(let session, let result):
            sessions[session.slot, session.stamp]?.send(result)
        case .close(let session, let code, let reason):
            sessions[session.slot, session.stamp]?.close(code, reason: reason, isForgotten: true)
        case .leased(let origin, let jobs):
            answer(.leased(origin, jobs))
        case .settled(let origin, let verdicts):
            answer(.settled(origin, verdicts))
        case .jobsAvailable:
            for target in 0..<loopCount where target != index { send(.jobsAvailable, to: target) }
            core.pointee.hasJobNews = true
        case .deviceStatus(let origin, let cid, let status):
            answer(.deviceStatus(origin, cid, status))
        case .messageTrace(let origin, let trace):
            answer(.trace(origin, trace))
        case .directoryAnswered(let origin, let reply):
            answer(.directory(origin, reply))
        case .task(let origin, let said):
            answer(.task(origin, said))
        case .taskDue(let record):
            // Begun when this turn's effects are done: it calls the shard.
            dueTasks.append(record)
        case .log(let event):
            context.log.write(event)
        }
    }

    private func answer(_ answer: LoopAnswer) {
        guard let route = Route(answer.origin.route) else { return }
        if route.loop == index {
            core.pointee.deferred.append(answer)
        } else {
            let batch =
                core.pointee.outgoing[route.loop].answers ?? context.spares.takeAnswers()
            batch.append(answer)
            core.pointee.outgoing[route.loop].answers = batch
        }
    }

    private func take(_ answer: LoopAnswer) {
        guard let route = Route(answer.origin.route) else { return }
        switch answer {
        case .published(let origin, let outcome):
            if route.kind == .sender {
                senders[route.slot, route.stamp]?.answer(origin.request, outcome)
            } else if route.kind == .list {
                campaigns.desk.answered(route, place: Int(origin.request), outcome)
            } else {
                publicFront.answered(route, item: Int(origin.request), outcome)
            }
        case .leased(let origin, let jobs):
            handoffDesk.leased(origin, jobs, now: Int64(loop.now))
        case .settled(let origin, let verdicts):
            handoffDesk.settled(origin, verdicts)
        case .deviceStatus(_, let cid, let status):
            if route.kind == .userStatus {
                publicFront.answered(route, cid, status)
            } else {
                adminFront.answered(route, status)
            }
        case .trace(_, let trace):
            if route.kind == .task {
                campaigns.desk.answered(route, .trace(trace))
            } else {
                adminFront.answered(route, trace)
            }
        case .directory(let origin, let reply):
            directoryFront.answered(route, origin.request, reply)
        case .charged(_, let verdict):
            directoryFront.charged(route, verdict)
        case .task(_, let said):
            campaigns.desk.answered(route, .task(said))
        }
    }
}

extension GatewayLoop: ShardStoreObserver {
    func storeCommitted(upTo ticket: Ticket) {
        core.pointee.shard.committed(upTo: ticket, now: now)
        perform()
        while let first = metaWaiters.first, first.ticket <= ticket {
            metaWaiters.removeFirst()
            first.done()
        }
    }

    func storeReplied(_ reply: StoreReply) {
        metrics.count(.coldReads)
        core.pointee.shard.replied(reply, now: now)
        perform()
    }

    func storeCooled(_ key: StoreKey) { core.pointee.shard.cooled(key) }
}
