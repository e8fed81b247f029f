internal import Delivery
internal import EventLoops
internal import Platform
internal import Structures
internal import Wire

/// The sessions of one partition's devices: 24 bytes each, without an object per session.
///
/// A session gets its slot when its Hello is passed to the shard, and a `DeviceHandshake` serves it until the Welcome. This
/// object is then the delegate of its stream, and the stream's tag is the session's slot.
final class DeviceSessions: StreamDelegate {
    private struct Record: BitwiseCopyable {
        enum Phase: UInt8 {
            case free
            case opening
            case open
        }

        var stream = StreamReference.none
        /// The identity of the slot's occupant; 20 bits, never zero.
        var stamp: UInt32 = 1
        var budget = FrameBudget()
        var phase = Phase.free
        /// Whether the device has closed its sending side and still waits for answers.
        var isEnding = false
        /// Whether the session has reported something that may not be durable yet.
        var hasReported = false
    }

    // Streams may outlive the partition. Their calls then find no session and do not access the partition.
    private unowned(unsafe) let owner: Partition
    /// Behind a pointer, where Swift makes no exclusivity checks.
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

    /// Creates the session of a connection whose Hello was passed to the shard; `nil` if the table is full.
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

    var openingCount: Int { table.pointee.openings.count }

    /// Refuses up to `count` devices that wait for their Welcome; they retry later.
    func sendOpeningsAway(_ count: Int) {
        guard count > 0 else { return }
        // Higher slots are mostly newer, so older connections are kept.
        let last = table.pointee.openings.sorted { $0.key > $1.key }.prefix(count)
        for (_, handshake) in last { handshake.withdraw(.standing) }
    }

    /// Frees a session's slot, which may be reused at once.
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

    private func stream(of session: SessionRef) -> ByteStream? {
        guard let record = record(session), record.pointee.phase == .open else { return nil }
        return ByteStream(record.pointee.stream, on: owner.loop)
    }

    /// Returns the network address that the session's stream counts against (`AddressGuard`); 0 for none.
    func countedNetwork(of session: SessionRef) -> UInt64 { stream(of: session)?.countedNetwork ?? 0 }

    private func session(of stream: ByteStream, tag: UInt32) -> SessionRef? {
        guard let record = table.pointee.records.existing(tag), record.pointee.phase == .open,
            record.pointee.stream.names(stream)
        else { return nil }
        return SessionRef(slot: tag, stamp: record.pointee.stamp)
    }

    /// Marks the partition as ended; its sessions have ended, but some streams may still be closing.
    func end() { table.pointee.hasEnded = true }

    func closeAll(_ code: CloseCode = .shuttingDown, reason: StaticString = "the gateway is stopping") {
        for slot in 0..<table.pointee.slotCount {
            let record = table.pointee.records.pointer(slot)
            guard record.pointee.phase != .free else { continue }
            close(
                SessionRef(slot: slot, stamp: record.pointee.stamp), code, reason: reason)
        }
    }

    /// Closes up to `count` sessions, starting at a slot; keeps relayed sessions, which the gateway that accepted them closes.
    ///
    /// - Returns: The slot to continue at, wrapping around after the last one, and the number of closed sessions.
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
            // An opening session is closed in a later round, once it is open.
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
        // Input after a Close of either side is discarded.
        guard let session = session(of: stream, tag: stream.tag) else { return bytes.count }
        // A local reference avoids a retain at each use of the property.
        let owner = owner
        owner.heard(session)
        var offset = 0
        // Unconsumed bytes are passed again with the next input.
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

    /// Takes a frame out of the session's budget; returns `false` and closes the session if the budget is used up.
    private func isWithinBudget(_ session: SessionRef, _ cost: Int32, byteCount: Int = 0) -> Bool {
        guard let record = record(session) else { return false }
        if record.pointee.budget.take(cost, byteCount: byteCount, second: owner.loop.now / 1_000) { return true }
        close(session, .floods, reason: "far more frames than any client has use for")
        return false
    }

    override func receivedEmpty(_ frameCount: Int, on stream: ByteStream) {
        guard let session = session(of: stream, tag: stream.tag) else { return }
        // Empty frames do not prove that the app is alive: a browser answers pings even for a suspended page.
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
            // A Pong needs no action besides the check of its form.
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
        case .deviceNames:
            owner.names.take(try DeviceNames(decoding: body.bytes), of: session)
        case .close:
            _ = try Close(decoding: body.bytes)
            finish(session, .goodbye, announced: true)
        default:
            close(session, .unexpectedFrame, reason: "a device does not send this type of frame")
        }
    }

    // MARK: Output

    /// Sends the Welcome and takes over the session's stream.
    func welcome(_ session: SessionRef, _ effect: WelcomeEffect) {
        noteWelcome(effect.cid)
        owner.host.welcomes.charge { open(session, effect) }
    }

    private func open(_ session: SessionRef, _ effect: WelcomeEffect) {
        guard let record = record(session), record.pointee.phase == .opening,
            let handshake = table.pointee.openings[session.slot]
        else { return }
        if let app = handshake.countedApp, owner.isSurplus(of: app) {
            // The shard is notified in a later turn, because it must not be called during its effects.
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
        // Frames that arrived after the Hello are read in the next turn.
        stream.resumeReading()
    }

    /// Counts a Welcome for the reconnect limit (`FlapDamping`), even if the device has already disconnected.
    func noteWelcome(_ cid: DeviceID) {
        let now = Int64(owner.loop.now)
        let delay = owner.context.peers.flaps.withLock { $0.welcomed(cid, now: now) }
        guard delay > 0 else { return }
        owner.metrics.count(.flappingNoted)
    }

    /// Prefetches a session's record, which holds the reference to its stream.
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

    /// Prefetches the memory that a send will use.
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

    /// Sends the Pong after all reports before its Ping are durable.
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

    /// Keeps a half-closed connection open while answers are pending; returns `false` if none are.
    override func peerEnded(_ stream: ByteStream) -> Bool {
        guard let session = session(of: stream, tag: stream.tag), let record = record(session) else { return false }
        guard !record.pointee.isEnding else { return true }
        guard owesAnswers(session) else { return false }
        record.pointee.isEnding = true
        stream.setTimeout(afterMilliseconds: EventLoopHost.halfClosedMilliseconds)
        // In a later turn, because the shard may be performing effects.
        owner.inNextTurn { $0.finish(session) }
        return true
    }

    /// Ends a half-closed session after its last pending answer.
    func settled(_ session: SessionRef) {
        guard let record = record(session), record.pointee.isEnding, !owesAnswers(session) else { return }
        owner.inNextTurn { $0.sessions.endIfEnding(session) }
    }

    private func owesAnswers(_ session: SessionRef) -> Bool {
        owner.upstream.owesResults(session) || owner.names.owesResult(session)
            || owner.core.pointee.shard.owesAnswers(session)
    }

    private func endIfEnding(_ session: SessionRef) {
        guard let record = record(session), record.pointee.isEnding, let stream = stream(of: session) else { return }
        owner.metrics.count(.closedByPeer)
        leave(session)
        stream.closeAfterFlush()
    }

    override func timedOut(_ stream: ByteStream) { stream.close(.endOfStream) }

    /// Sends a Close frame and closes the connection; `isForgotten` means that the shard requested this and needs no
    /// notification.
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

    /// Frees the session's slot and notifies the shard, once.
    private func leave(_ session: SessionRef, announced: Bool = false, isForgotten: Bool = false) {
        remove(session)
        owner.upstream.forget(session)
        owner.names.forget(session)
        if !isForgotten { owner.sessionEnded(session, announced: announced) }
        owner.host.endConnection(.device)
    }

    override func outboxFilled(_ stream: ByteStream) {
        // The outbox has no room for a Close frame, and a client that does not read would not see it.
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
