internal import CLibevent
internal import Cryptography
internal import Glibc
internal import Platform

extension ByteStream {
    /// Room for `byteCount` bytes at the end of the outbox, to be filled and committed before any other call.
    ///
    /// `nil` when the stream is over or closing, or when the outbox would exceed its limit; then the delegate also gets
    /// `outboxFilled`, in the next turn.
    func reserve(byteCount: Int) -> UnsafeMutableRawBufferPointer? {
        guard let slot, !slot.pointee.flags.contains(.isClosing) else { return nil }
        var limit = slot.pointee.outboxLimit.value
        // The head of a message's frame comes on top of the largest write that the owner thought of.
        if slot.pointee.flags.contains(.isWebSocket) { limit += Limits.webSocketHeadByteCount }
        if let room = slot.pointee.outbox.reserve(byteCount: byteCount, limit: limit, from: &table.pointee.pool) {
            return room
        }
        if !slot.pointee.flags.contains(.hasToldSlow) {
            slot.pointee.flags.formUnion([.hasToldSlow, .owesDrained])
            table.pointee.slow.append(self)
        }
        return nil
    }

    /// Sends the first `byteCount` reserved bytes with this turn's write.
    func commit(byteCount: Int) {
        guard let slot else { return }
        slot.pointee.outbox.commit(byteCount: byteCount)
        markDirty(slot)
    }

    /// Writes `byteCount` bytes that `fill` puts down; on a WebSocket they are a message.
    ///
    /// `false` when the stream is over or closing, or when the outbox would exceed its limit; then the delegate also gets
    /// `outboxFilled`, in the next turn.
    package func write(byteCount: Int, _ fill: (UnsafeMutableRawBufferPointer) -> Void) -> Bool {
        guard let slot else { return false }
        guard slot.pointee.flags.contains(.isWebSocket) else {
            guard let room = reserve(byteCount: byteCount) else { return false }
            fill(room)
            commit(byteCount: byteCount)
            return true
        }
        let headByteCount = WebSocketSession.Head.byteCount(payload: byteCount)
        guard let room = reserve(byteCount: headByteCount + byteCount) else { return false }
        WebSocketSession.Head.write(WebSocketSession.binary, payload: byteCount, to: room)
        fill(UnsafeMutableRawBufferPointer(rebasing: room[headByteCount...]))
        commit(byteCount: headByteCount + byteCount)
        if slot.pointee.side.pointee.isPing { awaitQuiet(slot) }
        return true
    }

    /// Writes a copy of `bytes`, as the other `write` does.
    package func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        write(byteCount: bytes.count) { $0.copyMemory(from: bytes) }
    }

    /// Fetches the memory that a write will use.
    package func foresee() { prefetch(place, byteCount: MemoryLayout<StreamSlot>.size) }

    /// Has `outboxDrained` called on the delegate when everything written so far was sent, even if nothing has to wait.
    package func notifyWhenDrained() {
        guard let slot else { return }
        slot.pointee.flags.insert(.owesDrained)
        markDirty(slot)
    }

    func tellSlow() {
        guard let slot else { return }
        slot.pointee.delegate?.outboxFilled(self)
    }

    func tellDrained() {
        guard let slot, !slot.pointee.flags.contains(.isClosing) else { return }
        slot.pointee.delegate?.outboxDrained(self)
    }

    func markDirty(_ slot: StreamSlot.Pointer) {
        guard !slot.pointee.flags.contains(.isDirty) else { return }
        slot.pointee.flags.insert(.isDirty)
        table.pointee.dirty.append(slot)
    }

    /// Sends what the socket takes; the rest waits for its next edge.
    func flush() {
        guard let slot, slot.pointee.flags.isDisjoint(with: [.isBlocked, .isHandshaking]) else { return }
        while slot.pointee.outbox.byteCount > 0 {
            let sent: Int
            if let tls = slot.pointee.tls {
                switch sendRecord(slot, tls) {
                case .bytes(let count): sent = count
                case .wantsRead, .wantsWrite:
                    slot.pointee.flags.formUnion([.isBlocked, .owesDrained])
                    return
                case .ended: return finish(.endOfStream)
                case .failed(let reason): return finish(.tlsFailed(reason))
                }
            } else {
                sent = sendGathered(slot)
                if sent < 0 {
                    if errno == EINTR { continue }
                    guard errno == EAGAIN else { return finish(.failed(.last("sendmsg"))) }
                    slot.pointee.flags.formUnion([.isBlocked, .owesDrained])
                    return
                }
            }
            slot.pointee.outbox.remove(byteCount: sent, into: &table.pointee.pool)
        }
        // A reservation without a commit may have left an empty block; an idle stream holds none.
        slot.pointee.outbox.removeAll(into: &table.pointee.pool)
        slot.pointee.flags.remove(.hasToldSlow)
        if slot.pointee.flags.contains(.owesDrained) {
            slot.pointee.flags.remove(.owesDrained)
            table.pointee.drained.append(self)
        }
        if slot.pointee.flags.contains(.isClosing), !awaitsClose(slot) { endOutput(slot) }
    }

    /// Says that nothing more comes: in TLS, then in TCP.
    func endOutput(_ slot: StreamSlot.Pointer) {
        guard !slot.pointee.flags.contains(.isShut) else { return }
        slot.pointee.flags.insert(.isShut)
        slot.pointee.tls?.sayGoodbye()
        shutdown(slot.pointee.descriptor, CInt(SHUT_WR))
        // The peer's end is read already: no edge follows.
        if slot.pointee.flags.contains(.hasPeerEnd) { enqueueReadAgain() }
    }

    /// One call over the outbox's first blocks.
    private func sendGathered(_ slot: StreamSlot.Pointer) -> Int {
        // A frame or two in one block, the usual case: the plain call reads no lists from our memory.
        if let head = slot.pointee.outbox.head, head.pointee.next == nil {
            return send(
                slot.pointee.descriptor, head.bytes + Int(head.pointee.start), head.filledByteCount, CInt(MSG_NOSIGNAL))
        }
        return withUnsafeTemporaryAllocation(of: iovec.self, capacity: Limits.gatheredPieceCount) { vectors in
            var count = 0
            var next = slot.pointee.outbox.head
            while let block = next, count < vectors.count {
                if block.filledByteCount > 0 {
                    vectors[count] = iovec(
                        iov_base: block.bytes + Int(block.pointee.start), iov_len: block.filledByteCount)
                    count += 1
                }
                next = block.pointee.next
            }
            var message = msghdr()
            message.msg_iov = vectors.baseAddress
            message.msg_iovlen = count
            return sendmsg(slot.pointee.descriptor, &message, CInt(MSG_NOSIGNAL))
        }
    }

    /// One TLS record from the outbox's first blocks, gathered, since each write of OpenSSL is a record and a call.
    private func sendRecord(_ slot: StreamSlot.Pointer, _ tls: TLSSession) -> TLSSession.Transfer {
        withUnsafeTemporaryAllocation(byteCount: Limits.recordByteCount, alignment: 16) { record in
            var count = 0
            var next = slot.pointee.outbox.head
            while let block = next, count < record.count {
                let piece = min(block.filledByteCount, record.count - count)
                if piece > 0 {
                    UnsafeMutableRawBufferPointer(rebasing: record[count...]).copyMemory(
                        from: UnsafeRawBufferPointer(start: block.bytes + Int(block.pointee.start), count: piece))
                    count += piece
                }
                next = block.pointee.next
            }
            return tls.write(UnsafeRawBufferPointer(rebasing: record[..<count]))
        }
    }
}
