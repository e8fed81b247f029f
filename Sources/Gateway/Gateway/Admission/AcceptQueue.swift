internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import Structures
internal import Wire

/// Newcomers of one event loop: devices that have connected and are not taken up yet, as `AdmissionController` decides.
///
/// Confined to its event loop. One that waits is an open descriptor and nothing else: no stream, no TLS.
final class AcceptQueue {
    private struct Newcomer {
        let connection: DetachedConnection
        let tls: TLSContext?
        let since: Int64
    }

    /// A storm as the log tells it.
    private struct Storm {
        let began: Int64
        var lastSeen: Int64
        var waitedCount = 0
        var sentAwayCount = 0
        var longestWait: Int64 = 0
    }

    // Stays as long as the event loop does.
    private unowned(unsafe) let owner: EventLoopHost
    private var governor = AdmissionController()
    private var waiting = Ring<Newcomer>()
    private var storm: Storm?
    private var handshakeWork: Int64 = 0
    private var isCharging = false
    /// The time as the governor is told it, the same throughout a turn; `nil`: not read yet in this one.
    ///
    /// A clock that went on would pay, within the turn, for the time that newcomers take of it, and the turn would have room for all
    /// that come.
    private var turnTime: Int64?
    /// The loop's time of the turn that `turnTime` was read in; something after `turnEnds` may have read it.
    private var turnOfTime: UInt64 = 0

    /// Newcomers who wait so long are a storm, and worth a line in the log.
    private static let stormWait: Int64 = 250_000_000
    /// A storm is over when none has waited or was sent away for so long.
    private static let calm: Int64 = 2_000_000_000

    init(_ owner: EventLoopHost) {
        self.owner = owner
        reload()
        owner.loop.mayReadNewcomer = { [self] in mayRead }
        owner.loop.onTurnEnd(.beforeFlush) { [self] in turnEnds() }
        owner.loop.onTick { [self] _ in tick() }
        // A descriptor of a loop with a table of its own is closed on its thread.
        owner.loop.onStop { [self] in waiting.removeAll() }
    }

    /// Those who wait to be taken up: no streams yet.
    var waitingCount: Int { waiting.count }
    /// The same, and those whose streams wait to be read.
    var unheardCount: Int { waiting.count + owner.loop.waitingNewcomerCount }
    /// What a newcomer costs, in nanoseconds.
    var cost: Int64 { governor.cost }

    /// New limits are in force.
    func reload() {
        let limits = owner.limits
        governor.rules = AdmissionController.Rules(
            slice: limits.welcomeSliceMicroseconds * 1_000, patience: limits.welcomeWaitMilliseconds * 1_000_000)
    }

    // MARK: Newcomers

    /// Whether the turn has time to read what another one has sent that was taken up.
    private var mayRead: Bool { governor.mayRead(besides: owner.loop.handshakeNanoseconds - handshakeWork) }

    /// Lets a connection in that the listener has taken: now, later, or not.
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

    /// When one is to come back whose Hello another gateway has read; `nil`: it is welcome.
    func windowForRelayed() -> (UInt32, UInt32)? {
        let now = time
        guard case .comeBack(let least, let most) = governor.arriveWithHello(now: timeOfTurn) else { return nil }
        owner.metrics.count(.newcomersSentAway)
        note(now) { $0.sentAwayCount += 1 }
        return (least, most)
    }

    /// What `work` does for newcomers is charged to them.
    func charge<Result>(_ work: () -> Result) -> Result {
        // A Welcome may be part of the work for its Hello.
        guard !isCharging else { return work() }
        isCharging = true
        let began = time
        defer {
            governor.worked(time - began)
            isCharging = false
        }
        return work()
    }

    /// The handshake of one that was taken up is over.
    func finished() { governor.finished() }

    /// A Hello is with its shard.
    func began() { governor.began() }

    /// Its Welcome is out, or there will be none.
    func settled() {
        governor.settled()
        if isCrowded { owner.loop.turnAgain() }
    }

    /// How many more Hellos may wait for stores that stand still; below zero, how many are too many.
    var standingRoom: Int { governor.standingRoom - owner.standingHelloCount }

    private var isCrowded: Bool { !waiting.isEmpty || owner.loop.waitingNewcomerCount > 0 }

    /// Sends away all who wait: the gateway stops, or empties itself.
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
        // Without room the next Welcome makes a turn; for those who wait for time nothing else does.
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

    /// Nanoseconds of the loop's clock; they stand still within a turn of a loop that is stepped.
    private var time: Int64 { owner.loop.preciseNow }
}
