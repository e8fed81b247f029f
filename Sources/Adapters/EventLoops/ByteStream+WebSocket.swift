internal import Glibc
internal import Structures

// WebSocket streams: the delegate receives the payload without frames, and each write is a message.
extension ByteStream {
    package var isWebSocket: Bool { slot?.pointee.flags.contains(.isWebSocket) ?? false }

    /// Switches the stream to WebSocket frames, as the server.
    ///
    /// The last byte before the first frame must be written, and no received bytes may be unconsumed.
    package func beginWebSocket() {
        guard let slot, !slot.pointee.flags.contains(.isWebSocket) else { return }
        slot.pointee.flags.insert(.isWebSocket)
        awaitQuiet(slot)
    }

    /// Schedules a ping for the case that nothing is sent until then.
    func awaitQuiet(_ slot: StreamSlot.Pointer) {
        table.pointee.setDeadline(slot, at: loop.now + loop.webSocketQuietMilliseconds, isPing: true)
    }

    /// Sends a ping, because proxies close idle connections.
    ///
    /// The pong is ignored: a browser sends it even for a suspended page. The heartbeat decides whether the device is alive.
    func pingIfQuiet() {
        guard let slot, slot.pointee.flags.isDisjoint(with: [.isClosing, .isHandshaking]) else { return }
        if slot.pointee.outbox.byteCount == 0 { writeControl(WebSocketSession.ping, []) }
        awaitQuiet(slot)
    }

    /// Writes bytes that are no message: a response before the first frame, or a control frame.
    package func writeRaw(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let room = reserve(byteCount: bytes.count) else { return false }
        room.copyMemory(from: bytes)
        commit(byteCount: bytes.count)
        return true
    }

    func receiveFrames(_ slot: StreamSlot.Pointer, _ bytes: UnsafeMutableRawBufferPointer) {
        guard let start = bytes.baseAddress else { return }
        // Most reads begin and end between messages, so their reader needs no allocation.
        let kept = slot.pointee.webSocket
        var reader = kept?.reader ?? WebSocketReader()
        var ending = kept?.ending
        var hasClientClosed = false
        var (offset, filled, emptyCount) = (0, 0, 0)
        reading: while true {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
            do throws(WebSocketReader.Fault) {
                let taken = try reader.take(rest, into: start + filled)
                offset += taken.byteCount
                switch taken.step {
                case .incomplete: break reading
                case .payload(let count): filled += count
                case .frameEnd(_, let isEmpty): if isEmpty { emptyCount += 1 }
                case .ping(let payload):
                    emptyCount += 1
                    writeControl(WebSocketSession.pong, payload)
                case .pong: emptyCount += 1
                case .close(let code):
                    ending = .init(code: code ?? .normal, reason: .endOfStream)
                    hasClientClosed = true
                    break reading
                }
            } catch {
                offset += reader.faultByteCount
                hasClientClosed = reader.isBetweenFrames
                ending = .init(code: error.code, reason: .webSocketFailed("\(error.reason)"))
                break reading
            }
        }
        // The state is stored before the delegate runs, because the delegate may move the stream.
        if reader.isBetweenMessages, ending == nil {
            if kept != nil { slot.pointee.webSocket = nil }
        } else {
            let session = kept ?? WebSocketSession()
            (session.reader, session.ending, session.hasClientClosed) = (reader, ending, hasClientClosed)
            if kept == nil { slot.pointee.webSocket = session }
        }
        if emptyCount > 0 {
            slot.pointee.delegate?.receivedEmpty(emptyCount, on: self)
            guard isOpen, !slot.pointee.flags.contains(.isClosing) else { return }
        }
        if filled > 0 {
            deliver(slot, freshByteCount: filled)
            guard isOpen else { return }
        }
        if endWebSocketIfDue(), awaitsClose(slot) {
            receiveClose(slot, UnsafeMutableRawBufferPointer(rebasing: bytes[offset...]))
        }
    }

    /// Returns whether the client's close frame is still pending.
    func awaitsClose(_ slot: StreamSlot.Pointer) -> Bool {
        slot.pointee.flags.contains(.isWebSocket) && slot.pointee.webSocket?.hasClientClosed != true
    }

    /// Decodes input of a closing WebSocket only to find the client's close frame; the output is shut down after that frame.
    func receiveClose(_ slot: StreamSlot.Pointer, _ bytes: UnsafeMutableRawBufferPointer) {
        guard let start = bytes.baseAddress else { return }
        let session = slot.pointee.webSocket ?? WebSocketSession()
        slot.pointee.webSocket = session
        session.hasClientClosed = session.reader.passOver(UnsafeRawBufferPointer(bytes), into: start)
        if session.hasClientClosed { markDirty(slot) }
    }

    /// Answers the client's close frame or protocol error and returns whether the stream is ending.
    func endWebSocketIfDue() -> Bool {
        guard let slot, let ending = slot.pointee.webSocket?.ending else { return false }
        guard !slot.pointee.flags.contains(.isClosing) else { return true }
        table.pointee.endings.append(
            .init(stream: self, delegate: slot.pointee.delegate, tag: slot.pointee.tag, reason: ending.reason))
        // The queued notification is the delegate's last call.
        slot.pointee.delegate = nil
        closeAfterFlush(code: ending.code)
        return true
    }

    /// Writes a close frame if this is a WebSocket; its four bytes may exceed the outbox's limit, because nothing follows.
    func writeClose(_ code: WebSocketCode) {
        guard let slot, slot.pointee.flags.contains(.isWebSocket),
            let room = slot.pointee.outbox.reserve(byteCount: 4, limit: .max, from: &table.pointee.pool)
        else { return }
        WebSocketSession.Head.write(WebSocketSession.close, payload: 2, to: room)
        room.storeBytes(of: code.rawValue.bigEndian, toByteOffset: 2, as: UInt16.self)
        commit(byteCount: 4)
    }

    private func writeControl(_ start: UInt8, _ payload: [UInt8]) {
        guard let room = reserve(byteCount: 2 + payload.count) else { return }
        WebSocketSession.Head.write(start, payload: payload.count, to: room)
        for (index, byte) in payload.enumerated() { room[2 + index] = byte }
        commit(byteCount: 2 + payload.count)
    }
}
