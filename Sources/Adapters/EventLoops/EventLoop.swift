// EventLoops: libevent in Swift (loop, timeouts, mailbox, listener, byte stream, HTTP server); it knows no message.
internal import CLibevent
internal import Cryptography
internal import Glibc
package import Platform
internal import Structures
internal import Synchronization

/// One thread, one `event_base`, and everything that is registered with it.
///
/// A turn is: wait for events and run their callbacks; hand out what was put off (ends of streams, further reads, newcomers);
/// the hooks `beforeFlush`; one write per stream that has something to say; the hooks `afterFlush`.
///
/// The thread that makes the loop owns it until `start()`, and the one that joins it afterwards, so that a loop may be
/// furnished before it runs.
package final class EventLoop: @unchecked Sendable {
    // Sound because `submitted` and `thread` are locks, the flags are Atomics, and everything else is touched only by
    // the owner.

    /// When in a turn a hook runs.
    package enum TurnEnd: Sendable {
        /// After all callbacks: the place to hand batches to the committer and to fill outboxes.
        case beforeFlush
        /// After the outboxes were written.
        case afterFlush
    }

    package let index: Int
    package let name: String

    let base: OpaquePointer
    /// What the loop's streams share; a struct behind a pointer, since class properties pay for each access.
    let streams: UnsafeMutablePointer<StreamTable>

    /// The loop's thread has a descriptor table of its own: a number from elsewhere means nothing on it.
    package let hasOwnTable: Bool
    package let passage: DescriptorPassage?
    private let wakeup: Wakeup
    private let owner: Atomic<UInt>
    private let isArmed = Atomic<Bool>(false)
    private let isStopping = Atomic<Bool>(false)
    private let isRunning = Atomic<Bool>(false)
    private let wakeupTally = Atomic<UInt64>(0)
    /// Connections passed to this loop so far.
    ///
    /// A socket carries them, which the memory model knows nothing of: this counter is what makes a passenger's fields,
    /// written by one thread, readable by the other.
    private let passedCount = Atomic<UInt64>(0)
    private let submitted = Lock<[Work]>([])
    private var spareWork: [Work] = []

    /// In a struct, since an array of bare closures would allocate a wrapper for each.
    private struct Work: Sendable {
        let run: @Sendable () -> Void
    }
    private let thread = Lock<Thread?>(nil)

    private var wakeEvent: UnsafeMutablePointer<event>?
    private var tickEvent: UnsafeMutablePointer<event>?
    private var cachedNow: UInt64 = 0
    /// The caller of `step` drives this loop with its own clock and ticks.
    private var isStepped = false
    private var beforeFlush: [() -> Void] = []
    private var afterFlush: [() -> Void] = []
    private var tickHooks: [(UInt64) -> Void] = []
    private var standstillHooks: [(UInt64) -> Void] = []
    private var standstill = Standstill()
    private var stopHooks: [() -> Void] = []
    private var mailboxes: [MailboxBase] = []
    private var residents: [Resident] = []
    private var passageEvent: UnsafeMutablePointer<event>?
    private var arrived: (DetachedConnection?, any Sendable) -> Void = { _, _ in }
    private var sockets: Set<CInt> = []
    /// Made when `turnAgain(in:)` is first asked for, on the loop's thread.
    private var pause: OneShotTimer?
    private var isTornDown = false
    private var mustTurnAgain = false

    /// Time that went into the TLS handshakes of this loop's streams.
    package var handshakeNanoseconds: Int64 {
        preconditionInLoop()
        return streams.pointee.handshakeNanoseconds
    }

    /// Whether there is time for one more newcomer in this turn; asked before each one is read.
    ///
    /// One without time waits, oldest first, and with it all newcomers that come later. Nothing makes a turn for those who
    /// wait: the owner of this answer asks for one. Sessions' events are not asked for.
    package var mayReadNewcomer: () -> Bool = { true }

    /// Newcomers that have something to read and wait; those who left meanwhile are among them.
    package var waitingNewcomerCount: Int {
        preconditionInLoop()
        return streams.pointee.newcomers.count
    }

    /// What the handshakes of HTTP servers and other gated streams pass from now on.
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

    /// Has the outcome of each TLS handshake told that a client began here.
    package func onHandshake(_ hook: @escaping (HandshakeEvent) -> Void) {
        preconditionInLoop()
        streams.pointee.onHandshake = hook
    }

    /// Makes a loop that does not run yet; throws when the system is out of descriptors or memory.
    ///
    /// From the first one on the process ignores SIGPIPE: OpenSSL writes with calls that raise it, and a peer
    /// that left must be an error there, not the end of the process.
    ///
    /// With `hasOwnTable` the loop's thread takes a descriptor table of its own when it starts, and with it a limit of
    /// open files of its own. Then connections come from other loops through `pass(_:with:)` only.
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
        // Without it, for want of address space, all works the same.
        _ = EventMemory.isInstalled
        guard let configuration = event_config_new() else { return nil }
        defer { event_config_free(configuration) }
        // No locks: other threads never call into the base, they wake it. The environment must not change the poller.
        // No precise timers: those cost a system call for each wait, and all we ask for is a tick of 50 ms.
        let flags = EVENT_BASE_FLAG_NOLOCK.rawValue | EVENT_BASE_FLAG_IGNORE_ENV.rawValue
        event_config_set_flag(configuration, CInt(flags))
        // Edges for the streams, and the early sign of a peer's end that tells a short read from the last one.
        event_config_require_features(configuration, CInt(EV_FEATURE_ET.rawValue | EV_FEATURE_EARLY_CLOSE.rawValue))
        return event_base_new_with_config(configuration)
    }

    fileprivate static func from(_ context: UnsafeMutableRawPointer?) -> EventLoop {
        guard let context else { preconditionFailure("libevent lost the context pointer") }
        return Unmanaged<EventLoop>.fromOpaque(context).takeUnretainedValue()
    }

    // MARK: Start and stop

    /// Runs the loop on a thread of its own, named after it.
    ///
    /// With a table of its own, `passages` are those of all loops of its kind; the loop's listening sockets are closed
    /// in the caller's table as soon as the loop's has them.
    package func start(sendingThrough passages: [DescriptorPassage] = []) throws(SystemError) {
        preconditionInLoop()
        precondition(!isTornDown && !isRunning.load(ordering: .relaxed), "an event loop starts once")
        isRunning.store(true, ordering: .relaxed)
        // Nobody's until the new thread takes it.
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
            // An open copy would be given connections that nobody accepts.
            for socket in sockets where socket != passage?.receiving { Glibc.close(socket) }
        } catch {
            owner.store(Thread.currentIdentifier, ordering: .relaxed)
            isRunning.store(false, ordering: .relaxed)
            throw error
        }
    }

    /// Asks the loop to end after its turn: hooks of `onStop`, then listeners, servers and streams are closed.
    ///
    /// From any thread, any number of times. A loop that was never started is closed at once.
    package func stop() {
        if isRunning.load(ordering: .relaxed) {
            isStopping.store(true, ordering: .releasing)
            wake()
        } else if isInLoop {
            tearDown()
        }
    }

    /// Whether some stream has bytes that its peer's machine has not acknowledged; on the loop.
    ///
    /// Ending the loop then may lose them.
    package var isSending: Bool {
        preconditionInLoop()
        return streams.pointee.isSending()
    }

    /// Streams that may wait for their peer's end after `closeAfterFlush`, each with its descriptor; beyond it the longest
    /// waiting one ends at once.
    ///
    /// Set before the loop starts, or on the loop.
    package var closingStreamLimit = Int.max

    /// As `Limits` has it; for tests.
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
        while !isStopping.load(ordering: .acquiring) { turn() }
        tearDown()
        owner.store(0, ordering: .relaxed)
    }

    private func turn() {
        cachedNow = 0
        // Work was put off: look for events, but do not wait for one.
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

    /// Makes the calling thread the owner of a loop that does not run; nobody else uses it meanwhile.
    package func takeOver() {
        precondition(!isRunning.load(ordering: .relaxed), "a running loop keeps its thread")
        owner.store(Thread.currentIdentifier, ordering: .relaxed)
    }

    /// Runs one turn on the caller's thread with what is there already: for a test that is the clock and waits itself.
    ///
    /// - Parameters:
    ///   - now: the loop's time from here on, in milliseconds; it does not fall.
    ///   - isTick: runs the hooks of `onTick` and the streams' timeouts first, which nothing else does from now on.
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
            // Lets libevent run the finalizers of its own objects.
            event_base_loop(base, CInt(EVLOOP_NONBLOCK))
            guard streams.pointee.hasDeferredWork else { break }
            round += 1
        }
        StreamTable.endBudget(on: self)
        for mailbox in mailboxes { mailbox.loopStops() }
        // The hooks hold what was wired to this loop; letting go of them ends those cycles.
        (mailboxes, stopHooks, tickHooks, standstillHooks, beforeFlush, afterFlush) = ([], [], [], [], [], [])
        mayReadNewcomer = { true }
        arrived = { _, _ in }
    }

    // MARK: Connections from other loops

    /// Sets who takes connections that other loops pass, with what they gave along; to be called before `start`.
    ///
    /// `nil` stands for a connection that was lost on the way, because this loop's table is full.
    package func onArrival(_ arrived: @escaping (DetachedConnection?, any Sendable) -> Void) { self.arrived = arrived }

    /// Passes a connection to this loop, from the thread of another one, whichever tables the two have.
    ///
    /// - Returns: false when the loop is too far behind; the connection is closed then.
    package func pass(_ connection: DetachedConnection, with cargo: any Sendable) -> Bool {
        guard let passage else { preconditionFailure("only a loop with a table of its own has a passage") }
        let content = connection.take()
        // The kernel copies the descriptor when it is sent; this thread's own is of no use after that.
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
            // Sent by `pass` above with the reference that is taken over here.
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

    /// Remembers a listening socket, so that no other table keeps a copy of it.
    func own(_ socket: CInt) { sockets.insert(socket) }

    // MARK: Confinement

    package var isInLoop: Bool { owner.load(ordering: .relaxed) == Thread.currentIdentifier }

    /// Traps unless the caller is on the loop's thread: one relaxed load, cheap enough for every entry point.
    package func preconditionInLoop() { precondition(isInLoop, "called off its event loop") }

    /// Runs `work` on the loop, in the order of submission; from any thread.
    ///
    /// Not bounded: for the control plane. Work that is submitted after the loop has ended is dropped.
    package func submit(_ work: @escaping @Sendable () -> Void) {
        submitted.withLock { $0.append(Work(run: work)) }
        wake()
    }

    /// How often another thread had to wake the loop; for metrics and tests.
    package var wakeupCount: UInt64 { wakeupTally.load(ordering: .relaxed) }

    /// Ends the loop's sleep: one system call, however many senders call before the loop looks.
    func wake() {
        // Acquire and release: a sender's queue change comes before this exchange, and `takeMail` resets the flag
        // before it looks into the queues, so a message is either seen there or finds the flag down and signals.
        guard !isArmed.exchange(true, ordering: .acquiringAndReleasing) else { return }
        wakeupTally.wrappingAdd(1, ordering: .relaxed)
        wakeup.signal()
    }

    private func takeMail() {
        wakeup.clear()
        _ = isArmed.exchange(false, ordering: .acquiringAndReleasing)
        // The two arrays change places, so that neither is made anew for each wake-up. Moved out of the property first:
        // an item may end this loop, which looks at its mail again.
        var work: [Work] = []
        swap(&work, &spareWork)
        submitted.withLock { swap(&$0, &work) }
        for item in work { item.run() }
        work.removeAll(keepingCapacity: work.count < Limits.keptWorkCount)
        swap(&work, &spareWork)
        for mailbox in mailboxes { mailbox.deliver() }
    }

    // MARK: Time

    /// Monotonic milliseconds, read at most once a turn.
    package var now: UInt64 {
        preconditionInLoop()
        if cachedNow == 0 { cachedNow = SystemClock.monotonicMilliseconds }
        return cachedNow
    }

    /// Monotonic nanoseconds, read anew with each call; a loop that is stepped has the time of its turn.
    package var preciseNow: Int64 {
        Int64(isStepped ? cachedNow * 1_000_000 : SystemClock.monotonicNanoseconds)
    }

    /// CPU time of the loop's thread in nanoseconds, read anew with each call; none for a loop that is stepped.
    package var threadTime: Int64 { isStepped ? 0 : Int64(SystemClock.threadNanoseconds) }

    /// The next turn follows this one at once, whether or not there are events.
    package func turnAgain() {
        preconditionInLoop()
        mustTurnAgain = true
    }

    /// A turn comes after this many nanoseconds at the latest, unless an earlier call's time is not over; at once if there is no timer.
    package func turnAgain(in nanoseconds: Int64) {
        preconditionInLoop()
        guard !isStepped, !isTornDown, let pause = pause ?? OneShotTimer(on: base) else { return turnAgain() }
        self.pause = pause
        pause.begin(nanoseconds)
    }

    private func tick() {
        if !isStepped {
            let verdict = standstill.judge(
                now: SystemClock.boottimeMilliseconds, eventCount: streams.pointee.eventCount,
                hasDeferredWork: streams.pointee.hasDeferredWork)
            switch verdict {
            case .onTime: break
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

    /// Runs `hook` in every turn at the given point, after those added before it.
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

    /// Runs `hook` with the milliseconds for which the loop stood still, before the loop reads its sockets.
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

    /// Open streams that do not merely wait for their peer's end.
    package var servingStreamCount: Int {
        preconditionInLoop()
        return streams.pointee.openCount - streams.pointee.closingCount
    }

    /// Open streams on this loop.
    package var streamCount: Int {
        preconditionInLoop()
        return streams.pointee.openCount
    }
}

/// What belongs to a loop and must be closed with it.
package class Resident {
    func loopStops() { preconditionFailure("override loopStops()") }
}

/// What travels with a descriptor from one loop's table to another's.
private final class Passenger {
    let content: DetachedConnection.Content
    let peer: SocketAddress?
    let cargo: any Sendable

    init(_ content: DetachedConnection.Content, peer: SocketAddress?, cargo: any Sendable) {
        (self.content, self.peer, self.cargo) = (content, peer, cargo)
    }
}
