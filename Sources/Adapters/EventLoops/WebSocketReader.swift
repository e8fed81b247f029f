internal import TextForms

/// An incremental parser of a WebSocket client's frames (RFC 6455, section 5), without sockets and clocks.
///
/// Payload is unmasked and passed on as it arrives, so frame length does not affect memory. Control frames, of at most 125 bytes,
/// are buffered. Messages are binary, and their boundaries have no meaning for the stream (Proto/README.md).
package struct WebSocketReader {
    /// A protocol violation by the client; the WebSocket ends with the code.
    package struct Fault: Error, Equatable, Sendable {
        package let code: WebSocketCode
        package let reason: StaticString

        package static func == (left: Fault, right: Fault) -> Bool {
            left.code == right.code && left.reason.description == right.reason.description
        }
    }

    package enum Step: Equatable {
        case incomplete
        /// The number of payload bytes stored unmasked at `target`.
        case payload(Int)
        /// A data frame ended; it may be the last of a message and may be empty.
        case frameEnd(endsMessage: Bool, isEmpty: Bool)
        case ping([UInt8])
        case pong
        /// The client sent a close frame, with this code if any; no frames follow it.
        case close(WebSocketCode?)
    }

    private enum Kind: UInt8 {
        case continuation = 0
        case text = 1
        case binary = 2
        case close = 8
        case ping = 9
        case pong = 10

        var isControl: Bool { rawValue >= 8 }
    }

    private enum Place {
        case head
        case payload
        /// The frame's payload is complete, and its step has not been returned.
        case end
    }

    private var place = Place.head
    private var kind = Kind.continuation
    private var isFinal = false
    /// Whether the last frame of a message is still missing.
    private var isInMessage = false
    private var hasPayload = false
    private var headByteCount: UInt8 = 0
    private var head = InlineArray<14, UInt8>(repeating: 0)
    /// The masking key with its first byte lowest, rotated so that the lowest byte applies to the next payload byte.
    private var mask: UInt32 = 0
    private var missing: UInt64 = 0
    private var control: [UInt8] = []
    /// Whether this side has sent its close frame; only the client's close frame is relevant then.
    private var isPassingOver = false
    /// The number of bytes consumed by the call of `take` that threw.
    private(set) var faultByteCount = 0

    package init() {}

    /// Whether the last byte ended a frame.
    var isBetweenFrames: Bool { place == .head && headByteCount == 0 }

    /// Whether no frame and no message is incomplete.
    package var isBetweenMessages: Bool { place == .head && headByteCount == 0 && !isInMessage }

    /// Consumes received bytes up to the next step.
    ///
    /// - Parameters:
    ///   - bytes: the received bytes that were not consumed.
    ///   - target: the memory for payload, with space for all of `bytes`. It may be the same memory or precede it.
    /// - Returns: the number of consumed bytes and the step. `incomplete` consumes all of them.
    /// - Throws: when the client violates the protocol. No more bytes may be passed then.
    package mutating func take(
        _ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawPointer
    ) throws(Fault) -> (byteCount: Int, step: Step) {
        var taken = 0
        while true {
            switch place {
            case .head:
                let isWhole: Bool
                do throws(Fault) { isWhole = try gatherHead(bytes, &taken) } catch {
                    faultByteCount = taken
                    throw error
                }
                guard isWhole else { return (taken, .incomplete) }
                // The payload of this close frame is not needed, and its length is unchecked.
                if isPassingOver, kind == .close { return (taken, .close(nil)) }
            case .payload:
                guard missing > 0 else {
                    place = .end
                    continue
                }
                let count = Int(min(missing, UInt64(bytes.count - taken)))
                guard count > 0 else { return (taken, .incomplete) }
                let piece = UnsafeRawBufferPointer(rebasing: bytes[taken..<taken + count])
                taken += count
                missing -= UInt64(count)
                if kind.isControl {
                    gatherControl(piece)
                } else {
                    hasPayload = true
                    unmask(piece, into: target)
                    return (taken, .payload(count))
                }
            case .end:
                place = .head
                headByteCount = 0
                faultByteCount = taken
                return (taken, try ended())
            }
        }
    }

    /// Consumes input after this side's close frame and ignores protocol violations.
    ///
    /// - Returns: whether the client's close frame was among the bytes.
    mutating func passOver(_ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawPointer) -> Bool {
        isPassingOver = true
        var offset = 0
        while true {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
            do throws(Fault) {
                let taken = try take(rest, into: target)
                offset += taken.byteCount
                switch taken.step {
                case .incomplete: return false
                case .close: return true
                case .payload, .frameEnd, .ping, .pong: continue
                }
            } catch {
                // A close frame with an invalid code or reason is still the client's close frame.
                return true
            }
        }
    }

    // MARK: Heads

    /// Reads a frame's head; returns `false` when more bytes are needed.
    private mutating func gatherHead(_ bytes: UnsafeRawBufferPointer, _ taken: inout Int) throws(Fault) -> Bool {
        guard gather(2, bytes, &taken) else { return false }
        if isPassingOver {
            kind = head[0] & 0x0F == Kind.close.rawValue ? .close : .continuation
            isFinal = true
        } else {
            try checkStart()
        }
        guard gather(2 + (isMasked ? 4 : 0) + lengthByteCount, bytes, &taken) else { return false }
        try readLength()
        return true
    }

    /// Reads the head's first bytes up to `wanted`; returns `false` when more are needed.
    @inline(__always)
    private mutating func gather(_ wanted: Int, _ bytes: UnsafeRawBufferPointer, _ taken: inout Int) -> Bool {
        while Int(headByteCount) < wanted {
            guard taken < bytes.count else { return false }
            head[Int(headByteCount)] = bytes[taken]
            headByteCount += 1
            taken += 1
        }
        return true
    }

    private var isMasked: Bool { head[1] & 0x80 != 0 }

    private var lengthByteCount: Int {
        switch head[1] & 0x7F {
        case 126: 2
        case 127: 8
        default: 0
        }
    }

    /// Validates the first two bytes, which determine everything but the frame's extended length.
    private mutating func checkStart() throws(Fault) {
        guard head[0] & 0x70 == 0 else { throw Self.broken("reserved bits are set, and no extension was agreed on") }
        guard let kind = Kind(rawValue: head[0] & 0x0F) else { throw Self.broken("a frame has a reserved opcode") }
        guard isMasked else { throw Self.broken("a client's frame is not masked") }
        (self.kind, isFinal) = (kind, head[0] & 0x80 != 0)
        switch kind {
        case .text: throw Fault(code: .unsupportedData, reason: "messages are binary here")
        case .binary:
            guard !isInMessage else { throw Self.broken("a message begins before the last one's end") }
        case .continuation:
            guard isInMessage else { throw Self.broken("a frame continues no message") }
        case .close, .ping, .pong:
            guard isFinal else { throw Self.broken("a control frame is fragmented") }
            guard head[1] & 0x7F <= 125 else { throw Self.broken("a control frame has more than 125 bytes") }
        }
    }

    private mutating func readLength() throws(Fault) {
        let count = lengthByteCount
        var length = UInt64(head[1] & 0x7F)
        if count > 0 {
            length = 0
            for index in 2..<2 + count { length = length << 8 | UInt64(head[index]) }
            guard length > (count == 2 ? 125 : 0xFFFF) || isPassingOver else {
                throw Self.broken("a frame's length is not written in as few bytes as it takes")
            }
            guard length <= UInt64(Int64.max) || isPassingOver else {
                throw Self.broken("a frame's length has its highest bit set")
            }
        }
        mask = 0
        for index in (0..<4).reversed() where isMasked { mask = mask << 8 | UInt32(head[2 + count + index]) }
        (missing, hasPayload, place) = (length, false, .payload)
        if kind == .binary { isInMessage = true }
        control.removeAll(keepingCapacity: false)
    }

    // MARK: Payload

    /// Copies and unmasks; `target` may precede the bytes and overlap them.
    private mutating func unmask(_ bytes: UnsafeRawBufferPointer, into target: UnsafeMutableRawPointer) {
        guard let source = bytes.baseAddress else { return }
        let word = UInt64(mask) << 32 | UInt64(mask)
        var place = 0
        // Each word is read before a byte at or after its position is written.
        while place + 8 <= bytes.count {
            let value = source.loadUnaligned(fromByteOffset: place, as: UInt64.self).littleEndian ^ word
            target.storeBytes(of: value.littleEndian, toByteOffset: place, as: UInt64.self)
            place += 8
        }
        while place < bytes.count {
            let byte = source.load(fromByteOffset: place, as: UInt8.self) ^ UInt8(truncatingIfNeeded: mask)
            target.storeBytes(of: byte, toByteOffset: place, as: UInt8.self)
            turnMask()
            place += 1
        }
    }

    private mutating func gatherControl(_ bytes: UnsafeRawBufferPointer) {
        for byte in bytes {
            control.append(byte ^ UInt8(truncatingIfNeeded: mask))
            turnMask()
        }
    }

    private mutating func turnMask() { mask = mask >> 8 | mask << 24 }

    // MARK: Ends

    private mutating func ended() throws(Fault) -> Step {
        switch kind {
        case .ping:
            defer { control = [] }
            return .ping(control)
        case .pong:
            control = []
            return .pong
        case .close:
            defer { control = [] }
            return .close(try closeCode())
        case .text, .binary, .continuation:
            if isFinal { isInMessage = false }
            return .frameEnd(endsMessage: isFinal, isEmpty: !hasPayload)
        }
    }

    private func closeCode() throws(Fault) -> WebSocketCode? {
        guard !control.isEmpty else { return nil }
        guard control.count >= 2 else { throw Self.broken("a close has one byte, which is no code") }
        let code = WebSocketCode(rawValue: UInt16(control[0]) << 8 | UInt16(control[1]))
        guard code.mayTravel else { throw Self.broken("a close has a code that none may have") }
        let isText = control.withUnsafeBytes { scalarCount(UnsafeRawBufferPointer(rebasing: $0[2...])) != nil }
        guard isText else { throw Fault(code: .invalidText, reason: "a close's reason is not UTF-8") }
        return code
    }

    private static func broken(_ reason: StaticString) -> Fault { Fault(code: .protocolError, reason: reason) }
}

/// The status code of a close frame (RFC 6455, section 7.4).
package struct WebSocketCode: RawRepresentable, Equatable, Sendable {
    package let rawValue: UInt16
    package init(rawValue: UInt16) { self.rawValue = rawValue }

    package static let normal = WebSocketCode(rawValue: 1000)
    package static let protocolError = WebSocketCode(rawValue: 1002)
    package static let unsupportedData = WebSocketCode(rawValue: 1003)
    package static let invalidText = WebSocketCode(rawValue: 1007)

    /// Whether a close frame may contain the code, according to RFC 6455 and its registry or as an application's code.
    var mayTravel: Bool {
        switch rawValue {
        case 1000...1003, 1007...1014, 3000...4999: true
        default: false
        }
    }
}
