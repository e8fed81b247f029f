internal import Delivery
internal import EventLoops
internal import Platform
internal import Structures
internal import Wire

/// The sessions of one partition's devices: 24 bytes each, no object.
///
/// A session has its slot from the moment the shard is asked about its Hello; until the Welcome is out its connection is a
/// `DeviceHandshake`. From then on its stream belongs to this one delegate, and the stream's tag is the session's slot.
final class DeviceSessions: StreamDelegate {
    private struct Record: BitwiseCopyable {
        enum Phase: UInt8 {
            case free
            /// Its handshake object waits for the Welcome.
            case opening
            case open
        }

        var stream = StreamReference.none
        /// Tells the slot's occupants apart; 20 bits, never zero.
        var stamp: UInt32 = 1
        /// What its frames may cost.
        var budget = FrameBudget()
        var phase = Phase.free
        /// Its device has closed its half and waits for what it is owed.
        var isEnding = false
        /// It has reported something that may not be durable yet.
        var hasReported = false
    }

    // Streams may outlive the partition: whatever they call finds no session then, and the partition is not touched.
    private unowned(unsafe) let owner: Partition
    /// Behind a pointer, where Swift does not check each access for overlaps.
    private let table: UnsafeMutablePointer<Table>

    private struct Table: ~Copyable {
        var records = PagedArray(repeating: Record())
        var slotCount: UInt32 = 0
        var free: [UInt32] = []
        var openings: [UInt32: DeviceHandshake] = [:]
        var hasEnded = false
    }

    init(_ owner: Partition) {
        self.owner = owner
        table = .allocate(capacity: 1)
        table.initialize(to: Table())
        super.init()
    }

    deinit {
        table.deinitialize(count: 1)
        table.deallocate()
    }

    var count: Int { Int(table.pointee.slotCount) - table.pointee.free.count }

    // MARK: Coming and going

    /// Gives a connection whose Hello is with the shard its session; `nil` when there are too many.
    func admit(_ handshake: DeviceHandshake) -> SessionRef? {
        let slot: UInt32
        if let known = table.pointee.free.popLast() {
            slot = known
        } else {
            guard table.pointee.slotCount < UInt32(Route.slotLimit) else { return nil }
            slot = table.pointee.slotCount
            table.pointee.slotCount += 1
        }
        let record = table.pointee.records.pointer(slot)
        record.pointee.phase = .opening
        (record.pointee.isEnding, record.pointee.hasReported) = (false, false)
        record.pointee.budget = FrameBudget()
        table.pointee.openings[slot] = handshake
        owner.host.welcomes.began()
        return SessionRef(slot: slot, stamp: record.pointee.stamp)
    }

    /// Sessions whose Hello is with the shard.
    var openingCount: Int { table.pointee.openings.count }

    /// Sends up to `count` of these away, to come back later.
    func sendOpeningsAway(_ count: Int) {
        guard count > 0 else { return }
        // Those who came first, as far as slots tell, stay.
        let last = table.pointee.openings.sorted { $0.key > $1.key }.prefix(count)
        for (_, handshake) in last { handshake.withdraw(.standing) }
    }

    /// Forgets a session; its slot may be another's at once.
    func remove(_ session: SessionRef) {
        guard let record = record(session) else { return }
        if record.pointee.phase == .opening {
            table.pointee.openings[session.slot] = nil
            owner.host.welcomes.settled()
        }
        let next = (session.stamp &+ 1) & 0xF_FFFF
        record.pointee.stamp = next == 0 ? 1 : next
        record.pointee.phase = .free
        record.pointee.stream = .none
        table.pointee.free.append(session.slot)
    }

    private func record(_ session: SessionRef) -> UnsafeMutablePointer<Record>? {
        guard let record = table.pointee.records.existing(session.slot), record.pointee.stamp == session.stamp,
            record.pointee.phase != .free
        else { return nil }
        return record
    }

    /// The stream of an open session.
    private func stream(of session: SessionRef) -> ByteStream? {
        guard let record = record(session), record.pointee.phase == .open else { return nil }
        return ByteStream(record.pointee.stream, on: owner.loop)
    }

    /// The address that the session's stream is counted to; 0: to none.
    func countedNetwork(of session: SessionRef) -> UInt64 { stream(of: session)?.countedNetwork ?? 0 }

    /// The session that a stream is of; `nil` when it is over already.
    private func session(of stream: ByteStream, tag: UInt32) -> SessionRef? {
        guard let record = table.pointee.records.existing(tag), record.pointee.phase == .open,
            record.pointee.stream.names(stream)
        else { return nil }
        return SessionRef(slot: tag, stamp: record.pointee.stamp)
    }

    /// The partition ends, and its sessions have ended; some of their streams may be closing still.
    func end() { table.pointee.hasEnded = true }

    /// Every session is told that it ends, and why.
    func closeAll(_ code: CloseCode = .shuttingDown, reason: StaticString = "the gateway is stopping") {
        for slot in 0..<table.pointee.slotCount {
            let record = table.pointee.records.pointer(slot)
            guard record.pointee.phase != .free else { continue }
            close(
                SessionRef(slot: slot, stamp: record.pointee.stamp), code, reason: reason)
        }
    }

    /// Tells up to `count` sessions to go, from a slot on; those that another gateway relays stay, since it has the device.
    ///
    /// - Returns: the slot to go on at, the first again behind the last; and how many were told.
    func sendAway(_ count: Int, from first: UInt32, alternate: String) -> (next: UInt32, told: Int) {
        var (slot, left, looks) = (first, count, table.pointee.slotCount)
        let refusal = Refusal.emptying(alternate)
        let frame = owner.host.closeFrame(refusal)
        while left > 0, looks > 0 {
            if slot >= table.pointee.slotCount { slot = 0 }
            looks -= 1
            defer { slot += 1 }
            let record = table.pointee.records.pointer(slot)
            let session = SessionRef(slot: slot, stamp: record.pointee.stamp)
            // One that is being opened is met again in a later round, as a session.
            guard record.pointee.phase == .open, let stream = stream(of: session), stream.peer != nil else { continue }
            _ = frame.withUnsafeBytes { stream.write($0) }
            owner.host.note(refusal)
            finish(session, .shuttingDown)
            left -= 1
        }
        return (slot, count - left)
    }

    // MARK: Input

    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int {
        // After a Close, ours or theirs, what still comes is of no interest.
        guard let session = session(of: stream, tag: stream.tag) else { return bytes.count }
        // One reference for the whole read: each use of the property would retain it anew.
        let owner = owner
        owner.heard(session)
        var offset = 0
        // What is left of them comes again with what follows.
        defer { owner.metrics.count(.bytesReceived, offset) }
        while offset < bytes.count {
            guard record(session) != nil else { return bytes.count }
            switch FrameCut(
                bytes, from: offset, bodyLimit: owner.hostCore.pointee.deviceFrameByteLimit, mustBeHello: false)
            {
            case .incomplete: return offset
            case .refused(let code, let reason):
                close(session, code, reason: reason)
                return bytes.count
            case .frame(let type, let body, let byteCount):
                offset += byteCount
                guard isWithinBudget(session, FrameBudget.cost(of: type), byteCount: body.count) else {
                    return bytes.count
                }
                do throws(WireError) {
                    try take(type, body, session, stream)
                } catch {
                    close(session, .malformed, reason: "a frame's body is no message of its type")
                }
            }
        }
        return offset
    }

    /// Takes a frame out of the session's budget; false when that is used up and the session is closed.
    private func isWithinBudget(_ session: SessionRef, _ cost: Int32, byteCount: Int = 0) -> Bool {
        guard let record = record(session) else { return false }
        if record.pointee.budget.take(cost, byteCount: byteCount, second: owner.loop.now / 1_000) { return true }
        close(session, .floods, reason: "far more frames than any client has use for")
        return false
    }

    override func receivedEmpty(_ frameCount: Int, on stream: ByteStream) {
        guard let session = session(of: stream, tag: stream.tag) else { return }
        // They say nothing of the app: a browser answers pings for a page that stands still.
        _ = isWithinBudget(session, FrameBudget.emptyFrameCost * Int32(clamping: frameCount))
    }

    private func take(
        _ type: FrameType, _ body: UnsafeRawBufferPointer, _ session: SessionRef, _ stream: ByteStream
    ) throws(WireError) {
        switch type {
        case .ack:
            let ack = try AckView(decoding: body.bytes)
            if !ack.rejected.isEmpty { record(session)?.pointee.hasReported = true }
            owner.acknowledge(session, ack)
        case .ping:
            let nonce = try Ping(decoding: body.bytes).nonce
            // A Pong confirms that all reports before its Ping are recorded.
            if let record = record(session), record.pointee.hasReported {
                guard !owner.core.pointee.shard.hasReports(session) else { return owner.ping(session, nonce: nonce) }
                record.pointee.hasReported = false
            }
            write(HeartbeatFrame.pong(nonce: nonce), to: stream)
        case .pong:
            // That it came was all that mattered.
            _ = try Pong(decoding: body.bytes)
        case .deviceUpdate:
            var update = try DeviceUpdate(decoding: body.bytes)
            guard update.tokens.isEmpty || isWithinBudget(session, FrameBudget.tokensCost) else { return }
            update.tokens.clean(&update.refusedTokens)
            owner.update(session, update)
        case .feedback:
            let feedback = try Feedback(decoding: body.bytes)
            record(session)?.pointee.hasReported = true
            guard feedback.kind != .action || isWithinBudget(session, FrameBudget.actionCost) else { return }
            owner.feedback(session, feedback)
        case .upstream:
            owner.upstream.take(try Upstream(decoding: body.bytes), of: session)
        case .close:
            _ = try Close(decoding: body.bytes)
            finish(session, .goodbye, announced: true)
        default:
            close(session, .unexpectedFrame, reason: "a device does not send this type of frame")
        }
    }

    // MARK: Output

    /// Says Welcome: from here on the session's stream is this object's.
    func welcome(_ session: SessionRef, _ effect: WelcomeEffect) {
        noteWelcome(effect.cid)
        owner.host.welcomes.charge { open(session, effect) }
    }

    private func open(_ session: SessionRef, _ effect: WelcomeEffect) {
        guard let record = record(session), record.pointee.phase == .opening,
            let handshake = table.pointee.openings[session.slot]
        else { return }
        if let app = handshake.countedApp, owner.isSurplus(of: app) {
            // The shard is told of the end once it has told of all that it has done.
            return owner.inNextTurn { member in
                handshake.withdraw(EventLoopHost.overDevices)
                member.surplusLeft(of: app)
            }
        }
        guard let stream = handshake.handOver() else { return }
        table.pointee.openings[session.slot] = nil
        owner.host.welcomes.settled()
        record.pointee.phase = .open
        record.pointee.stream = stream.reference
        stream.pass(to: self, tag: session.slot)
        send(session, effect.welcome)
        // What came behind the Hello has waited; it is looked at in the next turn.
        stream.resumeReading()
    }

    /// The device's proof was good: only now its coming counts, whether or not it is still there.
    func noteWelcome(_ cid: DeviceID) {
        let now = Int64(owner.loop.now)
        let delay = owner.context.peers.flaps.withLock { $0.welcomed(cid, now: now) }
        guard delay > 0 else { return }
        owner.metrics.count(.flappingNoted)
    }

    /// Fetches a session's record, which says where its stream is.
    func foreseeRecord(_ session: SessionRef) {
        guard let record = table.pointee.records.existing(session.slot) else { return }
        prefetch(record, byteCount: MemoryLayout<Record>.size)
    }

    override func foresee(_ tag: UInt32) {
        guard let record = table.pointee.records.existing(tag) else { return }
        prefetch(record, byteCount: MemoryLayout<Record>.size)
        if !table.pointee.hasEnded, let place = owner.core.pointee.shard.place(ofSession: tag)?.baseAddress {
            prefetch(place, byteCount: EventLoopHost.recordByteCount)
        }
    }

    /// Fetches what a send will use.
    func foreseeStream(_ session: SessionRef) { stream(of: session)?.foresee() }

    func send(_ session: SessionRef, _ effect: DeliverEffect) {
        guard let record = record(session), let stream = stream(of: session), let row = MessageRow(effect.row) else {
            return
        }
        record.pointee.budget.earn()
        if let revoked = row.revokedTask {
            var revoke = Revoke()
            (revoke.sequence, revoke.messageID, revoke.taskID) = (effect.sequence, row.messageID, row.taskID)
            revoke.revokedTaskID = revoked
            owner.metrics.count(.deliversSent)
            return send(session, revoke)
        }
        let frame = DeliverFrame(
            sequence: effect.sequence, messageID: row.messageID, taskID: row.taskID, payload: row.payload,
            isOffline: effect.isOffline, acceptedAt: UInt64(max(0, row.acceptedAt)),
            alertedAt: UInt64(max(0, effect.alertedAt)),
            attempt: effect.attempt, collapseKey: row.collapseKey, alertTitle: row.alertTitle,
            alertBody: row.alertBody, isCarriedByVendor: row.vendorCarriesAll)
        let byteCount = frame.byteCount
        _ = stream.write(byteCount: byteCount) { frame.encode(into: $0) }
        owner.metrics.count(.bytesSent, byteCount)
        owner.metrics.count(.deliversSent)
    }

    func send(_ session: SessionRef, _ effect: BroadcastEffect) {
        guard let record = record(session), let stream = stream(of: session) else { return }
        record.pointee.budget.earn()
        _ = stream.write(byteCount: effect.frame.count) { effect.write(into: $0) }
        owner.metrics.count(.bytesSent, effect.frame.count)
        owner.metrics.count(.deliversSent)
    }

    func ping(_ session: SessionRef) {
        guard let stream = stream(of: session) else { return }
        write(HeartbeatFrame.ping(nonce: UInt64(bitPattern: owner.now)), to: stream)
    }

    /// All that the device reported before its Ping is durable.
    func pong(_ session: SessionRef, nonce: UInt64) {
        guard let stream = stream(of: session) else { return }
        write(HeartbeatFrame.pong(nonce: nonce), to: stream)
    }

    private func write(_ frame: HeartbeatFrame, to stream: ByteStream) {
        let byteCount = frame.byteCount
        _ = stream.write(byteCount: byteCount) { frame.encode(into: $0) }
        owner.metrics.count(.bytesSent, byteCount)
    }

    func send(_ session: SessionRef, _ message: some WireMessage) {
        guard let stream = stream(of: session) else { return }
        var bytes: [UInt8] = []
        message.appendFrame(to: &bytes)
        _ = bytes.withUnsafeBytes { stream.write($0) }
        owner.metrics.count(.bytesSent, bytes.count)
    }

    // MARK: End

    /// The device sends no more and waits for what it is owed; false when that is nothing.
    override func peerEnded(_ stream: ByteStream) -> Bool {
        guard let session = session(of: stream, tag: stream.tag), let record = record(session) else { return false }
        guard !record.pointee.isEnding else { return true }
        let isOwed = owner.upstream.owesResults(session) || owner.core.pointee.shard.owesAnswers(session)
        guard isOwed else { return false }
        record.pointee.isEnding = true
        stream.setTimeout(afterMilliseconds: EventLoopHost.halfClosedMilliseconds)
        // In a later turn: effects of a call of the shard may be under way.
        owner.inNextTurn { $0.finish(session) }
        return true
    }

    /// A part of what an ending session is owed is out: the session ends with the last part.
    func settled(_ session: SessionRef) {
        guard let record = record(session), record.pointee.isEnding, !owner.upstream.owesResults(session),
            !owner.core.pointee.shard.owesAnswers(session)
        else { return }
        owner.inNextTurn { $0.sessions.endIfEnding(session) }
    }

    private func endIfEnding(_ session: SessionRef) {
        guard let record = record(session), record.pointee.isEnding, let stream = stream(of: session) else { return }
        owner.metrics.count(.closedByPeer)
        leave(session)
        stream.closeAfterFlush()
    }

    override func timedOut(_ stream: ByteStream) { stream.close(.endOfStream) }

    /// Says why and hangs up.
    ///
    /// With `isForgotten` the shard itself wants the session closed and need not be told of its end.
    func close(_ session: SessionRef, _ code: CloseCode, reason: StaticString, isForgotten: Bool = false) {
        guard let record = record(session) else { return }
        if record.pointee.phase == .opening {
            table.pointee.openings[session.slot]?.close(Refusal(code, reason), isForgotten: isForgotten)
            return
        }
        if let stream = stream(of: session) { owner.host.write(Refusal(code, reason), to: stream) }
        finish(session, code, isForgotten: isForgotten)
    }

    private func finish(_ session: SessionRef, _ code: CloseCode, announced: Bool = false, isForgotten: Bool = false) {
        guard let stream = stream(of: session) else { return }
        owner.metrics.count(.closed(code))
        leave(session, announced: announced, isForgotten: isForgotten)
        stream.closeAfterFlush(code: WebSocketCode(code))
    }

    /// Gives the slot back and tells the shard, once.
    private func leave(_ session: SessionRef, announced: Bool = false, isForgotten: Bool = false) {
        remove(session)
        owner.upstream.forget(session)
        if !isForgotten { owner.sessionEnded(session, announced: announced) }
        owner.host.endConnection(.device)
    }

    override func outboxFilled(_ stream: ByteStream) {
        // There is no room for a Close frame, and a client that does not read would not see it.
        if let session = session(of: stream, tag: stream.tag) {
            owner.metrics.count(.closedForSlowReader)
            leave(session)
        }
        stream.close(.outboxFull)
    }

    override func ended(_ stream: ByteStream, tag: UInt32, _ reason: CloseReason) {
        guard let session = session(of: stream, tag: tag) else { return }
        owner.metrics.count(.closedByPeer)
        leave(session)
    }
}
