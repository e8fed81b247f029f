internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import Structures
internal import Wire

/// The queue of connections that one event loop has accepted but not started to serve; `AdmissionController` decides the order.
///
/// Confined to its event loop. A queued connection is an open descriptor only: it has no stream and no TLS state.
final class AcceptQueue {
    private struct Newcomer {
        let connection: DetachedConnection
        let tls: TLSContext?
        let since: Int64
    }

    /// A period of overload by new connections, for the log.
    private struct Storm {
        let began: Int64
        var lastSeen: Int64
        var waitedCount = 0
        var sentAwayCount = 0
        var longestWait: Int64 = 0
    }

    // This reference never dangles: the event loop retains this queue, and the host exists as long as its event loop.
    private unowned(unsafe) let owner: EventLoopHost
    private var governor = AdmissionController()
    private var waiting = Ring<Newcomer>()
    private var storm: Storm?
    private var handshakeWork: Int64 = 0
    private var isCharging = false
    /// The time passed to the governor, constant within a turn; `nil` if not read yet in this turn.
    ///
    /// With a running clock, credit would also grow while the turn admits connections. The turn would then never run out of
    /// credit.
    private var turnTime: Int64?
    /// The loop time of the turn in which `turnTime` was read; in other turns `turnTime` is ignored.
    ///
    /// Code that runs after `turnEnds` may set `turnTime` again, so it is not always `nil` at the start of a turn.
    private var turnOfTime: UInt64 = 0

    /// The expected wait, in nanoseconds, at which a storm is logged.
    private static let stormWait: Int64 = 250_000_000
    /// The time in nanoseconds without a queued or refused connection after which a storm is over.
    private static let calm: Int64 = 2_000_000_000

    init(_ owner: EventLoopHost) {
        self.owner = owner
        reload()
        owner.loop.mayReadNewcomer = { [self] in mayRead }
        owner.loop.onTurnEnd(.beforeFlush) { [self] in turnEnds() }
        owner.loop.onTick { [self] _ in tick() }
        // The loop's thread may have a private descriptor table. Then only that thread can close the queued descriptors.
        owner.loop.onStop { [self] in waiting.removeAll() }
    }

    var waitingCount: Int { waiting.count }
    /// The number of queued connections plus admitted connections with unread input.
    var unheardCount: Int { waiting.count + owner.loop.waitingNewcomerCount }
    /// The measured cost of one new connection, in nanoseconds.
    var cost: Int64 { governor.cost }

    func reload() {
        let limits = owner.limits
        governor.rules = AdmissionController.Rules(
            slice: limits.welcomeSliceMicroseconds * 1_000, patience: limits.welcomeWaitMilliseconds * 1_000_000)
    }

    // MARK: Newcomers

    /// Whether the turn has time to read input from another admitted connection.
    private var mayRead: Bool { governor.mayRead(besides: owner.loop.handshakeNanoseconds - handshakeWork) }

    /// Admits, queues or refuses a newly accepted connection.
    func arrive(_ connection: DetachedConnection, tls: TLSContext?) {
        let now = time
        governor.unreadCount = owner.loop.waitingNewcomerCount
        switch governor.arrive(now: timeOfTurn) {
        case .welcome:
            guard owner.admit(.device, from: connection.peer) else {
                governor.finished()
                return owner.turnAway(connection, isSecure: tls != nil)
            }
            DeviceHandshake.begin(connection, tls: tls, on: owner)
            governor.worked(time - now)
        case .wait:
            guard owner.admit(.device, from: connection.peer) else {
                governor.forgetOne()
                return owner.turnAway(connection, isSecure: tls != nil)
            }
            waiting.append(Newcomer(connection: connection, tls: tls, since: now))
            owner.metrics.count(.newcomersWaited)
            note(now) { $0.waitedCount += 1 }
        case .comeBack(let least, let most):
            owner.metrics.count(.newcomersSentAway)
            note(now) { $0.sentAwayCount += 1 }
            owner.turnAway(connection, isSecure: tls != nil, .storm((least, most)))
        }
    }

    /// Returns the retry window for a device whose Hello another gateway has read; `nil` if the device is admitted.
    func windowForRelayed() -> (UInt32, UInt32)? {
        let now = time
        guard case .comeBack(let least, let most) = governor.arriveWithHello(now: timeOfTurn) else { return nil }
        owner.metrics.count(.newcomersSentAway)
        note(now) { $0.sentAwayCount += 1 }
        return (least, most)
    }

    /// Charges the time of `work` to the credit for new connections.
    func charge<Result>(_ work: () -> Result) -> Result {
        // In a nested call, the outer call already measures the time. A Welcome may be sent while its Hello is processed.
        guard !isCharging else { return work() }
        isCharging = true
        let began = time
        defer {
            governor.worked(time - began)
            isCharging = false
        }
        return work()
    }

    func finished() { governor.finished() }

    func began() { governor.began() }

    func settled() {
        governor.settled()
        if isCrowded { owner.loop.turnAgain() }
    }

    /// The number of further Hellos that may wait for stalled stores; negative if too many already wait.
    var standingRoom: Int { governor.standingRoom - owner.standingHelloCount }

    private var isCrowded: Bool { !waiting.isEmpty || owner.loop.waitingNewcomerCount > 0 }

    /// Refuses all queued connections because the gateway stops or drains.
    func dismissAll(_ refusal: Refusal) {
        governor.forgetAll()
        while let newcomer = waiting.popFirst() {
            owner.context.connections.handshakes.leave()
            owner.endConnection(.device)
            owner.turnAway(newcomer.connection, isSecure: newcomer.tls != nil, refusal)
        }
    }

    // MARK: Turn

    private func turnEnds() {
        defer {
            turnTime = nil
            governor.turnEnded()
        }
        let handshakes = owner.loop.handshakeNanoseconds
        if handshakes > handshakeWork {
            governor.worked(handshakes - handshakeWork)
            handshakeWork = handshakes
        }
        governor.excuse(0)
        guard isCrowded else { return }
        if !governor.hasRoom { governor.excuse(owner.standingHelloCount) }
        governor.unreadCount = owner.loop.waitingNewcomerCount
        while governor.takeNext(now: timeOfTurn), let newcomer = waiting.popFirst() {
            let began = time
            if var storm {
                storm.longestWait = max(storm.longestWait, began - newcomer.since)
                self.storm = storm
            }
            DeviceHandshake.begin(newcomer.connection, tls: newcomer.tls, on: owner)
            governor.worked(time - began)
        }
        // Connections that wait for credit need this further turn. For connections that wait for room, `settled` requests the
        // turn.
        if governor.hasRoom { owner.loop.turnAgain() }
    }

    private func tick() {
        guard let storm, time - storm.lastSeen >= Self.calm, !isCrowded else { return }
        self.storm = nil
        owner.log.write(
            .info, .stormEnded,
            [
                .loop: LogValue(owner.index), .waited: LogValue(storm.waitedCount),
                .sentAway: LogValue(storm.sentAwayCount),
                .milliseconds: LogValue((storm.lastSeen - storm.began) / 1_000_000),
                .longestWaitMilliseconds: LogValue(storm.longestWait / 1_000_000),
            ])
    }

    private func note(_ now: Int64, _ change: (inout Storm) -> Void) {
        if storm == nil {
            let begins = governor.expectedWait >= min(Self.stormWait, governor.rules.patience)
            guard begins else { return }
            storm = Storm(began: now, lastSeen: now)
            owner.log.write(
                .warning, .stormBegan,
                [
                    .loop: LogValue(owner.index), .count: LogValue(governor.waitingCount),
                    .milliseconds: LogValue(governor.expectedWait / 1_000_000),
                ])
        }
        storm?.lastSeen = now
        if var storm {
            change(&storm)
            self.storm = storm
        }
    }

    private var timeOfTurn: Int64 {
        if let turnTime, turnOfTime == owner.loop.now { return turnTime }
        let now = time
        (turnTime, turnOfTime) = (now, owner.loop.now)
        return now
    }

    /// The loop's clock in nanoseconds; it is constant within a turn if a test steps the loop.
    private var time: Int64 { owner.loop.preciseNow }
}
