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
                    break reading
                }
            } catch {
                ending = .init(code: error.code, reason: .webSocketFailed("\(error.reason)"))
                break reading
            }
        }
        // Before the delegate, which may move the stream.
        if reader.isBetweenMessages, ending == nil {
            if kept != nil { slot.pointee.webSocket = nil }
        } else if let kept {
            (kept.reader, kept.ending) = (reader, ending)
        } else {
            slot.pointee.webSocket = WebSocketSession(reader, ending)
        }
        if emptyCount > 0 {
            slot.pointee.delegate?.receivedEmpty(emptyCount, on: self)
            guard isOpen, !slot.pointee.flags.contains(.isClosing) else { return }
        }
        if filled > 0 {
            deliver(slot, freshByteCount: filled)
            guard isOpen else { return }
        }
        endWebSocketIfDue()
    }

    /// Answers the client's close, or tells it what it broke; the delegate is told of the end now.
    ///
    /// True when the stream is ending.
    @discardableResult
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
