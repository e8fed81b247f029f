internal import Cluster
internal import Cryptography
internal import MessageStore
internal import Platform

/// Runs a gateway's membership on a thread of its own: renews the lease, feeds what happens to `Membership`, and has its
/// actions carried out.
///
/// The register is asked on this thread only, and may take seconds when Redis is away; nothing else waits for it.
final class MembershipRunner: @unchecked Sendable {
    // Sound because `inbox` and `shown` are behind locks, and everything else is the thread's own.

    /// Carries actions out; called on the runner's thread.
    struct Outlet: Sendable {
        var seat: @Sendable (_ part: Int, _ epoch: UInt64) -> Void
        var unseat: @Sendable (_ part: Int, _ epoch: UInt64) -> Void
        var route: @Sendable (_ part: Int, NodeID?) -> Void
        var link: @Sendable ([NodeID: String]) -> Void
        var renumber: @Sendable (NodeID) -> Void
        var members: @Sendable ([NodeID: MemberInfo]) -> Void
        /// Of each snapshot, the same one many times.
        var history: @Sendable (ClusterHistory) -> Void
        var nudge: @Sendable (NodeID) -> Void
        var tell: @Sendable (MembershipEvent) -> Void
        var failed: @Sendable (RegisterError) -> Void
        /// Gateway time, which the register keeps the maximum of.
        var clock: @Sendable () -> Int64
    }

    /// What pages and commands show.
    struct View: Sendable {
        var node: NodeID
        var snapshot: RegisterSnapshot
        var clockFloor: Int64 = 0
        /// Monotonic milliseconds of the last renewal that succeeded.
        var renewedAt: Int64
        var failure: RegisterError?
        var hasLeft = false
        /// Parts that are open here.
        var openParts: [Int] = []
        var seatCount = 0
        /// As it was after the last step.
        var membership: Membership
        /// Round trips of renewals that succeeded.
        var registerTimes = MetricHistogram()
        var registerFailures = 0
        /// This machine's clock less the server's, in milliseconds.
        var clockOffset: Int64 = 0
        /// A gateway time in the register that cannot be right.
        var refusedClock: Int64?
    }

    private struct Inbox {
        var inputs: [MembershipInput] = []
        var wishes: [(wish: RegisterRequest, done: @Sendable (RegisterError?) -> Void)] = []
        var losses: [@Sendable (_ isRenewed: Bool) -> Void] = []
        var isNudged = false
        var isStopping = false
    }

    private let register: any ClusterRegister
    private let outlet: Outlet
    private let constants: ClusterConstants
    private let pause: @Sendable (UInt64) -> Void
    private let inbox = Monitor(Inbox())
    private let shown: Lock<View>
    private var membership: Membership
    /// Callers that wait for another history, since Redis has lost durable entries.
    private var losses: [@Sendable (_ isRenewed: Bool) -> Void] = []
    private var thread: JoinableThread?

    init(
        _ register: any ClusterRegister, joined: JoinReply, instance: UInt64, info: MemberInfo, sentAt: Int64,
        outlet: Outlet, pause: @escaping @Sendable (UInt64) -> Void = { Pause.milliseconds($0) }
    ) {
        (self.register, self.outlet, self.pause, constants) = (register, outlet, pause, joined.constants)
        membership = Membership(
            joined, instance: instance, info: info, sentAt: sentAt, now: SystemClock.monotonicTime)
        shown = Lock(
            View(
                node: joined.node, snapshot: joined.snapshot, clockFloor: joined.snapshot.soundClockFloor,
                renewedAt: sentAt, membership: membership))
    }

    var view: View { shown.withLock { $0 } }

    func start() throws(SystemError) {
        thread = try JoinableThread(named: "membership") { [unowned self] in run() }
    }

    /// Something happened; from any thread.
    func take(_ input: MembershipInput) { inbox.broadcast { $0.inputs.append(input) } }

    /// Another gateway changed the register: looks at it now.
    func nudge() { inbox.broadcast { $0.isNudged = true } }

    /// Redis has lost what was durable: the register gets another history of the store, as soon as it answers.
    ///
    /// - Parameter done: called on the runner's thread once the history is in force here; with false when the runner ends.
    func renewHistory(_ done: @escaping @Sendable (_ isRenewed: Bool) -> Void) {
        let isOver = inbox.broadcast { inbox in
            if !inbox.isStopping { inbox.losses.append(done) }
            return inbox.isStopping
        }
        if isOver { done(false) }
    }

    /// Writes an operator's wish; `done` runs on the runner's thread.
    func wish(_ wish: RegisterRequest, done: @escaping @Sendable (RegisterError?) -> Void) {
        inbox.broadcast { $0.wishes.append((wish, done)) }
    }

    /// Ends the thread; the lease runs out by itself unless the node has left.
    func stop() {
        inbox.broadcast { $0.isStopping = true }
        thread?.join()
        thread = nil
    }

    private func run() {
        while true {
            let wait = max(0, membership.nextRenewal() - SystemClock.monotonicTime)
            var round = Inbox()
            inbox.wait(
                atMostMilliseconds: UInt64(wait),
                while: {
                    $0.inputs.isEmpty && $0.wishes.isEmpty && $0.losses.isEmpty && !$0.isNudged && !$0.isStopping
                }
            ) { inbox in
                round = inbox
                (inbox.inputs, inbox.wishes, inbox.losses, inbox.isNudged) = ([], [], [], false)
            }
            losses += round.losses
            if round.isStopping {
                for done in losses { done(false) }
                for (_, done) in round.wishes { done(.unavailable("the gateway is stopping")) }
                return
            }
            for input in round.inputs { feed(input) }
            for (wish, done) in round.wishes {
                do throws(RegisterError) {
                    try register.wish(wish)
                    done(nil)
                } catch { done(error) }
            }
            let isDue = SystemClock.monotonicTime >= membership.nextRenewal()
            if !membership.hasLeft, isDue || round.isNudged || !round.wishes.isEmpty || !round.losses.isEmpty {
                renew()
            }
            if !losses.isEmpty { beginHistory() }
            if round.inputs.isEmpty { feed(.tick) }
            show()
        }
    }

    /// Takes an input, and the inputs that its actions lead to at once.
    private func feed(_ input: MembershipInput) {
        var inputs = [input]
        while !inputs.isEmpty {
            let actions = membership.take(inputs.removeFirst(), now: SystemClock.monotonicTime)
            for action in actions { if let next = perform(action) { inputs.append(next) } }
        }
    }

    private func perform(_ action: MembershipAction) -> MembershipInput? {
        switch action {
        case .seat(let part, let epoch): outlet.seat(part, epoch)
        case .unseat(let part, let epoch): outlet.unseat(part, epoch)
        case .route(let part, let node): outlet.route(part, node)
        case .link(let addresses): outlet.link(addresses)
        case .nudge(let node): outlet.nudge(node)
        case .tell(let event): outlet.tell(event)
        case .change(let changes):
            do throws(RegisterError) {
                let entries = try register.change(membership.node, instance: membership.instance, changes)
                return .changed(changes, entries)
            } catch {
                note(error)
                return .changeFailed(changes)
            }
        case .expire(let node, let leaseEnd):
            // A failure costs time: the lease ends by itself.
            do throws(RegisterError) { try register.expire(node, leaseEnd: leaseEnd) } catch { note(error) }
        case .leave:
            do throws(RegisterError) {
                try register.leave(membership.node, instance: membership.instance)
            } catch { note(error) }
            shown.withLock { $0.hasLeft = true }
        }
        return nil
    }

    /// Renews the lease; returns whether what the register has is in force here.
    @discardableResult
    private func renew() -> Bool {
        let sentAt = SystemClock.monotonicTime
        let (wall, began) = (ClockCheck.now(), SystemClock.monotonicNanoseconds)
        do throws(RegisterError) {
            let reply = try register.renew(
                membership.node, instance: membership.instance, info: membership.info, clock: outlet.clock(),
                seen: membership.seenVersion)
            let serverTime =
                switch reply {
                case .unchanged(let time, _): time
                case .changed(let snapshot, _): snapshot.serverTime
                }
            let time = (SystemClock.monotonicNanoseconds - began) / 1_000
            shown.withLock { view in
                view.failure = nil
                view.registerTimes.observe(Int64(time))
                view.clockOffset = ClockCheck.offset(
                    before: wall, after: ClockCheck.now(), server: serverTime)
            }
            switch reply {
            case .unchanged(let serverTime, let floor):
                take(clockFloor: floor, serverTime: serverTime)
                feed(.unchanged(serverTime: serverTime, sentAt: sentAt))
            case .changed(let snapshot, let isRecreated):
                take(clockFloor: snapshot.clockFloor, serverTime: serverTime)
                outlet.members(snapshot.members.mapValues(\.info))
                outlet.history(snapshot.history)
                feed(.snapshot(snapshot, isRecreated: isRecreated, sentAt: sentAt))
            }
            return true
        } catch {
            note(error)
            if case .replaced = error {
                rejoin()
            } else {
                // The register is away: asked again soon, but not at once.
                pause(Self.failurePause)
            }
            return false
        }
    }

    /// Has the register begin another history, while it answers: the lease comes first.
    private func beginHistory() {
        guard shown.withLock({ $0.failure == nil }) else { return }
        do throws(RegisterError) {
            try register.renewHistory(id: SecureRandom.word())
        } catch { return note(error) }
        // A renewal puts the history in force here; a gateway that has left must not renew. If it fails, another history begins.
        guard membership.hasLeft || renew() else { return }
        for done in losses { done(true) }
        losses = []
    }

    private static let failurePause: UInt64 = 100

    private func take(clockFloor: Int64, serverTime: Int64) {
        let sound = RegisterSnapshot.soundClockFloor(clockFloor, serverTime: serverTime)
        shown.withLock { view in
            view.clockFloor = max(view.clockFloor, sound)
            view.refusedClock = sound == clockFloor ? nil : clockFloor
        }
    }

    /// The register lost this node's join, and gave its number to another: the node takes another one.
    private func rejoin() {
        let sentAt = SystemClock.monotonicTime
        do throws(RegisterError) {
            let reply = try register.join(
                JoinRequest(instance: membership.instance, info: membership.info, constants: constants))
            for (part, seat) in membership.seats { outlet.unseat(part, seat.epoch) }
            outlet.renumber(reply.node)
            membership = Membership(
                reply, instance: membership.instance, info: membership.info, sentAt: sentAt,
                now: SystemClock.monotonicTime)
        } catch {
            note(error)
            pause(Self.failurePause)
        }
    }

    private func note(_ error: RegisterError) {
        let isNew = shown.withLock { view in
            defer { view.failure = error }
            view.registerFailures += 1
            return view.failure != error
        }
        if isNew { outlet.failed(error) }
    }

    private func show() {
        shown.withLock { view in
            (view.node, view.snapshot, view.renewedAt) = (membership.node, membership.view, membership.renewedAt)
            view.membership = membership
            view.openParts = membership.seats.filter { $0.value.phase == .open }.keys.sorted()
            view.seatCount = membership.seats.count
        }
    }
}

extension SystemClock {
    /// Monotonic milliseconds as the membership counts them.
    static var monotonicTime: Int64 { Int64(monotonicMilliseconds) }
}
