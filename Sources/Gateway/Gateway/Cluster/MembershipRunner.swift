internal import Cluster
internal import Cryptography
internal import MessageStore
internal import Platform

/// Runs a gateway's membership on a dedicated thread: renews the lease, passes inputs to `Membership`, and runs its actions.
///
/// While the runner is active, no other thread uses `register`. A call may take seconds while Redis is down, so other threads
/// pass their requests to the `inbox`.
final class MembershipRunner: @unchecked Sendable {
    // Sound because `inbox` and `shown` are behind locks, and only the runner's thread accesses everything else.

    /// The callbacks that run the actions, called on the runner's thread.
    struct Outlet: Sendable {
        var seat: @Sendable (_ part: Int, _ epoch: UInt64) -> Void
        var unseat: @Sendable (_ part: Int, _ epoch: UInt64) -> Void
        var route: @Sendable (_ part: Int, NodeID?) -> Void
        var link: @Sendable ([NodeID: String]) -> Void
        var renumber: @Sendable (NodeID) -> Void
        var members: @Sendable ([NodeID: MemberInfo]) -> Void
        /// Called for each snapshot, even if the history is unchanged.
        var history: @Sendable (ClusterHistory) -> Void
        var nudge: @Sendable (NodeID) -> Void
        var tell: @Sendable (MembershipEvent) -> Void
        var failed: @Sendable (RegisterError) -> Void
        /// Returns the gateway time; the register keeps the maximum of all gateways.
        var clock: @Sendable () -> Int64
    }

    struct View: Sendable {
        var node: NodeID
        var snapshot: RegisterSnapshot
        var clockFloor: Int64 = 0
        /// The last successful renewal, in monotonic milliseconds.
        var renewedAt: Int64
        var failure: RegisterError?
        var hasLeft = false
        var openParts: [Int] = []
        var seatCount = 0
        var membership: Membership
        /// Round trips of successful renewals, in microseconds.
        var registerTimes = MetricHistogram()
        var registerFailures = 0
        /// This machine's clock minus the server's, in milliseconds.
        var clockOffset: Int64 = 0
        /// The register's gateway time, if it is implausible.
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
    /// Callers that wait for a new history after Redis lost durable entries.
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

    /// Queues an input; can be called from any thread.
    func take(_ input: MembershipInput) { inbox.broadcast { $0.inputs.append(input) } }

    /// Reads the register now, because another gateway changed it.
    func nudge() { inbox.broadcast { $0.isNudged = true } }

    /// Begins a new history in the register after Redis lost durable entries, with retries until the register answers.
    ///
    /// - Parameter done: Called on the runner's thread once this gateway uses the new history, or with false if the runner ends.
    func renewHistory(_ done: @escaping @Sendable (_ isRenewed: Bool) -> Void) {
        let isOver = inbox.broadcast { inbox in
            if !inbox.isStopping { inbox.losses.append(done) }
            return inbox.isStopping
        }
        if isOver { done(false) }
    }

    /// Writes an operator's request to the register; `done` runs on the runner's thread.
    func wish(_ wish: RegisterRequest, done: @escaping @Sendable (RegisterError?) -> Void) {
        inbox.broadcast { $0.wishes.append((wish, done)) }
    }

    /// Ends the thread; the lease expires unless the node has left before.
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

    /// Passes an input to `membership`, then the inputs that result from its actions.
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
            // A failure only delays the takeover until the lease expires.
            do throws(RegisterError) { try register.expire(node, leaseEnd: leaseEnd) } catch { note(error) }
        case .leave:
            do throws(RegisterError) {
                try register.leave(membership.node, instance: membership.instance)
            } catch { note(error) }
            shown.withLock { $0.hasLeft = true }
        }
        return nil
    }

    /// Renews the lease; returns whether the renewal succeeded.
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
                // The register is down: the pause limits the rate of retries.
                pause(Self.failurePause)
            }
            return false
        }
    }

    /// Begins a new history, but only while the register answers, because the lease renewal has priority.
    private func beginHistory() {
        guard shown.withLock({ $0.failure == nil }) else { return }
        do throws(RegisterError) {
            try register.renewHistory(id: SecureRandom.word())
        } catch { return note(error) }
        // A renewal applies the new history here, but a gateway that has left must not renew. If the renewal fails, a retry
        // begins another history.
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

    /// Joins again after the register lost this node's entry and assigned its number to another process.
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
    static var monotonicTime: Int64 { Int64(monotonicMilliseconds) }
}
