internal import Cryptography
internal import Glibc
internal import Platform
internal import Wire
internal import Synchronization

/// One thread of the generator, with a poller, devices, senders and HTTP connections.
///
/// A worker publishes to its own devices only. It shares no data with other threads while it runs, needs no locks, and keeps a
/// message's due time, answer and delivery in one ledger.
struct Worker: ~Copyable {
    enum Kind: UInt64 { case device = 0, sender, http, admin }

    let plan: WorkerPlan
    let coordinator: Coordinator
    let context: TLSContext?
    var poller: Poller
    // `var`, because the compiler emits invalid code for a `let` pointer under the thread sanitizer (`TimerWheel.heads`).
    var devices: UnsafeMutablePointer<DeviceConnection>
    let deviceCount: Int
    var senders: UnsafeMutablePointer<SenderConnection>
    let senderCount: Int
    var https: UnsafeMutablePointer<HTTPConnection>
    let httpCount: Int
    var admins: UnsafeMutablePointer<AdminConnection>
    let adminCount: Int
    let scratch: UnsafeMutableRawPointer
    /// The buffer that reassembles frames from WebSocket messages.
    let messages: UnsafeMutableRawPointer

    var tally = WorkerTally()
    var ledger = MessageLedger()
    var outgoing: PublishTemplate
    /// The buffer for encoding an Ack without an allocation.
    var frame: [UInt8] = []
    var request: HTTPRequestTemplate
    var broadcast: BroadcastRequest
    var random: UInt64

    var opening = 0
    var nextDevice: Int
    var again: [Int] = []
    var clockOffset: Int64 = 0
    var heartbeatNanoseconds: Int64 = 0
    var nextHeartbeatAt: Int64 = 0
    var heartbeatCursor = 0

    var outstanding = 0
    var nextSender = 0
    var readySenders = 0
    var isMeasuring = false
    var cpuAtStart: Int64 = 0
    var waitsForDelivery = true
    /// Whether messages refused by a busy gateway are sent again; nothing is sent before `pausedUntil`.
    var sendsAgain = false
    var pausedUntil: Int64 = 0
    var publishesHTTP = false
    var now: Int64
    var shownConnected = 0
    var shownAccepted = 0
    var shownDelivered = 0
    var shownSettled = 0

    /// - Throws: `Poller.Failure`, or `TLSFailure` for unusable files.
    init(_ plan: WorkerPlan, _ coordinator: Coordinator) throws {
        let context = try plan.tls?.context()
        poller = try Poller()
        self.context = context
        (self.plan, self.coordinator) = (plan, coordinator)
        (deviceCount, senderCount) = (plan.devices.count, plan.senders)
        (httpCount, adminCount) = (plan.httpConnections, plan.adminConnections)
        devices = .allocate(capacity: max(1, deviceCount))
        for (index, identity) in plan.devices.enumerated() {
            (devices + index).initialize(to: DeviceConnection(identity: identity))
        }
        senders = .allocate(capacity: max(1, senderCount))
        for index in 0..<senderCount { (senders + index).initialize(to: SenderConnection()) }
        https = .allocate(capacity: max(1, httpCount))
        for index in 0..<httpCount { (https + index).initialize(to: HTTPConnection()) }
        admins = .allocate(capacity: max(1, adminCount))
        for index in 0..<adminCount { (admins + index).initialize(to: AdminConnection()) }
        scratch = .allocate(byteCount: Limits.receiveByteCount, alignment: 64)
        messages = .allocate(byteCount: Limits.receiveByteCount, alignment: 64)
        outgoing = PublishTemplate(
            payloadByteCount: plan.options.payloadByteCount, isForVendor: plan.job == .handoff)
        request = HTTPRequestTemplate(plan.credentials, token: plan.httpToken, batch: plan.options.batch)
        broadcast = BroadcastRequest(
            plan.credentials, token: plan.httpToken, payloadByteCount: plan.options.payloadByteCount)
        random = 0x9E37_79B9_7F4A_7C15 &+ UInt64(plan.index) &* 0xBF58_476D_1CE4_E5B9 | 1
        nextDevice = deviceCount
        now = Clocks.now()
    }

    deinit {
        for index in 0..<deviceCount {
            if devices[index].descriptor >= 0 { _ = close(devices[index].descriptor) }
            devices[index].input.clear()
            devices[index].output.clear()
        }
        devices.deinitialize(count: deviceCount)
        devices.deallocate()
        for index in 0..<senderCount {
            if senders[index].descriptor >= 0 { _ = close(senders[index].descriptor) }
            senders[index].input.clear()
            senders[index].buffer.deallocate()
        }
        senders.deinitialize(count: senderCount)
        senders.deallocate()
        for index in 0..<httpCount {
            if https[index].descriptor >= 0 { _ = close(https[index].descriptor) }
            https[index].input.clear()
            https[index].output.clear()
            https[index].requests.deallocate()
        }
        https.deinitialize(count: httpCount)
        https.deallocate()
        for index in 0..<adminCount {
            if admins[index].descriptor >= 0 { _ = close(admins[index].descriptor) }
            admins[index].buffer.deallocate()
        }
        admins.deinitialize(count: adminCount)
        admins.deallocate()
        scratch.deallocate()
        messages.deallocate()
    }

    mutating func run() {
        switch plan.job {
        case .register: runRegister()
        case .idle: runIdle()
        case .live: runLive()
        case .http: runHTTP()
        case .offline: runOffline()
        case .handoff: runHandoff()
        case .broadcast: runBroadcast()
        }
        tally.remainder = ledger.remainder()
        tally.devices = (0..<deviceCount).map { devices[$0].identity }
    }

    /// Runs one turn: starts handshakes, waits at most `nanoseconds` for events, handles them, and sends due Pings.
    mutating func turn(nanoseconds: Int64) {
        startHandshakes()
        let before = nanoseconds > 0 ? Clocks.now() : 0
        guard let count = try? poller.wait(nanoseconds: nanoseconds) else {
            tally.fatal = "epoll failed: \(errorText(errno))"
            return
        }
        now = Clocks.now()
        if isMeasuring { tally.waited += nanoseconds > 0 ? now - before : 0 }
        for position in 0..<count {
            let event = poller.ready(at: position)
            let index = Int(event.token & 0xFFFF_FFFF)
            switch Kind(rawValue: event.token >> 32) {
            case .device: deviceReady(index, event)
            case .sender: senderReady(index, event)
            case .http: httpReady(index, event)
            case .admin: adminReady(index, event)
            case nil: break
            }
        }
        keepAlive()
        showProgress()
    }

    /// Waits at a gate for all workers, and keeps serving the connections.
    ///
    /// - Returns: the start of the phase, or `nil` if the run is aborted.
    mutating func pass(_ phase: Coordinator.Phase) -> Int64? {
        coordinator.arrive(phase)
        while tally.fatal == nil {
            switch coordinator.gate(phase) {
            case .open(let time): return time
            case .aborted: return nil
            case .closed: turn(nanoseconds: 2_000_000)
            }
        }
        return nil
    }

    /// Returns a random index (xorshift64*), not for secrets.
    @inline(__always)
    mutating func randomIndex(below bound: Int) -> Int {
        random ^= random >> 12
        random ^= random << 25
        random ^= random >> 27
        let word = random &* 0x2545_F491_4F6C_DD1D
        return Int((word.multipliedFullWidth(by: UInt64(bound))).high)
    }

    mutating func fail(_ text: String) { tally.failures[text, default: 0] += 1 }

    mutating func showProgress() {
        Self.show(coordinator, tally.connected, &shownConnected, .connected)
        Self.show(coordinator, tally.accepted, &shownAccepted, .accepted)
        Self.show(coordinator, tally.delivered, &shownDelivered, .delivered)
        Self.show(coordinator, tally.settled, &shownSettled, .settled)
    }

    @inline(__always)
    private static func show(
        _ coordinator: Coordinator, _ value: Int, _ shown: inout Int, _ counter: Coordinator.Counter
    ) {
        guard value != shown else { return }
        coordinator.add(value - shown, to: counter)
        shown = value
    }
}

enum Payload {
    /// Returns the payload's first eight bytes: run tag (16 bits), worker (8) and number (40).
    @inline(__always)
    static func mark(runTag: UInt64, worker: Int, number: UInt64) -> UInt64 {
        runTag << 48 | UInt64(worker & 0xFF) << 40 | number & 0xFF_FFFF_FFFF
    }

    /// Returns the message's number: the payload's first eight bytes, big-endian, or the digits at the start of an HTTP body's
    /// payload.
    ///
    /// - Returns: `nil` for a payload shorter than eight bytes.
    @inline(__always)
    static func mark(of payload: UnsafeRawBufferPointer) -> UInt64? {
        guard payload.count >= 8 else { return nil }
        let prefix = HTTPRequestTemplate.payloadPrefix
        let count = prefix.utf8CodeUnitCount
        if payload[0] == prefix.utf8Start[0], payload.count >= count + 16,
            (1..<count).allSatisfy({ payload[$0] == prefix.utf8Start[$0] }),
            let number = Hex.read(payload.baseAddress! + count)
        {
            return number
        }
        return UInt64(bigEndian: payload.loadUnaligned(as: UInt64.self))
    }

    /// The start of a handoff message's alert, which the lease parser searches for; the number follows it.
    static let alertPrefix: StaticString = "longwire bench "
}

enum Frames {
    /// Returns the complete frame at `offset` and advances it, or `nil` while the frame is incomplete.
    ///
    /// - Throws: an error for an invalid frame header.
    @inline(__always)
    static func next(
        in bytes: UnsafeRawBufferPointer, from offset: inout Int
    ) throws(FrameHeader.ParseError) -> (header: FrameHeader, body: UnsafeRawBufferPointer)? {
        let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
        guard let header = try FrameHeader(parsing: rest.bytes, bodyLimit: Limits.frameBodyByteCount),
            header.bodyByteCount <= rest.count - FrameHeader.byteCount
        else { return nil }
        offset += FrameHeader.byteCount + header.bodyByteCount
        return (header, UnsafeRawBufferPointer(rebasing: rest[FrameHeader.byteCount...].prefix(header.bodyByteCount)))
    }
}
