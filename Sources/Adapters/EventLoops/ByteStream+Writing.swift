internal import CLibevent
internal import Cryptography
internal import Glibc
internal import Platform

extension ByteStream {
    /// Reserves `byteCount` bytes at the end of the outbox.
    ///
    /// The bytes must be filled and committed before any other call. Returns `nil` when the stream is closed or closing. Also
    /// returns `nil` when the outbox would exceed its limit; the delegate's `outboxFilled` is then called in the next turn.
    func reserve(byteCount: Int) -> UnsafeMutableRawBufferPointer? {
        guard let slot, !slot.pointee.flags.contains(.isClosing) else { return nil }
        var limit = slot.pointee.outboxLimit.value
        // The limit is for payload, so the head of a message's frame is added.
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

    func commit(byteCount: Int) {
        guard let slot else { return }
        slot.pointee.outbox.commit(byteCount: byteCount)
        markDirty(slot)
    }

    /// Writes `byteCount` bytes that `fill` stores.
    ///
    /// On a WebSocket the bytes form a message. Returns `false` when the stream is closed or closing. Also returns `false` when
    /// the outbox would exceed its limit; the delegate's `outboxFilled` is then called in the next turn.
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

    package func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        write(byteCount: bytes.count) { $0.copyMemory(from: bytes) }
    }

    package func foresee() { prefetch(place, byteCount: MemoryLayout<StreamSlot>.size) }

    /// Requests a call of `outboxDrained` once all written bytes are sent, even if none are pending.
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

    /// Sends until the socket would block; the remaining bytes wait for its next edge.
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
        // A reservation without a commit may have left an empty block. An idle stream must hold none.
        slot.pointee.outbox.removeAll(into: &table.pointee.pool)
        slot.pointee.flags.remove(.hasToldSlow)
        if slot.pointee.flags.contains(.owesDrained) {
            slot.pointee.flags.remove(.owesDrained)
            table.pointee.drained.append(self)
        }
        if slot.pointee.flags.contains(.isClosing), !awaitsClose(slot) { endOutput(slot) }
    }

    /// Ends the output: close_notify for TLS, then a TCP shutdown.
    func endOutput(_ slot: StreamSlot.Pointer) {
        guard !slot.pointee.flags.contains(.isShut) else { return }
        slot.pointee.flags.insert(.isShut)
        slot.pointee.tls?.sayGoodbye()
        shutdown(slot.pointee.descriptor, CInt(SHUT_WR))
        // The peer's end was already read, so no edge follows.
        if slot.pointee.flags.contains(.hasPeerEnd) { enqueueReadAgain() }
    }

    private func sendGathered(_ slot: StreamSlot.Pointer) -> Int {
        // One block with a frame or two is the usual case. A plain `send` needs no list of pieces.
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

    /// Sends one TLS record gathered from the outbox's first blocks, because each write of OpenSSL is a record and a system call.
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
