package import Cluster
internal import TestKit

/// A cluster in one thread from one seed: gateways, the register, the partitions' logs, and devices as counts.
///
/// Each gateway runs the real `Membership` as `MembershipRunner` does: one register call at a time, with reports in between.
/// Devices reconnect as the client does: full jitter from one second, doubled with each failure.
package final class ClusterWorld {
    package struct Settings: Sendable {
        package var partCount = 16
        package var timing = ClusterTiming()
        /// The one-way latency between a gateway and the register, in milliseconds.
        package var latency: ClosedRange<Int64> = 0...2
        /// The timeout of a register call, in milliseconds.
        package var registerTimeout: Int64 = 500
        /// The milliseconds from `seat` to `opened`, and from `unseat` to `closed`.
        package var opening: ClosedRange<Int64> = 20...80
        package var closing: ClosedRange<Int64> = 5...20
        /// The milliseconds from a process's end until its peers notice.
        package var linkBreak: ClosedRange<Int64> = 1...30
        /// The number of devices that one gateway can admit per 10 ms.
        package var acceptsPerTick = 200
        package var deviceCount = 0
        /// The retry window for a device without an owner, in milliseconds; `nil`: the device doubles its backoff after each
        /// refusal.
        package var refusedWindow: ClosedRange<Int64>? = 1_000...1_500
        /// The server time of a register call, and of each member and partition in a snapshot, in microseconds.
        ///
        /// Calls are served one at a time.
        package var callCost: Int64 = 0
        package var snapshotCost: Int64 = 0
        /// The probability, per mille, that a call's reply is lost although the call was executed.
        package var lostReplies = 0
        package init() {}
    }

    enum Event {
        case turn(gateway: Int, process: Int)
        case callArrives(gateway: Int, process: Int, Call, isReplyLost: Bool)
        case callEnds(gateway: Int, process: Int, Call, Reply)
        case report(gateway: Int, process: Int, MembershipInput)
        case opens(gateway: Int, process: Int, part: Int, epoch: UInt64)
        case closes(gateway: Int, process: Int, part: Int, epoch: UInt64)
        case devices(part: Int, count: Int, attempt: Int)
        case admit(gateway: Int)
        case act(Int)
    }

    enum Call {
        case join
        case renew(sentAt: Int64)
        case change([PartChange])
        case expire(NodeID, leaseEnd: Int64)
        case leave
    }

    enum Reply {
        case joined(JoinReply, sentAt: Int64)
        case renewed(RenewReply)
        case changed([PartEntry])
        case done
        case failed
        case replaced
    }

    package struct Gateway {
        package internal(set) var process = 0
        package internal(set) var isRunning = false
        package internal(set) var isPaused = false
        /// Whether the gateway cannot reach the register, the logs and its peers.
        package internal(set) var isCutOff = false
        package internal(set) var membership: Membership?
        var info = MemberInfo()
        var instance: UInt64 = 0
        var inbox: [MembershipInput] = []
        var calls: [Call] = []
        var isCalling = false
        var nextTurn: Int64 = .max
        var isLeaving = false
        /// The epochs of the partitions that the gateway serves.
        package internal(set) var open: [Int: UInt64] = [:]
        /// The number of connected devices by partition.
        package internal(set) var devices: [Int: Int] = [:]
        var waiting: [(part: Int, count: Int, attempt: Int)] = []
        package internal(set) var hasLeft = false
    }

    package let settings: Settings
    package private(set) var now: Int64 = 1_000_000
    package internal(set) var gateways: [Gateway] = []
    package internal(set) var register: RegisterState
    /// The highest epoch in each partition's log.
    package internal(set) var logs: [UInt64]
    package internal(set) var isRegisterUp = true
    /// Pairs of running gateways whose link a firewall blocks.
    var refusedPairs: Set<[Int]> = []
    /// The register before its last change, for a failover that loses the change.
    var earlierRegister: RegisterState
    var random: SeededGenerator
    private var queue = TimeQueue<Event>()
    private var actions: [() -> Void] = []
    var nonce: UInt64 = 0
    private var opened: Set<[UInt64]> = []

    /// The first violation; the results of the run are void after it.
    package private(set) var violation: String?
    package private(set) var eventCount = 0
    package private(set) var registerCallCount = 0
    package private(set) var snapshotCount = 0
    package private(set) var snapshotBytes = 0
    /// The time at which the register's server has served all calls, in microseconds.
    private var registerFreeAt: Int64 = 0
    /// The longest time that a call queued, in milliseconds.
    package internal(set) var longestWait: Int64 = 0
    /// The busy time of the register's server, in microseconds.
    package private(set) var registerWork: Int64 = 0
    /// The calls in the current 100 ms, and the maximum over all such windows.
    private var recent = (window: Int64(0), count: 0)
    package internal(set) var mostCalls = 0
    private var snapshotSize = (version: UInt64(0), byteCount: 0)
    package internal(set) var tally = Tally()

    /// Events of partitions and devices since `resetTally`.
    package struct Tally: Sendable {
        package var takenByFailure = 0
        package var handedOver = 0
        package var lost = 0
        package var corrected = 0
        package var epochsTaken = 0
        package var expired = 0
        package var lapses = 0
        package var replaced = 0
        package var reconnected = 0
        package var refusedAttempts = 0
        package var lastServed: Int64 = 0
        /// The time at which a partition was last opened.
        package var lastChange: Int64 = 0
        package var longestGift = 0
    }

    package init(seed: UInt64, gatewayCount: Int, _ settings: Settings = Settings()) {
        self.settings = settings
        random = SeededGenerator(seed: seed)
        register = RegisterState(timing: settings.timing)
        earlierRegister = register
        logs = Array(repeating: 0, count: settings.partCount)
        gateways = (0..<gatewayCount).map { index in
            var gateway = Gateway()
            gateway.info.address = "g\(index):1"
            return gateway
        }
    }

    // MARK: Running

    /// Runs all events up to `time`.
    package func run(until time: Int64) {
        while violation == nil, let next = queue.nextTime, next <= time, let event = queue.popFirst() {
            now = max(now, next)
            eventCount += 1
            perform(event)
        }
        now = max(now, time)
    }

    package func run(for milliseconds: Int64) { run(until: now + milliseconds) }

    /// Runs `count` more events; returns false if fewer are due before `time`.
    package func run(events count: Int, until time: Int64) -> Bool {
        for _ in 0..<count {
            guard violation == nil, let next = queue.nextTime, next <= time, let event = queue.popFirst() else {
                return false
            }
            now = max(now, next)
            eventCount += 1
            perform(event)
        }
        return true
    }

    /// Runs until the condition holds; returns `nil` on timeout.
    package func run(atMost milliseconds: Int64, until condition: () -> Bool) -> Int64? {
        let start = now
        while violation == nil {
            if condition() { return now - start }
            guard let next = queue.nextTime, next <= start + milliseconds, let event = queue.popFirst() else { break }
            now = max(now, next)
            eventCount += 1
            perform(event)
        }
        return condition() ? now - start : nil
    }

    package func at(_ time: Int64, _ action: @escaping () -> Void) {
        actions.append(action)
        queue.add(.act(actions.count - 1), at: time)
    }

    package func fail(_ text: String) { if violation == nil { violation = "at \(now): \(text)" } }
    func add(_ event: Event, after milliseconds: Int64) { queue.add(event, at: now + milliseconds) }
    func draw(_ range: ClosedRange<Int64>) -> Int64 { Int64.random(in: range, using: &random) }

    private func perform(_ event: Event) {
        switch event {
        case .turn(let index, let process):
            guard isCurrent(index, process) else { return }
            if gateways[index].isPaused { return add(event, after: 20) }
            guard now >= gateways[index].nextTurn else { return }
            gateways[index].nextTurn = .max
            take(index, .tick)
            if !gateways[index].isCalling, gateways[index].calls.isEmpty {
                gateways[index].calls = [.renew(sentAt: now)]
            }
            proceed(index)
        case .report(let index, let process, let input):
            guard isCurrent(index, process) else { return }
            if gateways[index].isPaused { return add(event, after: 20) }
            if gateways[index].isCalling {
                gateways[index].inbox.append(input)
            } else {
                take(index, input)
                proceed(index)
            }
        case .callArrives(let index, let process, let call, let isReplyLost):
            let reply = carryOut(index, process, call)
            let delay = serve(reply)
            if isReplyLost || delay > settings.registerTimeout {
                add(.callEnds(gateway: index, process: process, call, .failed), after: settings.registerTimeout)
            } else {
                add(.callEnds(gateway: index, process: process, call, reply), after: delay + draw(settings.latency))
            }
        case .callEnds(let index, let process, let call, let reply):
            guard isCurrent(index, process) else { return }
            if gateways[index].isPaused { return add(event, after: 20) }
            end(index, call, reply)
        case .opens(let index, let process, let part, let epoch):
            guard isCurrent(index, process) else { return }
            if gateways[index].isPaused { return add(event, after: 20) }
            finishOpening(index, part, epoch)
        case .closes(let index, let process, let part, let epoch):
            guard isCurrent(index, process) else { return }
            if gateways[index].isPaused { return add(event, after: 20) }
            report(index, .closed(part: part, epoch: epoch), after: 0)
        case .devices(let part, let count, let attempt): arrive(part, count, attempt)
        case .admit(let index): admit(index)
        case .act(let number): actions[number]()
        }
    }

    func isCurrent(_ index: Int, _ process: Int) -> Bool {
        gateways[index].isRunning && gateways[index].process == process
    }

    func report(_ index: Int, _ input: MembershipInput, after milliseconds: Int64) {
        add(.report(gateway: index, process: gateways[index].process, input), after: milliseconds)
    }

    // MARK: The membership's thread

    func startCalling(_ index: Int, _ calls: [Call]) {
        gateways[index].calls += calls
        proceed(index)
    }

    private func take(_ index: Int, _ input: MembershipInput) {
        // Removed from the array during the call, so that it changes in place.
        guard var membership = gateways[index].membership.take() else { return }
        let actions = membership.take(input, now: now)
        gateways[index].membership = membership
        for action in actions { perform(action, index) }
    }

    /// Sends the next call, or schedules the next turn.
    private func proceed(_ index: Int) {
        guard gateways[index].isRunning, !gateways[index].isCalling else { return }
        guard !gateways[index].calls.isEmpty else {
            guard let membership = gateways[index].membership, !gateways[index].hasLeft else { return }
            let next = max(now, membership.nextRenewal())
            gateways[index].nextTurn = next
            return add(.turn(gateway: index, process: gateways[index].process), after: next - now)
        }
        let call = gateways[index].calls.removeFirst()
        gateways[index].isCalling = true
        registerCallCount += 1
        let process = gateways[index].process
        if gateways[index].isCutOff || !isRegisterUp {
            return add(.callEnds(gateway: index, process: process, call, .failed), after: settings.registerTimeout)
        }
        let isLost = settings.lostReplies > 0 && draw(0...999) < settings.lostReplies
        add(
            .callArrives(gateway: index, process: process, call, isReplyLost: isLost),
            after: draw(settings.latency))
    }

    /// Executes a call at the register, even if its process has ended since.
    private func carryOut(_ index: Int, _ process: Int, _ call: Call) -> Reply {
        guard isRegisterUp, !gateways[index].isCutOff else { return .failed }
        nonce += 1
        let before = register
        let gateway = gateways[index]
        var changesSomething = true
        defer { if changesSomething { earlierRegister = before } }
        do throws(RegisterError) {
            if case .join = call {
                let constants = ClusterConstants(
                    format: 1, partCount: settings.partCount, tokenKey: [], queueEpoch: 1)
                return .joined(
                    try register.join(
                        JoinRequest(instance: gateway.instance, info: gateway.info, constants: constants), now: now,
                        nonce: nonce), sentAt: now)
            }
            guard gateway.process == process, let membership = gateway.membership else { return .failed }
            switch call {
            case .renew:
                changesSomething = false
                let reply = try register.renew(
                    membership.node, instance: membership.instance, info: membership.info, clock: now,
                    seen: membership.seenVersion, now: now, nonce: nonce)
                if case .changed = reply { snapshotCount += 1 }
                return .renewed(reply)
            case .change(let changes):
                return .changed(
                    try register.change(
                        membership.node, instance: membership.instance, changes, now: now, nonce: nonce))
            case .expire(let node, let leaseEnd):
                register.expire(node, leaseEnd: leaseEnd, now: now, nonce: nonce)
                return .done
            case .leave:
                try register.leave(membership.node, instance: membership.instance, now: now, nonce: nonce)
                return .done
            case .join: return .failed
            }
        } catch {
            return error == .replaced ? .replaced : .failed
        }
    }

    /// Queues a call at the register's server; returns the milliseconds until it is served.
    private func serve(_ reply: Reply) -> Int64 {
        let window = now / 100
        recent = recent.window == window ? (window, recent.count + 1) : (window, 1)
        mostCalls = max(mostCalls, recent.count)
        var cost = settings.callCost
        switch reply {
        case .joined(let joined, _): cost += note(joined.snapshot)
        case .renewed(.changed(let snapshot, _)): cost += note(snapshot)
        default: break
        }
        registerWork += cost
        registerFreeAt = max(registerFreeAt, now * 1_000) + cost
        let delay = (registerFreeAt - now * 1_000) / 1_000
        longestWait = max(longestWait, delay)
        return delay
    }

    /// Counts the bytes of a snapshot in Redis's encoding; returns the cost of building it, in microseconds.
    private func note(_ snapshot: RegisterSnapshot) -> Int64 {
        if snapshotSize.version != snapshot.version {
            var byteCount = 120
            // RESP puts a length line before each text: `$NN`.
            for (node, member) in snapshot.members {
                byteCount += 2 * ("\(node)".utf8.count + 6) + member.info.text.utf8.count + 60
            }
            for (part, entry) in snapshot.entries.enumerated() { byteCount += "\(part)\(entry.text)".utf8.count + 12 }
            snapshotSize = (snapshot.version, byteCount)
        }
        snapshotBytes += snapshotSize.byteCount
        return settings.snapshotCost * Int64(snapshot.members.count + snapshot.entries.count)
    }

    private func end(_ index: Int, _ call: Call, _ reply: Reply) {
        gateways[index].isCalling = false
        if case .replaced = reply {
            // The register lost this gateway's join and reassigned its number. The gateway drops everything and joins again.
            tally.replaced += 1
            end(index)
            return start(index)
        }
        switch (call, reply) {
        case (.join, .joined(let joined, let sentAt)):
            gateways[index].membership = Membership(
                joined, instance: gateways[index].instance, info: gateways[index].info, timing: settings.timing,
                sentAt: sentAt, now: now)
            gateways[index].calls = [.renew(sentAt: now)]
        case (.join, _): gateways[index].calls = [.join]
        case (.renew(let sentAt), .renewed(.unchanged(let serverTime, _))):
            take(index, .unchanged(serverTime: serverTime, sentAt: sentAt))
        case (.renew(let sentAt), .renewed(.changed(let snapshot, let isRecreated))):
            take(index, .snapshot(snapshot, isRecreated: isRecreated, sentAt: sentAt))
        case (.renew, _): if gateways[index].calls.isEmpty { gateways[index].calls = [.renew(sentAt: now)] }
        case (.change(let changes), .changed(let entries)): take(index, .changed(changes, entries))
        case (.change(let changes), _): take(index, .changeFailed(changes))
        case (.expire, _): take(index, .tick)
        case (.leave, _): end(index)
        }
        for input in gateways[index].inbox {
            gateways[index].inbox.removeFirst()
            take(index, input)
        }
        proceed(index)
    }

    private func perform(_ action: MembershipAction, _ index: Int) {
        switch action {
        case .seat(let part, let epoch): startOpening(index, part, epoch)
        case .unseat(let part, let epoch):
            // Devices receive a Close. The partition is closed once its log is closed.
            leaveDevices(index, part, attempt: 0)
            gateways[index].open[part] = nil
            add(
                .closes(gateway: index, process: gateways[index].process, part: part, epoch: epoch),
                after: draw(settings.closing))
        case .route, .link: break
        case .change(let changes): gateways[index].calls.append(.change(changes))
        case .expire(let node, let leaseEnd): gateways[index].calls.append(.expire(node, leaseEnd: leaseEnd))
        case .nudge(let node):
            for peer in gateways.indices where gateways[peer].membership?.node == node && gateways[peer].isRunning {
                guard !gateways[peer].isCutOff, !gateways[index].isCutOff else { continue }
                gateways[peer].nextTurn = min(gateways[peer].nextTurn, now + 1)
                add(.turn(gateway: peer, process: gateways[peer].process), after: 1)
            }
        case .leave: gateways[index].calls.append(.leave)
        case .tell(let event): count(event, index)
        }
    }

    private func count(_ event: MembershipEvent, _ index: Int) {
        switch event {
        case .partTaken(_, _, _, let wasPlanned):
            if wasPlanned { tally.handedOver += 1 } else { tally.takenByFailure += 1 }
        case .partLost: tally.lost += 1
        case .registerCorrected: tally.corrected += 1
        case .epochTaken: tally.epochsTaken += 1
        case .memberExpired: tally.expired += 1
        case .leaseLapsed: tally.lapses += 1
        case .memberJoined, .memberLeft, .partGiven, .openFailed, .left: break
        }
        guard let membership = gateways[index].membership else { return }
        let gifts = membership.seats.values.count {
            if case .closing(_, isGift: true) = $0.phase { true } else { false }
        }
        tally.longestGift = max(tally.longestGift, gifts)
    }

    // MARK: Logs

    private func startOpening(_ index: Int, _ part: Int, _ epoch: UInt64) {
        let process = gateways[index].process
        if gateways[index].isCutOff {
            return report(index, .openFailed(part: part, epoch: epoch), after: settings.registerTimeout)
        }
        guard logs[part] < epoch else {
            return report(index, .epochTaken(part: part, epoch: epoch, top: logs[part]), after: 1)
        }
        guard opened.insert([UInt64(part), epoch]).inserted else {
            return fail("part \(part) was fenced twice under epoch \(epoch)")
        }
        logs[part] = epoch
        // A previous owner that can still write learns of the loss with its next write.
        for other in gateways.indices where other != index { tellLost(other, part) }
        add(.opens(gateway: index, process: process, part: part, epoch: epoch), after: draw(settings.opening))
    }

    func tellLost(_ index: Int, _ part: Int) {
        guard gateways[index].isRunning, let epoch = gateways[index].open[part], epoch < logs[part],
            !gateways[index].isCutOff
        else { return }
        report(index, .lost(part: part, epoch: epoch), after: draw(0...300))
    }

    private func finishOpening(_ index: Int, _ part: Int, _ epoch: UInt64) {
        guard logs[part] == epoch else {
            return report(index, .epochTaken(part: part, epoch: epoch, top: logs[part]), after: 0)
        }
        gateways[index].open[part] = epoch
        tally.lastChange = now
        report(index, .opened(part: part, epoch: epoch), after: 0)
    }
}

/// A queue of future events, ordered by time, then by insertion.
struct TimeQueue<Event> {
    private var heap: [(time: Int64, order: UInt64, event: Event)] = []
    private var order: UInt64 = 0

    var nextTime: Int64? { heap.first?.time }

    private func comesBefore(_ left: Int, _ right: Int) -> Bool {
        (heap[left].time, heap[left].order) < (heap[right].time, heap[right].order)
    }

    mutating func add(_ event: Event, at time: Int64) {
        order += 1
        heap.append((time, order, event))
        var index = heap.count - 1
        while index > 0, comesBefore(index, (index - 1) / 2) {
            heap.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    mutating func popFirst() -> Event? {
        guard let last = heap.indices.last else { return nil }
        heap.swapAt(0, last)
        let first = heap.removeLast()
        var index = 0
        while true {
            var least = index
            for child in [2 * index + 1, 2 * index + 2] where child < heap.count && comesBefore(child, least) {
                least = child
            }
            if least == index { return first.event }
            heap.swapAt(index, least)
            index = least
        }
    }
}
