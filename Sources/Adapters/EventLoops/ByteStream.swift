internal import CLibevent
package import Cryptography
internal import Glibc
internal import Platform
internal import Structures

/// A TCP connection on an event loop, with or without TLS.
///
/// Input is delivered to its delegate, output is written once per turn. The type is a handle of 24 bytes. The stream itself is a
/// slot of its loop: 160 bytes including libevent's event, without buffers while idle. Operations on a closed or detached stream
/// have no effect. A handle must not outlive its loop.
public struct ByteStream {
    let table: UnsafeMutablePointer<StreamTable>
    let place: StreamSlot.Pointer
    /// The serial number that distinguishes this stream from other users of the slot.
    let serial: UInt32

    init(_ slot: StreamSlot.Pointer) {
        (table, place, serial) = (StreamTable.table(of: slot), slot, slot.pointee.serial)
    }

    /// Creates a handle for a referenced stream, which may have ended.
    package init(_ reference: StreamReference, on loop: EventLoop) {
        guard let slot = reference.place else { preconditionFailure("a reference to no stream") }
        (table, place, serial) = (loop.streams, slot.assumingMemoryBound(to: StreamSlot.self), reference.serial)
    }

    /// A twelve-byte reference that is valid on the stream's loop.
    package var reference: StreamReference { StreamReference(place: place, serial: serial) }

    package var loop: EventLoop { table.pointee.loop }

    /// Replaces the delegate with one that all streams of a loop may share; `tag` identifies the stream to it.
    package func pass(to delegate: StreamDelegate, tag: UInt32) {
        guard let slot else { return }
        slot.pointee.tag = tag
        slot.pointee.share(delegate)
    }

    /// The tag passed to `pass`, while the stream is open.
    package var tag: UInt32 { slot?.pointee.tag ?? .max }

    /// Attaches a connection to `loop`; must be called on that loop.
    ///
    /// Bytes received before a move are delivered first, in a later turn than this call. Errors are reported through the
    /// delegate's single `closed` call.
    ///
    /// - Parameters:
    ///   - connection: from a listener, or detached from a stream of any loop. This stream becomes its owner.
    ///   - loop: the loop of the caller.
    ///   - delegate: retained until its `closed` has returned.
    ///   - outboxByteLimit: the maximum unsent bytes, within a tolerance of a thousandth. It must allow the largest single write.
    ///   - tls: starts a handshake, as the server on an accepted connection or as a client.
    ///   - serverName: makes the handshake a client's and must match the server's certificate.
    ///   - isGated: whether a server's handshake passes the loop's `HandshakeGate`, if any.
    ///   - isNewcomer: whether input, including the handshake, is read only when the loop has time for newcomers.
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
        // The limit applies to new output. Output moved with the connection is always accepted.
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
            // The handshake never started, so `finish` must not count it as ended.
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

    /// Starts the handshake that the gate admits; after a wait (`hasWaited`) no edge announces the bytes that have arrived.
    func beginServing(_ context: TLSContext, through gate: HandshakeGate, hasWaited: Bool) {
        guard let slot else { return gate.finished() }
        beginHandshake(context, nil)
        guard let tls = slot.pointee.tls, isOpen else { return gate.finished() }
        tls.isGated = true
        if hasWaited { ready(0) }
    }

    /// Continues a handshake that `HandshakeGate.takeStep` deferred; the gate has already counted the step.
    func goOnWithHandshake() {
        guard let slot, let tls = slot.pointee.tls else { return }
        tls.isLate = false
        proceed(0, slot)
    }

    /// Whether the handshake is in progress or waits at the gate; it is `false` after the stream's end.
    package var isInHandshake: Bool { slot?.pointee.flags.contains(.isHandshaking) ?? false }

    /// Ends a stream during its handshake; the caller reports the event.
    func endHandshake(_ reason: String) {
        guard let slot, isInHandshake else { return }
        if let tls = slot.pointee.tls {
            if tls.isServing { table.pointee.handshakeCount -= 1 }
            if tls.isGated { table.pointee.gate?.finished() }
        }
        slot.pointee.flags.remove(.isHandshaking)
        finish(.tlsFailed(reason))
    }

    /// Closes after a rejected client certificate, but reads on until the peer's end.
    ///
    /// A close with unread bytes would cause a reset, which would discard the alert.
    private func refuseCertificate(_ slot: StreamSlot.Pointer, _ reason: String) -> Bool {
        noteHandshake(slot, .tlsFailed(reason))
        slot.pointee.flags.remove(.isHandshaking)
        slot.pointee.tls = nil
        // Output for an authenticated client must not be sent in plain text.
        slot.pointee.outbox.removeAll(into: &table.pointee.pool)
        closeAfterFlush()
        return false
    }

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

    private func noteWaiter(_ reason: CloseReason?) {
        table.pointee.gate?.left()
        guard let hook = table.pointee.onHandshake else { return }
        switch reason {
        case .timedOut: hook(.timedOut)
        case .closedHere, .budgetSpent: hook(.displaced)
        case .loopStopped: break
        default:
            hook(.failed(.ended, text: "the client disconnected before its handshake", from: peer, listener: ""))
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

    /// Whether the stream is neither ended nor detached; otherwise its slot may belong to another stream and must not be read.
    package var isOpen: Bool {
        // This is called several times per message, so only debug builds check the thread.
        assert(loop.isInLoop, "a stream is used off its event loop")
        return place.pointee.serial == serial
    }

    var slot: StreamSlot.Pointer? { isOpen ? place : nil }

    /// The remote address according to the balancer or the kernel, or `nil` after the stream's end.
    package var peer: SocketAddress? {
        slot.flatMap { table.pointee.clients[$0.pointee.number] ?? SocketAddress.peer(of: $0.pointee.descriptor) }
    }

    package var isTLS: Bool { slot?.pointee.tls != nil }

    package var outboxByteCount: Int { slot.map { Int($0.pointee.outbox.byteCount) } ?? 0 }

    // MARK: Timeout

    /// Sets the stream's only timeout and replaces an earlier one.
    ///
    /// Cheap enough for a call per received frame. During a TLS handshake the timeout limits the handshake, and the end of the
    /// handshake clears it. A closing stream keeps its own timeout. A WebSocket is not pinged while it has a timeout.
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

    /// Closes the stream immediately; unsent output is lost.
    package func close(_ reason: CloseReason = .closedHere) {
        guard slot != nil else { return }
        finish(reason)
    }

    /// Sends the outbox, shuts down the output and closes on the peer's end or the deadline.
    ///
    /// Later input is ignored and later output refused. Closing only after the peer's end prevents a reset from discarding the
    /// last bytes. On a WebSocket a close frame with `code` follows the outbox, and the output ends after the client's close
    /// frame (RFC 6455, section 7.1.1).
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
        // A paused stream may have missed an edge. The remaining input is read and ignored, up to the peer's end.
        enqueueReadAgain()
        StreamTable.beginClosing(self, on: loop)
    }

    /// Removes the connection from this loop, to be attached to another; `closed` is not called.
    ///
    /// - Parameter unconsumed: inside `received`, the bytes that the next owner receives first. Otherwise the stored bytes are
    ///   moved.
    /// - Returns: `nil` if the stream is closed, closing or in its handshake.
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
        // The delegate must stay alive during this call, because it may be the caller.
        let delegate = slot.pointee.delegate
        release(slot)
        withExtendedLifetime(delegate) {}
        return connection
    }

    /// Ends the stream: releases descriptor, TLS and buffers immediately and notifies the delegate in the next turn.
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
                // The stream waits at the gate and its input stays unread. A reset is reported as an error without EV_CLOSED.
                if slot.pointee.flags.contains(.hasPeerEnd) || Sockets.isPeerGone(descriptor: slot.pointee.descriptor) {
                    finish(.endOfStream)
                }
                return
            }
            if let tls = slot.pointee.tls, tls.isGated, let gate = table.pointee.gate {
                // The handshake already waits for its next step, which will read this input.
                if tls.isLate { return }
                guard gate.takeStep(self) else {
                    tls.isLate = true
                    return
                }
            }
        }
        proceed(what, slot)
    }

    /// Returns whether a newcomer with an event may be read now; otherwise it is queued.
    private func isTurnOfNewcomer(_ slot: StreamSlot.Pointer, _ what: Int16) -> Bool {
        // A new connection is always writable, so this event needs no reading.
        guard what & Int16(EV_READ | EV_CLOSED) != 0 else { return true }
        guard slot.pointee.newcomer == .isRead else { return false }
        // Later newcomers must not overtake queued ones.
        if table.pointee.newcomers.isEmpty, loop.mayReadNewcomer() { return true }
        slot.pointee.newcomer = .waits
        table.pointee.newcomers.append(self)
        return false
    }

    /// Reads a newcomer from the queue; its edges are unknown by then, so both directions are tried.
    func readNewcomer() {
        guard let slot else { return }
        if slot.pointee.newcomer == .waits { slot.pointee.newcomer = .isRead }
        proceed(Int16(EV_READ | EV_WRITE), slot)
    }

    /// Whether a newcomer has unread input for which the loop had no time.
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
            // A queued stream keeps its place in the queue.
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
        // TLS may need either direction for either operation, so every edge tries both.
        let isTLS = slot.pointee.tls != nil
        if isTLS || what & Int16(EV_WRITE) != 0, slot.pointee.flags.contains(.isBlocked) {
            slot.pointee.flags.remove(.isBlocked)
            flush()
            guard isOpen else { return }
        }
        if isTLS || what & Int16(EV_READ | EV_CLOSED) != 0 { readAvailable() }
    }

    /// Continues the handshake; returns `false` while it is incomplete.
    private func continueHandshake(_ slot: StreamSlot.Pointer) -> Bool {
        guard let tls = slot.pointee.tls else { return true }
        switch tls.handshake() {
        case .wantsRead, .wantsWrite: return false
        case .failed(let reason):
            if tls.isServing, tls.failure == .certificate { return refuseCertificate(slot, reason) }
            // ECONNREFUSED means that the port is closed, so the error must not mention TLS.
            let isRefused = tls.systemErrorCode == ECONNREFUSED
            finish(isRefused ? .failed(SystemError(operation: "connect", code: ECONNREFUSED)) : .tlsFailed(reason))
            return false
        case .done:
            tls.share(table.pointee.tlsSocket)
            noteHandshake(slot, nil)
            slot.pointee.flags.remove(.isHandshaking)
            // A close requested during the handshake keeps its timeout.
            if !slot.pointee.flags.contains(.isClosing) { table.pointee.clearDeadline(slot) }
            slot.pointee.delegate?.handshakeFinished(self)
            guard isOpen else { return false }
            markDirty(slot)
            return true
        }
    }
}
