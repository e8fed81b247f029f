// libevent in Swift: loops, timeouts, mailboxes, listeners, byte streams and an HTTP server, without knowledge of messages.
internal import CLibevent
internal import Cryptography
internal import Glibc
package import Platform
internal import Structures
internal import Synchronization

/// A thread, its `event_base` and everything registered with it.
///
/// A turn has these steps: wait for events and run their callbacks; process deferred work (ends of streams, further reads,
/// newcomers); run the hooks `beforeFlush`; write once per stream with output; run the hooks `afterFlush`.
///
/// The creating thread owns the loop until `start()`, and the joining thread owns it after `join()`. A loop can therefore be
/// configured before it runs.
package final class EventLoop: @unchecked Sendable {
    // Safe: `submitted` and `thread` are locks, the flags are atomics, and only the owner accesses everything else.

    package enum TurnEnd: Sendable {
        /// After all callbacks: the point to submit batches to the committer and to fill outboxes.
        case beforeFlush
        case afterFlush
    }

    package let index: Int
    package let name: String

    let base: OpaquePointer
    /// The shared state of the loop's streams; a struct behind a pointer avoids the cost of accessing class properties.
    let streams: UnsafeMutablePointer<StreamTable>

    /// Whether the loop's thread has a private descriptor table, in which descriptors of other threads are invalid.
    package let hasOwnTable: Bool
    package let passage: DescriptorPassage?
    private let wakeup: Wakeup
    private let owner: Atomic<UInt>
    private let isArmed = Atomic<Bool>(false)
    private let isStopping = Atomic<Bool>(false)
    private let isRunning = Atomic<Bool>(false)
    private let wakeupTally = Atomic<UInt64>(0)
    /// The number of connections passed to this loop.
    ///
    /// A connection is passed through a socket, which establishes no memory ordering. This counter orders the sender's writes
    /// before the receiver's reads.
    private let passedCount = Atomic<UInt64>(0)
    private let submitted = Lock<[Work]>([])
    private var spareWork: [Work] = []

    /// A closure in a struct: an array of closures would allocate a wrapper for each.
    private struct Work: Sendable {
        let run: @Sendable () -> Void
    }
    private let thread = Lock<Thread?>(nil)

    private var wakeEvent: UnsafeMutablePointer<event>?
    private var tickEvent: UnsafeMutablePointer<event>?
    private var cachedNow: UInt64 = 0
    /// Whether the caller of `step` drives this loop with its own clock and ticks.
    private var isStepped = false
    private var beforeFlush: [() -> Void] = []
    private var afterFlush: [() -> Void] = []
    private var tickHooks: [(UInt64) -> Void] = []
    private var standstillHooks: [(UInt64) -> Void] = []
    /// `nil` until the loop's thread starts.
    private var standstill: Standstill?
    private var stopHooks: [() -> Void] = []
    private var mailboxes: [MailboxBase] = []
    private var residents: [Resident] = []
    private var passageEvent: UnsafeMutablePointer<event>?
    private var arrived: (DetachedConnection?, any Sendable) -> Void = { _, _ in }
    private var sockets: Set<CInt> = []
    /// Created by the first call of `turnAgain(in:)`, on the loop's thread.
    private var pause: OneShotTimer?
    private var isTornDown = false
    private var mustTurnAgain = false

    package var handshakeNanoseconds: Int64 {
        preconditionInLoop()
        return streams.pointee.handshakeNanoseconds
    }

    /// Returns whether there is time to read another newcomer in this turn.
    ///
    /// Called before each newcomer is read, but not for events of sessions. If the result is `false`, this newcomer and all later
    /// ones are queued. The queue itself causes no further turn: the owner of this closure must request one.
    package var mayReadNewcomer: () -> Bool = { true }

    /// The number of queued newcomers, including those that have disconnected since.
    package var waitingNewcomerCount: Int {
        preconditionInLoop()
        return streams.pointee.newcomers.count
    }

    /// The gate for new handshakes of HTTP servers and other gated streams.
    package var handshakeGate: HandshakeGate? {
        get {
            preconditionInLoop()
            return streams.pointee.gate
        }
        set {
            preconditionInLoop()
            streams.pointee.gate = newValue
        }
    }

    /// Sets the hook that receives the outcome of each TLS handshake on the server side.
    package func onHandshake(_ hook: @escaping (HandshakeEvent) -> Void) {
        preconditionInLoop()
        streams.pointee.onHandshake = hook
    }

    /// Creates a loop that does not run yet; throws when the system is out of descriptors or memory.
    ///
    /// The first loop makes the process ignore SIGPIPE: OpenSSL's writes raise it, but a disconnected peer must only cause an
    /// error. With `hasOwnTable` the loop's thread gets a private descriptor table with a separate limit of open files.
    /// Connections from other loops then arrive through `pass(_:with:)` only.
    package init(index: Int, name: String? = nil, hasOwnTable: Bool = false) throws(SystemError) {
        signal(SIGPIPE, SIG_IGN)
        self.index = index
        self.hasOwnTable = hasOwnTable
        passage = hasOwnTable ? try DescriptorPassage() : nil
        self.name = name ?? "loop-\(index)"
        wakeup = try Wakeup()
        guard let base = Self.makeBase() else { throw SystemError(operation: "event_base_new", code: ENOMEM) }
        self.base = base
        streams = .allocate(capacity: 1)
        owner = Atomic(Thread.currentIdentifier)
        streams.initialize(to: StreamTable(of: self, now: SystemClock.monotonicMilliseconds))
        let context = Unmanaged.passUnretained(self).toOpaque()
        wakeEvent = event_new(
            base, wakeup.descriptor, Int16(EV_READ | EV_PERSIST),
            { _, _, context in EventLoop.from(context).takeMail() }, context)
        tickEvent = event_new(base, -1, Int16(EV_PERSIST), { _, _, context in EventLoop.from(context).tick() }, context)
        var interval = timeval(tv_sec: 0, tv_usec: Int(Limits.tickMilliseconds) * 1000)
        guard let wakeEvent, let tickEvent, event_add(wakeEvent, nil) == 0, event_add(tickEvent, &interval) == 0 else {
            throw SystemError(operation: "event_add", code: ENOMEM)
        }
        guard let passage else { return }
        sockets = [passage.receiving]
        passageEvent = event_new(
            base, passage.receiving, Int16(EV_READ | EV_PERSIST),
            { _, _, context in EventLoop.from(context).takePassengers(limit: Limits.acceptBatchCount) }, context)
        guard let passageEvent, event_add(passageEvent, nil) == 0 else {
            throw SystemError(operation: "event_add", code: ENOMEM)
        }
    }

    deinit {
        precondition(!isRunning.load(ordering: .relaxed), "an event loop died while it ran")
        if let wakeEvent { event_free(wakeEvent) }
        if let tickEvent { event_free(tickEvent) }
        if let passageEvent { event_free(passageEvent) }
        event_base_free(base)
        streams.pointee.deallocate()
        streams.deinitialize(count: 1)
        streams.deallocate()
    }

    private static func makeBase() -> OpaquePointer? {
        // Optional: without the reserved address space libevent uses malloc.
        _ = EventMemory.isInstalled
        guard let configuration = event_config_new() else { return nil }
        defer { event_config_free(configuration) }
        // No locks: other threads never call into the base, they only wake it. Environment variables must not change the poller.
        // No precise timers: they cost a system call per wait, and the loop needs only a tick of 50 ms.
        let flags = EVENT_BASE_FLAG_NOLOCK.rawValue | EVENT_BASE_FLAG_IGNORE_ENV.rawValue
        event_config_set_flag(configuration, CInt(flags))
        // Edge-triggered events for the streams, and EV_CLOSED to distinguish a short read from the peer's end.
        event_config_require_features(configuration, CInt(EV_FEATURE_ET.rawValue | EV_FEATURE_EARLY_CLOSE.rawValue))
        return event_base_new_with_config(configuration)
    }

    fileprivate static func from(_ context: UnsafeMutableRawPointer?) -> EventLoop {
        guard let context else { preconditionFailure("libevent lost the context pointer") }
        return Unmanaged<EventLoop>.fromOpaque(context).takeUnretainedValue()
    }

    // MARK: Start and stop

    /// Runs the loop on a new thread with the loop's name.
    ///
    /// With a private table, `passages` are the passages of all loops with private tables. The caller's copies of the loop's
    /// listening sockets are closed as soon as the loop's table has them.
    package func start(sendingThrough passages: [DescriptorPassage] = []) throws(SystemError) {
        preconditionInLoop()
        precondition(!isTornDown && !isRunning.load(ordering: .relaxed), "an event loop starts once")
        isRunning.store(true, ordering: .relaxed)
        // No owner until the new thread takes the loop.
        owner.store(0, ordering: .relaxed)
        do throws(SystemError) {
            guard hasOwnTable else {
                var started: Thread? = try Thread(named: name) { self.run() }
                thread.withLock { swap(&$0, &started) }
                return
            }
            let kept = sockets.union(passages.map(\.sending))
            let outcome = Monitor<Result<Void, SystemError>?>(nil)
            var started: Thread? = try Thread(named: name) {
                do throws(SystemError) {
                    try DescriptorTable.makePrivate(keepingSockets: kept)
                } catch {
                    return outcome.broadcast { $0 = .failure(error) }
                }
                outcome.broadcast { $0 = .success(()) }
                self.run()
            }
            let result = outcome.wait(while: { $0 == nil }, then: { $0 })
            if case .failure(let error)? = result {
                started.take()?.join()
                throw error
            }
            thread.withLock { swap(&$0, &started) }
            // An open copy would receive connections that are never accepted.
            for socket in sockets where socket != passage?.receiving { Glibc.close(socket) }
        } catch {
            owner.store(Thread.currentIdentifier, ordering: .relaxed)
            isRunning.store(false, ordering: .relaxed)
            throw error
        }
    }

    /// Requests the end of the loop after its turn: runs the hooks of `onStop`, then closes listeners, servers and streams.
    ///
    /// May be called from any thread, any number of times. A loop that was never started is closed immediately.
    package func stop() {
        if isRunning.load(ordering: .relaxed) {
            isStopping.store(true, ordering: .releasing)
            wake()
        } else if isInLoop {
            tearDown()
        }
    }

    /// Whether any stream has bytes that the peer's kernel has not acknowledged and that an end of the loop may lose.
    package var isSending: Bool {
        preconditionInLoop()
        return streams.pointee.isSending()
    }

    /// The maximum number of streams that wait for their peer's end after `closeAfterFlush`; above it the stream with the longest
    /// wait is closed.
    package var closingStreamLimit = Int.max

    var webSocketQuietMilliseconds = Limits.webSocketQuietMilliseconds

    /// Waits for the end of the loop's thread; the caller owns the loop afterwards.
    package func join() {
        precondition(!isInLoop || !isRunning.load(ordering: .relaxed), "a loop cannot join itself")
        guard let thread = thread.withLock({ $0.take() }) else { return }
        thread.join()
        owner.store(Thread.currentIdentifier, ordering: .relaxed)
        isRunning.store(false, ordering: .relaxed)
    }

    private func run() {
        owner.store(Thread.currentIdentifier, ordering: .relaxed)
        standstill = Standstill(startedAt: SystemClock.boottimeMilliseconds)
        while !isStopping.load(ordering: .acquiring) { turn() }
        tearDown()
        owner.store(0, ordering: .relaxed)
    }

    private func turn() {
        cachedNow = 0
        // Deferred work is pending, so the poll must not block.
        let flags = EVLOOP_ONCE | (streams.pointee.hasDeferredWork || mustTurnAgain ? EVLOOP_NONBLOCK : 0)
        mustTurnAgain = false
        finishTurn(event_base_loop(base, CInt(flags)))
    }

    private func finishTurn(_ result: CInt) {
        precondition(result >= 0, "libevent's poller failed")
        StreamTable.runDeferred(on: self)
        StreamTable.readNewcomers(on: self)
        for hook in beforeFlush { hook() }
        StreamTable.flushDirty(on: self)
        StreamTable.settleBudget(on: self)
        for hook in afterFlush { hook() }
    }

    /// Makes the calling thread the owner of a loop that does not run; no other thread may use the loop during the call.
    package func takeOver() {
        precondition(!isRunning.load(ordering: .relaxed), "a running loop keeps its thread")
        owner.store(Thread.currentIdentifier, ordering: .relaxed)
    }

    /// Runs one turn on the caller's thread without waiting for events, for tests that control the clock.
    ///
    /// - Parameters:
    ///   - now: the loop's time in milliseconds, which must not decrease.
    ///   - isTick: whether to first run the hooks of `onTick` and the streams' timeouts, which no longer run automatically.
    package func step(at now: UInt64, isTick: Bool) {
        preconditionInLoop()
        precondition(!isRunning.load(ordering: .relaxed) && !isTornDown, "a loop that runs steps itself")
        if !isStepped, let tickEvent { event_del(tickEvent) }
        isStepped = true
        cachedNow = now
        if isTick { tick() }
        finishTurn(event_base_loop(base, CInt(EVLOOP_ONCE | EVLOOP_NONBLOCK)))
    }

    private func tearDown() {
        guard !isTornDown else { return }
        isTornDown = true
        pause = nil
        if !isStepped { cachedNow = 0 }
        takeMail()
        takePassengers(limit: .max)
        for hook in stopHooks { hook() }
        StreamTable.flushDirty(on: self)
        for resident in residents { resident.loopStops() }
        residents = []
        var round = 0
        while round < Limits.stopRoundCount {
            StreamTable.finishAll(on: self)
            takeMail()
            // libevent runs the finalizers of its objects here.
            event_base_loop(base, CInt(EVLOOP_NONBLOCK))
            guard streams.pointee.hasDeferredWork else { break }
            round += 1
        }
        StreamTable.endBudget(on: self)
        for mailbox in mailboxes { mailbox.loopStops() }
        // Releasing the hooks breaks the reference cycles with the objects that use this loop.
        (mailboxes, stopHooks, tickHooks, standstillHooks, beforeFlush, afterFlush) = ([], [], [], [], [], [])
        mayReadNewcomer = { true }
        arrived = { _, _ in }
    }

    // MARK: Connections from other loops

    /// Sets the handler of connections passed by other loops, before `start`; the connection is `nil` if the descriptor table is
    /// full.
    package func onArrival(_ arrived: @escaping (DetachedConnection?, any Sendable) -> Void) { self.arrived = arrived }

    /// Passes a connection to this loop from the thread of another loop, even between different descriptor tables.
    ///
    /// - Returns: `false` when the loop's queue is full. The connection is closed then.
    package func pass(_ connection: DetachedConnection, with cargo: any Sendable) -> Bool {
        guard let passage else { preconditionFailure("only a loop with a separate table has a passage") }
        let content = connection.take()
        // The kernel copies the descriptor when it is sent, so this thread's descriptor is closed.
        defer { Glibc.close(content.descriptor) }
        let passenger = Unmanaged.passRetained(Passenger(content, peer: connection.peer, cargo: cargo))
        passedCount.add(1, ordering: .releasing)
        if passage.send(UInt64(UInt(bitPattern: passenger.toOpaque())), with: content.descriptor) { return true }
        content.counted?.leave()
        passenger.release()
        return false
    }

    private func takePassengers(limit: Int) {
        guard let passage else { return }
        var count = 0
        while count < limit, let (word, descriptor) = passage.receive() {
            count += 1
            _ = passedCount.load(ordering: .acquiring)
            // The pointer comes from `pass`, and its reference is released here.
            guard let pointer = UnsafeRawPointer(bitPattern: UInt(word)) else { continue }
            let passenger = Unmanaged<Passenger>.fromOpaque(pointer).takeRetainedValue()
            guard descriptor >= 0, passenger.content.tls?.rebind(to: descriptor) ?? true else {
                if descriptor >= 0 { Glibc.close(descriptor) }
                passenger.content.counted?.leave()
                arrived(nil, passenger.cargo)
                continue
            }
            var content = passenger.content
            content.descriptor = descriptor
            arrived(DetachedConnection(content, peer: passenger.peer), passenger.cargo)
        }
    }

    /// Records a listening socket, so that copies in other tables are closed.
    func own(_ socket: CInt) { sockets.insert(socket) }

    // MARK: Confinement

    package var isInLoop: Bool { owner.load(ordering: .relaxed) == Thread.currentIdentifier }

    /// Traps unless the caller is on the loop's thread; it costs one relaxed load.
    package func preconditionInLoop() { precondition(isInLoop, "called off its event loop") }

    /// Runs `work` on the loop in submission order.
    ///
    /// May be called from any thread. The queue is unbounded, so it is only for the control plane. Work submitted after the
    /// loop's end is dropped.
    package func submit(_ work: @escaping @Sendable () -> Void) {
        submitted.withLock { $0.append(Work(run: work)) }
        wake()
    }

    package var wakeupCount: UInt64 { wakeupTally.load(ordering: .relaxed) }

    /// Wakes the loop with one system call, even if several threads call before the loop reacts.
    func wake() {
        // Acquire and release: a sender changes its queue before this exchange, and `takeMail` resets the flag before it reads
        // the queues. A message is therefore either seen there, or its sender finds the flag reset and signals.
        guard !isArmed.exchange(true, ordering: .acquiringAndReleasing) else { return }
        wakeupTally.wrappingAdd(1, ordering: .relaxed)
        wakeup.signal()
    }

    private func takeMail() {
        wakeup.clear()
        _ = isArmed.exchange(false, ordering: .acquiringAndReleasing)
        // The two arrays are swapped to reuse their memory. The array is moved out of the property first, because an item may end
        // this loop, and the end calls this function again.
        var work: [Work] = []
        swap(&work, &spareWork)
        submitted.withLock { swap(&$0, &work) }
        for item in work { item.run() }
        work.removeAll(keepingCapacity: work.count < Limits.keptWorkCount)
        swap(&work, &spareWork)
        for mailbox in mailboxes { mailbox.deliver() }
    }

    // MARK: Time

    /// The monotonic time in milliseconds, read at most once per turn.
    package var now: UInt64 {
        preconditionInLoop()
        if cachedNow == 0 { cachedNow = SystemClock.monotonicMilliseconds }
        return cachedNow
    }

    /// The monotonic time in nanoseconds, read at each call; for a stepped loop it is the time of the turn.
    package var preciseNow: Int64 {
        Int64(isStepped ? cachedNow * 1_000_000 : SystemClock.monotonicNanoseconds)
    }

    /// The CPU time of the loop's thread in nanoseconds, read at each call; it is 0 for a stepped loop.
    package var threadTime: Int64 { isStepped ? 0 : Int64(SystemClock.threadNanoseconds) }

    /// Makes the next turn start without waiting for events.
    package func turnAgain() {
        preconditionInLoop()
        mustTurnAgain = true
    }

    /// Schedules a turn after at most this delay, unless an earlier delay is running; without a timer it starts immediately.
    package func turnAgain(in nanoseconds: Int64) {
        preconditionInLoop()
        guard !isStepped, !isTornDown, let pause = pause ?? OneShotTimer(on: base) else { return turnAgain() }
        self.pause = pause
        pause.begin(nanoseconds)
    }

    private func tick() {
        if !isStepped {
            let verdict = standstill?.judge(
                now: SystemClock.boottimeMilliseconds, eventCount: streams.pointee.eventCount,
                hasDeferredWork: streams.pointee.hasDeferredWork)
            switch verdict {
            case .onTime, nil: break
            case .reading: return mustTurnAgain = true
            case .began(let milliseconds):
                for hook in standstillHooks { hook(milliseconds) }
                return mustTurnAgain = true
            }
        }
        StreamTable.fireTimeouts(on: self, now: now)
        for hook in tickHooks { hook(cachedNow) }
    }

    // MARK: Hooks

    /// Runs `hook` in every turn at the given point, after the hooks added before it.
    package func onTurnEnd(_ point: TurnEnd = .beforeFlush, _ hook: @escaping () -> Void) {
        preconditionInLoop()
        switch point {
        case .beforeFlush: beforeFlush.append(hook)
        case .afterFlush: afterFlush.append(hook)
        }
    }

    /// Runs `hook` every `Limits.tickMilliseconds` with the loop's time.
    package func onTick(_ hook: @escaping (_ now: UInt64) -> Void) {
        preconditionInLoop()
        tickHooks.append(hook)
    }

    /// Runs `hook` with the duration of a stall in milliseconds, before the loop reads its sockets.
    package func onStandstill(_ hook: @escaping (_ milliseconds: UInt64) -> Void) {
        preconditionInLoop()
        standstillHooks.append(hook)
    }

    /// Runs `hook` once when the loop stops, before its listeners, servers and streams are closed.
    package func onStop(_ hook: @escaping () -> Void) {
        preconditionInLoop()
        stopHooks.append(hook)
    }

    func add(_ mailbox: MailboxBase) {
        preconditionInLoop()
        precondition(!isTornDown, "the loop has ended")
        mailboxes.append(mailbox)
    }

    func add(_ resident: Resident) {
        preconditionInLoop()
        precondition(!isTornDown, "the loop has ended")
        residents.append(resident)
    }

    func remove(_ resident: Resident) {
        preconditionInLoop()
        residents.removeAll { $0 === resident }
    }

    /// The number of open streams, without those that only wait for their peer's end.
    package var servingStreamCount: Int {
        preconditionInLoop()
        return streams.pointee.openCount - streams.pointee.closingCount
    }

    package var streamCount: Int {
        preconditionInLoop()
        return streams.pointee.openCount
    }
}

/// An object of a loop that must be closed with it.
package class Resident {
    func loopStops() { preconditionFailure("override loopStops()") }
}

private final class Passenger {
    let content: DetachedConnection.Content
    let peer: SocketAddress?
    let cargo: any Sendable

    init(_ content: DetachedConnection.Content, peer: SocketAddress?, cargo: any Sendable) {
        (self.content, self.peer, self.cargo) = (content, peer, cargo)
    }
}
