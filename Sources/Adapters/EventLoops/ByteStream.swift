internal import CLibevent
package import Cryptography
internal import Glibc
internal import Platform
internal import Structures

/// One TCP connection on one loop, plain or TLS: received bytes to its delegate, one write a turn from its outbox.
///
/// A handle of 24 bytes: the stream itself is a slot of its loop, 160 bytes with libevent's event, and has no buffer while it
/// is idle. After its end, and after a detach, every operation does nothing. A handle must not outlive its loop.
public struct ByteStream {
    let table: UnsafeMutablePointer<StreamTable>
    let place: StreamSlot.Pointer
    /// Which of the slot's occupants this is.
    let serial: UInt32

    /// The stream that a slot belongs to now.
    init(_ slot: StreamSlot.Pointer) {
        (table, place, serial) = (StreamTable.table(of: slot), slot, slot.pointee.serial)
    }

    /// The stream that `reference` names, which may be over.
    package init(_ reference: StreamReference, on loop: EventLoop) {
        guard let slot = reference.place else { preconditionFailure("a reference to no stream") }
        (table, place, serial) = (loop.streams, slot.assumingMemoryBound(to: StreamSlot.self), reference.serial)
    }

    /// Names the stream on its loop in twelve bytes.
    package var reference: StreamReference { StreamReference(place: place, serial: serial) }

    package var loop: EventLoop { table.pointee.loop }

    /// Makes another object the delegate, which knows the stream by a number of its own; the same one for a whole loop.
    package func pass(to delegate: StreamDelegate, tag: UInt32) {
        guard let slot else { return }
        slot.pointee.tag = tag
        slot.pointee.share(delegate)
    }

    /// What `pass` said; while the stream is open only.
    package var tag: UInt32 { slot?.pointee.tag ?? .max }

    /// Attaches a connection to `loop`; to be called there.
    ///
    /// Bytes that were received before a move are delivered first, in a later turn than this call. Nothing is thrown:
    /// what goes wrong ends in the delegate's one `closed`.
    ///
    /// - Parameters:
    ///   - connection: from a listener, or detached from a stream of any loop; taken here.
    ///   - loop: the loop of the caller.
    ///   - delegate: held until its `closed` has returned.
    ///   - outboxByteLimit: what may wait to be sent, give or take a thousandth; it must hold the largest single write.
    ///   - tls: to begin a handshake: a server's on a connection that was just accepted, or a client's.
    ///   - serverName: with it the handshake is a client's, who takes no server of another name.
    ///   - isGated: a server's handshake passes the loop's `HandshakeGate`, if there is one.
    ///   - isNewcomer: it is read, its handshake included, when the loop has time for newcomers, until `isNewcomer` is set to false.
    package init(
        attaching connection: DetachedConnection, on loop: EventLoop, delegate: StreamDelegate,
        outboxByteLimit: Int = Limits.outboxByteCount, tls: TLSContext? = nil, serverName: String? = nil,
        isGated: Bool = false, isNewcomer: Bool = false
    ) {
        loop.preconditionInLoop()
        table = loop.streams
        place = StreamTable.takeSlot(table)
        let content = connection.take()
        place.pointee.tls = content.tls
        content.tls?.share(table.pointee.tlsSocket)
        if content.isWebSocket { place.pointee.flags.insert(.isWebSocket) }
        place.pointee.webSocket = content.webSocket
        place.pointee.delegate = delegate
        if isNewcomer { place.pointee.newcomer = .isRead }
        // The limit is for new output; what was moved along is carried in any case.
        place.pointee.outboxLimit = ApproximateCount(atLeast: max(outboxByteLimit, content.unsent.count))
        serial = place.pointee.serial
        if let client = content.client { table.pointee.clients[place.pointee.number] = client }
        if let counted = content.counted { table.pointee.noteCounted(counted, place) }
        event_assign(
            &place.pointee.event, loop.base, content.descriptor,
            Int16(truncatingIfNeeded: EV_READ | EV_WRITE | EV_CLOSED | EV_PERSIST) | Int16(bitPattern: UInt16(EV_ET)),
            { _, what, context in
                guard let context else { preconditionFailure("libevent lost the context pointer") }
                let stream = ByteStream(context.assumingMemoryBound(to: StreamSlot.self))
                stream.table.pointee.eventCount &+= 1
                stream.ready(what)
            }, place)
        guard event_add(&place.pointee.event, nil) == 0 else {
            finish(.failed(SystemError(operation: "event_add", code: ENOMEM)))
            return
        }
        if let tls { isGated ? arriveAtGate(tls) : beginHandshake(tls, serverName) }
        adopt(content)
    }

    private func beginHandshake(_ context: TLSContext, _ serverName: String?) {
        do throws(TLSFailure) {
            let descriptor = place.pointee.descriptor
            place.pointee.tls =
                if let serverName {
                    try TLSSession(connecting: context, descriptor: descriptor, serverName: serverName)
                } else {
                    try TLSSession(accepting: context, descriptor: descriptor)
                }
            place.pointee.flags.insert(.isHandshaking)
            if place.pointee.tls?.isServing ?? false { table.pointee.handshakeCount += 1 }
            setTimeout(afterMilliseconds: Limits.handshakeMilliseconds)
        } catch {
            // It never began, so it is no waiter that left.
            place.pointee.flags.remove(.isHandshaking)
            finish(.tlsFailed(error.description))
        }
    }

    private func arriveAtGate(_ context: TLSContext) {
        guard let gate = table.pointee.gate else { return beginHandshake(context, nil) }
        place.pointee.flags.insert(.isHandshaking)
        setTimeout(afterMilliseconds: Limits.handshakeMilliseconds)
        gate.arrive(self, context)
    }

    /// Begins the handshake that the gate lets in; `hasWaited`: what came meanwhile made its edges already.
    func beginServing(_ context: TLSContext, through gate: HandshakeGate, hasWaited: Bool) {
        guard let slot else { return gate.finished() }
        beginHandshake(context, nil)
        guard let tls = slot.pointee.tls, isOpen else { return gate.finished() }
        tls.isGated = true
        if hasWaited { ready(0) }
    }

    /// Goes on after `HandshakeGate.takeStep` had none; the step is taken already.
    func goOnWithHandshake() {
        guard let slot, let tls = slot.pointee.tls else { return }
        tls.isLate = false
        proceed(0, slot)
    }

    /// Whether the handshake is not over; false after the stream's end.
    package var isInHandshake: Bool { slot?.pointee.flags.contains(.isHandshaking) ?? false }

    /// Ends a stream whose handshake is not over; the caller tells of it.
    func endHandshake(_ reason: String) {
        guard let slot, isInHandshake else { return }
        if let tls = slot.pointee.tls {
            if tls.isServing { table.pointee.handshakeCount -= 1 }
            if tls.isGated { table.pointee.gate?.finished() }
        }
        slot.pointee.flags.remove(.isHandshaking)
        finish(.tlsFailed(reason))
    }

    /// Ends a client's connection so that it reads why: what it sends behind its certificate would reset our alert.
    private func refuseCertificate(_ slot: StreamSlot.Pointer, _ reason: String) -> Bool {
        noteHandshake(slot, .tlsFailed(reason))
        slot.pointee.flags.remove(.isHandshaking)
        slot.pointee.tls = nil
        // Nothing that was meant for a proven client goes out in the clear.
        slot.pointee.outbox.removeAll(into: &table.pointee.pool)
        closeAfterFlush()
        return false
    }

    /// Books the end of a handshake that a client began here.
    private func noteHandshake(_ slot: StreamSlot.Pointer, _ reason: CloseReason?) {
        guard let tls = slot.pointee.tls else { return noteWaiter(reason) }
        guard tls.isServing else { return }
        table.pointee.handshakeCount -= 1
        if tls.isGated { table.pointee.gate?.finished() }
        guard let hook = table.pointee.onHandshake else { return }
        switch reason {
        case nil: hook(.done)
        case .timedOut: hook(.timedOut)
        case .closedHere, .budgetSpent: hook(.displaced)
        case .loopStopped: break
        case .tlsFailed(let text): hook(.failed(tls.failure, text: text, from: peer, listener: tls.listener))
        case .endOfStream, .failed, .webSocketFailed, .outboxFull, .unconsumedOverflow:
            hook(.failed(.ended, text: "the client left", from: peer, listener: tls.listener))
        }
    }

    /// Books the end of a stream that waited at the gate.
    private func noteWaiter(_ reason: CloseReason?) {
        table.pointee.gate?.left()
        guard let hook = table.pointee.onHandshake else { return }
        switch reason {
        case .timedOut: hook(.timedOut)
        case .closedHere, .budgetSpent: hook(.displaced)
        case .loopStopped: break
        default:
            hook(.failed(.ended, text: "the client left while it waited for its turn", from: peer, listener: ""))
        }
    }

    private func adopt(_ content: DetachedConnection.Content) {
        guard isOpen else { return }
        if !content.leftover.isEmpty {
            content.leftover.withUnsafeBytes { keepUnconsumed($0) }
            place.pointee.flags.insert(.mustRedeliver)
        }
        // A moved TLS session may hold decrypted bytes that no edge will announce.
        if !content.leftover.isEmpty || content.tls != nil || content.isWebSocket { enqueueReadAgain() }
        if content.isWebSocket { awaitQuiet(place) }
        if !content.unsent.isEmpty { content.unsent.withUnsafeBytes { _ = writeRaw($0) } }
    }

    /// Until the end or a detach; the slot may be another stream's afterwards, so nothing may be read from it then.
    package var isOpen: Bool {
        // Asked several times a message, so only debug builds look which thread asks.
        assert(loop.isInLoop, "a stream is used off its event loop")
        return place.pointee.serial == serial
    }

    /// The slot, while it is ours.
    var slot: StreamSlot.Pointer? { isOpen ? place : nil }

    /// The other end, as a balancer or the kernel names it; `nil` after the end.
    package var peer: SocketAddress? {
        slot.flatMap { table.pointee.clients[$0.pointee.number] ?? SocketAddress.peer(of: $0.pointee.descriptor) }
    }

    package var isTLS: Bool { slot?.pointee.tls != nil }

    /// Bytes that wait to be sent.
    package var outboxByteCount: Int { slot.map { Int($0.pointee.outbox.byteCount) } ?? 0 }

    // MARK: Timeout

    /// Sets the stream's one timeout, in place of an earlier one; cheap enough to be called for each received frame.
    ///
    /// During a TLS handshake and while closing, the stream's own bound for that holds instead. A WebSocket is not pinged
    /// while it has a timeout.
    package func setTimeout(afterMilliseconds milliseconds: UInt64) {
        guard let slot, !slot.pointee.flags.contains(.isClosing) else { return }
        table.pointee.setDeadline(slot, at: loop.now + milliseconds)
    }

    package func clearTimeout() {
        guard let slot, slot.pointee.flags.isDisjoint(with: [.isClosing, .isHandshaking]) else { return }
        if slot.pointee.flags.contains(.isWebSocket) { awaitQuiet(slot) } else { table.pointee.clearDeadline(slot) }
    }

    func timeoutFired() {
        guard let slot else { return }
        if slot.pointee.flags.contains(.isHandshaking) {
            noteHandshake(slot, .timedOut)
            slot.pointee.flags.remove(.isHandshaking)
            return finish(.tlsFailed("the handshake timed out"))
        }
        if slot.pointee.flags.contains(.isClosing) {
            if slot.pointee.outbox.byteCount == 0 { endOutput(slot) }
            return finish(.closedHere)
        }
        slot.pointee.delegate?.timedOut(self)
    }

    // MARK: End

    /// Ends the stream at once; what waits in the outbox is lost.
    package func close(_ reason: CloseReason = .closedHere) {
        guard slot != nil else { return }
        finish(reason)
    }

    /// Sends what is in the outbox, then closes properly: our half first, then on the peer's end or the deadline.
    ///
    /// From now on input is ignored and output refused. Waiting for the peer's end keeps a reset from overtaking our
    /// last bytes. A WebSocket's close frame, with `code`, goes behind what is in the outbox, and our half ends when the
    /// client's close frame is here (RFC 6455, section 7.1.1).
    package func closeAfterFlush(
        code: WebSocketCode = .normal, deadlineMilliseconds: UInt64 = Limits.closeMilliseconds
    ) {
        guard let slot, !slot.pointee.flags.contains(.isClosing) else { return }
        writeClose(code)
        table.pointee.setDeadline(slot, at: loop.now + deadlineMilliseconds)
        slot.pointee.flags.insert(.isClosing)
        slot.pointee.flags.remove(.isPaused)
        dropUnconsumed(slot)
        markDirty(slot)
        // A paused stream may have missed the edge of what is to be ignored now.
        enqueueReadAgain()
        StreamTable.beginClosing(self, on: loop)
    }

    /// Takes the connection off this loop, to be attached to another; no `closed` will be told.
    ///
    /// - Parameter unconsumed: inside `received`, the bytes that the next owner shall see first; otherwise left out,
    ///   and what the stream kept goes along.
    /// - Returns: `nil` if the stream is over, or closing, or in its handshake.
    package func detach(unconsumed: UnsafeRawBufferPointer? = nil) -> DetachedConnection? {
        guard let slot, slot.pointee.flags.isDisjoint(with: [.isClosing, .isHandshaking]) else { return nil }
        flush()
        guard isOpen else { return nil }
        guard slot.pointee.tls?.unshare() ?? true else {
            finish(.tlsFailed("OpenSSL has no memory to move the connection"))
            return nil
        }
        var content = DetachedConnection.Content(
            descriptor: slot.pointee.descriptor, tls: slot.pointee.tls, isWebSocket: isWebSocket,
            webSocket: slot.pointee.webSocket)
        if let unconsumed {
            content.leftover = Array(unconsumed)
        } else if let block = slot.pointee.unconsumed {
            content.leftover = Array(
                UnsafeRawBufferPointer(start: block.bytes + Int(block.pointee.start), count: block.filledByteCount))
        }
        var block = slot.pointee.outbox.head
        while let piece = block {
            content.unsent += UnsafeRawBufferPointer(
                start: piece.bytes + Int(piece.pointee.start), count: piece.filledByteCount)
            block = piece.pointee.next
        }
        content.client = table.pointee.clients[slot.pointee.number]
        content.counted = table.pointee.takeCounted(slot)
        let connection = DetachedConnection(content, peer: content.client ?? SocketAddress.peer(of: content.descriptor))
        // The delegate stays until this call has returned: it may be the one that called.
        let delegate = slot.pointee.delegate
        release(slot)
        withExtendedLifetime(delegate) {}
        return connection
    }

    /// Ends the stream: descriptor, TLS and buffers go now, the delegate is told in the next turn.
    func finish(_ reason: CloseReason) {
        guard let slot else { return }
        if slot.pointee.flags.contains(.isHandshaking) { noteHandshake(slot, reason) }
        let (descriptor, delegate) = (slot.pointee.descriptor, slot.pointee.delegate)
        if slot.pointee.flags.contains(.isClosing) { table.pointee.endClosing() }
        table.pointee.endings.append(
            .init(stream: self, delegate: delegate, tag: slot.pointee.tag, reason: reason))
        release(slot)
        Glibc.close(descriptor)
    }

    private func release(_ slot: StreamSlot.Pointer) {
        event_del(&slot.pointee.event)
        table.pointee.clearDeadline(slot)
        dropUnconsumed(slot)
        slot.pointee.outbox.removeAll(into: &table.pointee.pool)
        if !table.pointee.clients.isEmpty { table.pointee.clients[slot.pointee.number] = nil }
        table.pointee.takeCounted(slot)?.leave()
        table.pointee.putSlot(slot)
    }

    private func dropUnconsumed(_ slot: StreamSlot.Pointer) {
        guard let block = slot.pointee.unconsumed else { return }
        forgetUnconsumed(slot, block)
    }

    // MARK: Events

    private func ready(_ what: Int16) {
        guard let slot else { return }
        if what & Int16(EV_CLOSED) != 0 { slot.pointee.flags.insert(.hasPeerEnd) }
        guard slot.pointee.newcomer == .no || isTurnOfNewcomer(slot, what) else { return }
        if slot.pointee.flags.contains(.isHandshaking) {
            guard slot.pointee.tls != nil else {
                // It waits at the gate; what it sends is looked at when its turn comes.
                // A reset comes as an error, without EV_CLOSED.
                if slot.pointee.flags.contains(.hasPeerEnd) || Sockets.isPeerGone(descriptor: slot.pointee.descriptor) {
                    finish(.endOfStream)
                }
                return
            }
            if let tls = slot.pointee.tls, tls.isGated, let gate = table.pointee.gate {
                // It has its place already; what has come meanwhile is read then.
                if tls.isLate { return }
                guard gate.takeStep(self) else {
                    tls.isLate = true
                    return
                }
            }
        }
        proceed(what, slot)
    }

    /// Whether a newcomer with an event is read now; otherwise it waits.
    private func isTurnOfNewcomer(_ slot: StreamSlot.Pointer, _ what: Int16) -> Bool {
        // That a new connection can be written to is no news.
        guard what & Int16(EV_READ | EV_CLOSED) != 0 else { return true }
        guard slot.pointee.newcomer == .isRead else { return false }
        // Who comes later does not overtake.
        if table.pointee.newcomers.isEmpty, loop.mayReadNewcomer() { return true }
        slot.pointee.newcomer = .waits
        table.pointee.newcomers.append(self)
        return false
    }

    /// Reads a newcomer that has waited; which edges there were is not known any more, so all are tried.
    func readNewcomer() {
        guard let slot else { return }
        if slot.pointee.newcomer == .waits { slot.pointee.newcomer = .isRead }
        proceed(Int16(EV_READ | EV_WRITE), slot)
    }

    /// Whether something has come on a newcomer's stream that the loop had no time to read.
    package var waitsToBeRead: Bool { slot.map { $0.pointee.newcomer == .waits } ?? false }

    /// Whether the stream is read only when the loop has time for newcomers.
    package var isNewcomer: Bool {
        get { slot.map { $0.pointee.newcomer != .no } ?? false }
        nonmutating set {
            guard let slot, slot.pointee.newcomer != .no || newValue else { return }
            let kept = slot.pointee.unconsumed.map { Int($0.pointee.capacity) } ?? 0
            if newValue != (slot.pointee.newcomer != .no) {
                table.pointee.strangerByteCount += newValue ? kept : -kept
            }
            // What waited is read in its turn all the same.
            slot.pointee.newcomer = newValue ? .isRead : .no
        }
    }

    private func proceed(_ what: Int16, _ slot: StreamSlot.Pointer) {
        if slot.pointee.flags.contains(.isHandshaking) {
            let began = SystemClock.monotonicNanoseconds
            let isDone = continueHandshake(slot)
            table.pointee.handshakeNanoseconds += Int64(SystemClock.monotonicNanoseconds - began)
            guard isDone else { return }
        }
        // TLS may wait for either direction with either operation, so every edge tries both.
        let isTLS = slot.pointee.tls != nil
        if isTLS || what & Int16(EV_WRITE) != 0, slot.pointee.flags.contains(.isBlocked) {
            slot.pointee.flags.remove(.isBlocked)
            flush()
            guard isOpen else { return }
        }
        if isTLS || what & Int16(EV_READ | EV_CLOSED) != 0 { readAvailable() }
    }

    /// Goes on with the handshake; `false` while it is not done.
    private func continueHandshake(_ slot: StreamSlot.Pointer) -> Bool {
        guard let tls = slot.pointee.tls else { return true }
        switch tls.handshake() {
        case .wantsRead, .wantsWrite: return false
        case .failed(let reason):
            if tls.isServing, tls.failure == .certificate { return refuseCertificate(slot, reason) }
            // Nothing listens there: no word about TLS.
            let isRefused = tls.systemErrorCode == ECONNREFUSED
            finish(isRefused ? .failed(SystemError(operation: "connect", code: ECONNREFUSED)) : .tlsFailed(reason))
            return false
        case .done:
            tls.share(table.pointee.tlsSocket)
            noteHandshake(slot, nil)
            slot.pointee.flags.remove(.isHandshaking)
            // The bound of a close that was asked for meanwhile stays.
            if !slot.pointee.flags.contains(.isClosing) { table.pointee.clearDeadline(slot) }
            slot.pointee.delegate?.handshakeFinished(self)
            guard isOpen else { return false }
            markDirty(slot)
            return true
        }
    }
}
