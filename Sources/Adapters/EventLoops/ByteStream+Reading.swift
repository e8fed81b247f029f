internal import CLibevent
internal import Cryptography
internal import Glibc
internal import Platform

extension ByteStream {
    /// Pauses the delivery of received bytes; the kernel's buffer then fills and slows the peer.
    package func pauseReading() { slot?.pointee.flags.insert(.isPaused) }

    /// Resumes delivery in a later turn, beginning with the bytes that the delegate did not consume.
    package func resumeReading() {
        guard let slot, slot.pointee.flags.contains(.isPaused) else { return }
        slot.pointee.flags.remove(.isPaused)
        if slot.pointee.unconsumed != nil { slot.pointee.flags.insert(.mustRedeliver) }
        // An edge during the pause was ignored, so the socket must be read now. Without such an edge, the next edge starts the
        // read.
        guard slot.pointee.unconsumed != nil || slot.pointee.flags.contains(.hasMissedEdge) || slot.pointee.tls != nil
        else { return }
        slot.pointee.flags.remove(.hasMissedEdge)
        enqueueReadAgain()
    }

    package var isReadingPaused: Bool { slot?.pointee.flags.contains(.isPaused) ?? false }

    func enqueueReadAgain() {
        guard let slot, !slot.pointee.flags.contains(.isReadingAgain) else { return }
        slot.pointee.flags.insert(.isReadingAgain)
        table.pointee.readAgain.append(self)
    }

    func readAgain() {
        guard let slot else { return }
        slot.pointee.flags.remove(.isReadingAgain)
        guard slot.pointee.flags.isDisjoint(with: [.isPaused, .isHandshaking]) else {
            // The read is still due after the pause or the handshake.
            slot.pointee.flags.insert(.hasMissedEdge)
            return
        }
        if slot.pointee.flags.contains(.mustRedeliver) {
            slot.pointee.flags.remove(.mustRedeliver)
            if slot.pointee.unconsumed != nil { deliver(slot, freshByteCount: 0) }
            guard isOpen else { return }
        }
        // The WebSocket ended while the stream moved to another loop.
        if slot.pointee.flags.contains(.isWebSocket), !slot.pointee.flags.contains(.isClosing), endWebSocketIfDue() {
            return
        }
        readAvailable()
    }

    /// Reads until the socket is empty, the turn's byte budget is used up or the delegate pauses reading.
    func readAvailable() {
        guard let slot else { return }
        let buffer = UnsafeMutableRawBufferPointer(
            start: table.pointee.scratch + Limits.unconsumedByteCount, count: Limits.receiveByteCount)
        var budget = Limits.readByteCountPerTurn
        if let delegate = slot.pointee.delegate {
            let address = UnsafeRawPointer(Unmanaged.passUnretained(delegate).toOpaque())
            prefetch(address, byteCount: Limits.delegateByteCount)
            delegate.foresee(slot.pointee.tag)
        }
        while !slot.pointee.flags.contains(.isPaused) {
            // After a move, unconsumed bytes must be delivered before new ones. `readAgain` delivers them and then reads.
            guard !slot.pointee.flags.contains(.mustRedeliver) else { return }
            let count: Int
            if let tls = slot.pointee.tls {
                switch tls.read(into: buffer) {
                case .bytes(let received): count = received
                case .wantsRead: return
                case .wantsWrite:
                    slot.pointee.flags.insert(.isBlocked)
                    return
                case .ended: return peerEnded(slot)
                case .failed(let reason):
                    return finish(slot.pointee.flags.contains(.isClosing) ? .closedHere : .tlsFailed(reason))
                }
            } else {
                count = recv(slot.pointee.descriptor, buffer.baseAddress, buffer.count, 0)
                if count == 0 { return peerEnded(slot) }
                if count < 0 {
                    if errno == EAGAIN { return }
                    if errno == EINTR { continue }
                    let failure = SystemError.last("recv")
                    return finish(slot.pointee.flags.contains(.isClosing) ? .closedHere : .failed(failure))
                }
            }
            if slot.pointee.flags.isDisjoint(with: [.isClosing, .isWebSocket]) {
                deliver(slot, freshByteCount: count)
            } else if !slot.pointee.flags.contains(.isClosing) {
                receiveFrames(slot, UnsafeMutableRawBufferPointer(rebasing: buffer[..<count]))
            } else if awaitsClose(slot) {
                receiveClose(slot, UnsafeMutableRawBufferPointer(rebasing: buffer[..<count]))
            }
            guard isOpen else { return }
            // A short read empties the socket, so the next byte causes an edge. The exception is the peer's end after these
            // bytes, which this edge has already reported. TLS buffers records and must be read until it returns `wantsRead`.
            if count < buffer.count, slot.pointee.tls == nil, !slot.pointee.flags.contains(.hasPeerEnd) { return }
            // Each TLS record costs time, also one of a single byte.
            budget -= slot.pointee.tls == nil ? count : max(count, Limits.recordCharge)
            if budget <= 0 { return enqueueReadAgain() }
        }
        // Reading was paused before or during this edge.
        slot.pointee.flags.insert(.hasMissedEdge)
    }

    private func peerEnded(_ slot: StreamSlot.Pointer) {
        slot.pointee.flags.insert(.hasPeerEnd)
        if slot.pointee.flags.contains(.isClosing) {
            // Pending output is still sent after the peer's end, within the timeout of a close.
            if slot.pointee.outbox.byteCount > 0 { flush() }
            guard isOpen, slot.pointee.outbox.byteCount == 0 else { return }
            return finish(.closedHere)
        }
        // The delegate may still answer a peer that closed only its sending side.
        if let delegate = slot.pointee.delegate, delegate.peerEnded(self) {
            // No further edge reports the peer's end, so `resumeReading` must check for it.
            if isOpen, !slot.pointee.flags.contains(.isClosing) {
                slot.pointee.flags.formUnion([.isPaused, .hasMissedEdge])
            }
            return
        }
        guard isOpen, !slot.pointee.flags.contains(.isClosing) else { return }
        flush()
        guard isOpen else { return }
        // The outbox is sent as the peer reads it, within the timeout of a close.
        if slot.pointee.outbox.byteCount > 0 { return closeAfterFlush() }
        finish(.endOfStream)
    }

    /// Delivers the unconsumed bytes and the new bytes after them in one contiguous buffer.
    func deliver(_ slot: StreamSlot.Pointer, freshByteCount: Int) {
        guard let delegate = slot.pointee.delegate else { return }
        var begin = table.pointee.scratch + Limits.unconsumedByteCount
        var total = freshByteCount
        if let block = slot.pointee.unconsumed {
            let count = block.filledByteCount
            begin -= count
            total += count
            begin.copyMemory(from: block.bytes + Int(block.pointee.start), byteCount: count)
            forgetUnconsumed(slot, block)
        }
        let consumed = delegate.received(UnsafeRawBufferPointer(start: begin, count: total), on: self)
        guard isOpen else { return }
        precondition(0...total ~= consumed, "a delegate consumed more than it received")
        guard !slot.pointee.flags.contains(.isClosing) else { return }
        guard total - consumed <= Limits.unconsumedByteCount else { return finish(.unconsumedOverflow) }
        keepUnconsumed(UnsafeRawBufferPointer(start: begin + consumed, count: total - consumed))
    }

    func keepUnconsumed(_ bytes: UnsafeRawBufferPointer) {
        guard let slot, let base = bytes.baseAddress, !bytes.isEmpty else { return }
        let block = table.pointee.pool.take(byteCount: bytes.count)
        block.bytes.copyMemory(from: base, byteCount: bytes.count)
        block.pointee.end = UInt32(bytes.count)
        slot.pointee.unconsumed = block
        if slot.pointee.newcomer != .no { table.pointee.strangerByteCount += Int(block.pointee.capacity) }
    }

    func forgetUnconsumed(_ slot: StreamSlot.Pointer, _ block: Block.Pointer) {
        slot.pointee.unconsumed = nil
        if slot.pointee.newcomer != .no { table.pointee.strangerByteCount -= Int(block.pointee.capacity) }
        table.pointee.pool.put(block)
    }
}
