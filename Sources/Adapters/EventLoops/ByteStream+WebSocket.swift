internal import Glibc
internal import Structures

// A stream that is a WebSocket: its delegate sees the payload's bytes and nothing of the frames, and each write is a message.
extension ByteStream {
    package var isWebSocket: Bool { slot?.pointee.flags.contains(.isWebSocket) ?? false }

    /// Reads and writes frames of a WebSocket from now on, as the server.
    ///
    /// To be called behind the last byte that is no frame: nothing received may be unconsumed.
    package func beginWebSocket() {
        guard let slot, !slot.pointee.flags.contains(.isWebSocket) else { return }
        slot.pointee.flags.insert(.isWebSocket)
        awaitQuiet(slot)
    }

    /// Lets the client be pinged when nothing is sent to it for a while.
    func awaitQuiet(_ slot: StreamSlot.Pointer) {
        table.pointee.setDeadline(slot, at: loop.now + loop.webSocketQuietMilliseconds, isPing: true)
    }

    /// Sends a ping, since proxies end connections on which nothing passes.
    ///
    /// The pong counts for nothing: a browser answers for a page that stands still. The heartbeat decides whether the
    /// device is alive.
    func pingIfQuiet() {
        guard let slot, slot.pointee.flags.isDisjoint(with: [.isClosing, .isHandshaking]) else { return }
        if slot.pointee.outbox.byteCount == 0 { writeControl(WebSocketSession.ping, []) }
        awaitQuiet(slot)
    }

    /// Writes bytes that are no message: an answer before the first frame, or a control frame.
    package func writeRaw(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let room = reserve(byteCount: bytes.count) else { return false }
        room.copyMemory(from: bytes)
        commit(byteCount: bytes.count)
        return true
    }

    /// Takes what was received in place, and shows the delegate its payload.
    func receiveFrames(_ slot: StreamSlot.Pointer, _ bytes: UnsafeMutableRawBufferPointer) {
        guard let start = bytes.baseAddress else { return }
        // Most reads begin and end between two messages: the reader of those never leaves the stack.
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
        // Before the delegate, which may move the stream.
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

    /// Whether our close frame is on its way and the client's has not come.
    func awaitsClose(_ slot: StreamSlot.Pointer) -> Bool {
        slot.pointee.flags.contains(.isWebSocket) && slot.pointee.webSocket?.hasClientClosed != true
    }

    /// Looks for the client's close frame alone in what a closing WebSocket receives; our half ends behind it.
    func receiveClose(_ slot: StreamSlot.Pointer, _ bytes: UnsafeMutableRawBufferPointer) {
        guard let start = bytes.baseAddress else { return }
        let session = slot.pointee.webSocket ?? WebSocketSession()
        slot.pointee.webSocket = session
        session.hasClientClosed = session.reader.passOver(UnsafeRawBufferPointer(bytes), into: start)
        if session.hasClientClosed { markDirty(slot) }
    }

    /// Answers the client's close, or tells it what it broke; the delegate is told of the end now.
    ///
    /// True when the stream is ending.
    func endWebSocketIfDue() -> Bool {
        guard let slot, let ending = slot.pointee.webSocket?.ending else { return false }
        guard !slot.pointee.flags.contains(.isClosing) else { return true }
        table.pointee.endings.append(
            .init(stream: self, delegate: slot.pointee.delegate, tag: slot.pointee.tag, reason: ending.reason))
        // What still happens to the stream is nobody's business any more.
        slot.pointee.delegate = nil
        closeAfterFlush(code: ending.code)
        return true
    }

    /// Writes a close frame, if this is a WebSocket; its four bytes go beyond the outbox's limit, since nothing follows.
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
