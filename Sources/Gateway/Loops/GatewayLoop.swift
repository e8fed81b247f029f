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
    let clock: GatewayClockReader
    let store: EmbeddedShardStore
    /// What all loops share and none changes.
    let context: GatewayContext

    private(set) var snapshot: GatewaySnapshot
    private var shard: Shard
    private var effects: [Effect] = []
    private var outgoing: [Outgoing]
    private(set) var counts = LoopCounts()

    var sessions: StampedTable<DeviceConnection>
    var senders: StampedTable<SenderConnection>
    private var handshakes = HandshakeQueue()
    lazy var publicFront = PublicFront(self)
    lazy var adminFront = AdminFront(self)
    let handoffDesk: HandoffDesk
    private var isStopping = false
    private var lastSecond: Int64 = 0

    /// What this turn gathered for one other loop.
    private struct Outgoing {
        var publishes: CommandBatch?
        var answers: [LoopAnswer] = []
        var messages: [LoopMessage] = []
        var isEmpty: Bool { publishes == nil && answers.isEmpty && messages.isEmpty }
    }

    init(index: Int, loop: EventLoop, store: EmbeddedShardStore, context: GatewayContext, snapshot: GatewaySnapshot) {
        (self.index, self.loop, self.store) = (index, loop, store)
        (self.context, self.snapshot, self.clock) = (context, snapshot, context.clock)
        outgoing = (0..<context.loopCount).map { _ in Outgoing() }
        sessions = StampedTable(limit: snapshot.limits.connectionsPerLoop)
        senders = StampedTable(limit: snapshot.limits.connectionsPerLoop)
        handoffDesk = HandoffDesk(loop: index, loopCount: context.loopCount)
        shard = Shard(
            limits: snapshot.limits.shard, apps: snapshot.apps.map(\.settings), store: store,
            verifier: HelloVerifier(), queueEpoch: context.queueEpoch,
            counters: [], now: clock.now())
        store.observer = self
        handoffDesk.outlet = HandoffDesk.Outlet(
            lease: { [unowned self] target, command in self.lease(on: target, command) },
            settle: { [unowned self] target, results, origin in self.settle(on: target, results, origin) },
            extend: { [unowned self] target, items, milliseconds, origin in
                self.extend(on: target, items, milliseconds, origin)
            })
    }

    var now: GatewayTime { clock.now() }
    var loopCount: Int { context.loopCount }

    // MARK: Into shards, this one or another

    func publish(_ command: borrowing PublishCommand) {
        let target = command.bucket.loop(of: loopCount)
        if target == index {
            shard.publish(command, now: now)
            perform()
            return
        }
        let batch = outgoing[target].publishes ?? CommandBatch()
        batch.append(command)
        if batch.byteCount >= CommandBatch.byteLimit {
            outgoing[target].publishes = nil
            outgoing[target].messages.append(.publishes(batch))
        } else {
            outgoing[target].publishes = batch
        }
    }

    func queryStatus(of cid: DeviceID, bucket: Bucket, origin: Origin) {
        let target = bucket.loop(of: loopCount)
        guard target == index else { return send(.deviceStatus(cid, bucket, origin), to: target) }
        shard.status(of: cid, bucket: bucket, origin: origin, now: now)
        perform()
    }

    func queryTrace(of message: MessageID, bucket: Bucket, origin: Origin) {
        let target = bucket.loop(of: loopCount)
        guard target == index else { return send(.trace(message, origin), to: target) }
        shard.trace(of: message, origin: origin, now: now)
        perform()
    }

    private func lease(on target: Int, _ command: LeaseCommand) {
        guard target == index else { return send(.lease(command), to: target) }
        shard.lease(command, now: now)
        perform()
    }

    private func settle(on target: Int, _ results: [JobResult], _ origin: Origin) {
        guard target == index else { return send(.settle(results, origin), to: target) }
        shard.settle(results, origin: origin, now: now)
        perform()
    }

    private func extend(on target: Int, _ items: [ExtendItem], _ milliseconds: Int64, _ origin: Origin) {
        guard target == index else { return send(.extend(items, milliseconds: milliseconds, origin), to: target) }
        shard.extend(
            items.map { ($0.job, $0.leaseID) }, milliseconds: milliseconds, origin: origin, now: now)
        perform()
    }

    func send(_ message: LoopMessage, to target: Int) { outgoing[target].messages.append(message) }

    // MARK: Sessions

    func hello(_ command: HelloCommand) {
        shard.hello(command, now: now)
        perform()
    }

    func heard(_ session: SessionRef) {
        shard.heard(session, now: now)
    }

    func acknowledge(_ session: SessionRef, _ ack: borrowing AckView) {
        ack.withDirectRanges { cumulative, ranges in
            shard.acknowledge(session, cumulative: cumulative, ranges: ranges, now: now)
        }
        for rejected in ack.rejected where rejected.stream == 0 {
            shard.reject(session, sequence: rejected.sequence, reason: rejected.reason, now: now)
        }
        perform()
    }

    func update(_ session: SessionRef, _ update: DeviceUpdate) {
        shard.update(session, update, now: now)
        perform()
    }

    func feedback(_ session: SessionRef, _ feedback: Feedback) {
        shard.feedback(session, feedback, now: now)
        perform()
    }

    func sessionEnded(_ session: SessionRef, announced: Bool) {
        shard.sessionEnded(session, announced: announced, now: now)
        perform()
    }

    // MARK: Mailbox

    func receive(_ messages: [LoopMessage]) {
        for message in messages {
            switch message {
            case .publishes(let batch):
                batch.forEach { command in
                    shard.publish(command, now: now)
                    perform()
                }
            case .answers(let answers):
                for answer in answers { take(answer) }
            case .adopt(let adopted):
                DeviceConnection.adopt(adopted, on: self)
            case .lease(let command):
                lease(on: index, command)
            case .settle(let results, let origin):
                settle(on: index, results, origin)
            case .extend(let items, let milliseconds, let origin):
                extend(on: index, items, milliseconds, origin)
            case .deviceStatus(let cid, let bucket, let origin):
                queryStatus(of: cid, bucket: bucket, origin: origin)
            case .trace(let message, let origin):
                shard.trace(of: message, origin: origin, now: now)
                perform()
            case .jobsAvailable:
                handoffDesk.jobsAvailable(now: loop.now)
            case .reload(let snapshot):
                self.snapshot = snapshot
                shard.reload(apps: snapshot.apps.map(\.settings))
            }
        }
    }

    // MARK: Effects

    /// Performs everything the shard wants done, then what must not happen in the midst of it.
    ///
    /// While effects are performed the shard is not called: their bytes would move. A session that ends meanwhile and
    /// an answer for this loop itself, which may lead to the next command, are put off to the second step.
    private func perform() {
        shard.takeEffects(into: &effects)
        for index in effects.indices { perform(effects[index]) }
        effects.removeAll(keepingCapacity: true)
        guard !isPerforming, !deferred.isEmpty else { return }
        isPerforming = true
        defer { isPerforming = false }
        var round: [Deferred] = []
        while !deferred.isEmpty {
            swap(&round, &deferred)
            for item in round {
                switch item {
                case .answer(let answer): take(answer)
                case .sessionEnded(let session, let announced):
                    shard.sessionEnded(session, announced: announced, now: now)
                    perform()
                }
            }
            round.removeAll(keepingCapacity: true)
        }
    }

    private func perform(_ effect: Effect) {
        switch effect {
        case .deliver(let session, let deliver):
            sessions[session.slot, session.stamp]?.send(deliver)
        case .publishAnswered(let origin, let outcome):
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
            hasJobNews = true
        case .deviceStatus(let origin, let cid, let status):
            answer(.deviceStatus(origin, cid, status))
        case .messageTrace(let origin, let trace):
            answer(.trace(origin, trace))
        case .log(let event):
            context.log.write(event)
        }
    }

    private func answer(_ answer: LoopAnswer) {
        guard let route = Route(answer.origin.route) else { return }
        if route.loop == index { deferred.append(.answer(answer)) } else { outgoing[route.loop].answers.append(answer) }
    }

    private func take(_ answer: LoopAnswer) {
        guard let route = Route(answer.origin.route) else { return }
        switch answer {
        case .published(let origin, let outcome):
            if route.kind == .sender {
                senders[route.slot, route.stamp]?.answer(origin.request, outcome)
            } else {
                publicFront.answered(route, item: Int(origin.request), outcome)
            }
        case .leased(let origin, let jobs):
            handoffDesk.leased(origin, jobs, now: loop.now)
        case .settled(let origin, let verdicts):
            handoffDesk.settled(origin, verdicts)
        case .deviceStatus(let origin, let cid, let status):
            if route.kind == .userStatus {
                publicFront.answered(route, item: Int(origin.request), cid, status)
            } else {
                adminFront.answered(route, cid, status)
            }
        case .trace(_, let trace):
            adminFront.answered(route, trace)
        }
    }
}
