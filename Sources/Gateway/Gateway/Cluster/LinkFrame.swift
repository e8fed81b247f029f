/// One frame between gateways.
///
/// Four bytes have the length of its body; its kind, a byte with a heartbeat's `Lease` and two bytes with its part follow,
/// then the body. Numbers are little-endian.
struct LinkFrame {
    static let headerByteCount = 8

    enum Kind: UInt8 {
        /// Who connects, and what it speaks (`LinkHello`); the other side answers with its own.
        case hello = 1
        /// Why the connection ends (`LinkClose`).
        case close
        /// The sender is there; no body.
        case heartbeat
        /// A device on its way to its owner, over a trunk (`RelayPreamble`).
        case relay
        /// The owner has taken the device.
        case relayed
        /// The connection is a trunk (`RelayTrunk`, `LinkHello`).
        case trunk
        /// Bytes of a device.
        case relayBytes
        /// A number of bytes that may be sent of a device, beyond what was sent.
        case relayCredit
        /// A device's connection is over, behind the bytes before.
        case relayEnd
        /// Publishes for a part.
        case publishes = 16
        /// A list's devices in a part.
        case list
        /// Any other message for a part.
        case message
        /// Answers to publishes and lists.
        case published = 32
        /// Any other answer.
        case answer
        /// The message of this number could not be read.
        case unread
    }

    /// Whether the sender of a heartbeat holds its lease in the register.
    enum Lease: UInt8 {
        /// Any other frame.
        case unstated
        case held
        case ended
    }

    let kind: Kind
    var lease = Lease.unstated
    let part: Int
    let body: UnsafeRawBufferPointer
}

/// Why a peer's bytes are no frames; the connection ends.
enum LinkFault: Error, Equatable {
    case frameTooLong(Int)
    case unknownKind(UInt8)
    /// A frame that does not belong here, or whose body is not what its kind says.
    case malformed(String)
}

/// Takes a stream apart into frames, whatever pieces it comes in.
///
/// Holds at most one unfinished frame, and of that only what has arrived. An object, since a frame may change the bound of
/// those behind it while they are being read.
final class LinkFrameReader {
    /// The longest body that is allowed now.
    var bodyLimit = LinkLimits.firstFrameByteCount
    private var kept: [UInt8] = []

    /// Calls `body` with each complete frame in `bytes`, behind what earlier pieces left.
    ///
    /// `body` returns false when the reader is to stop; frames behind that one are left.
    ///
    /// - Returns: how many of `bytes` are done with: all of them unless `body` stopped the reader.
    /// - Throws: what `body` throws, and what no peer of this protocol sends.
    func read(
        _ bytes: UnsafeRawBufferPointer, _ body: (LinkFrame) throws(LinkFault) -> Bool
    ) throws(LinkFault) -> Int {
        var rest = bytes
        while true {
            if kept.isEmpty {
                guard let length = try Self.length(rest, bodyLimit), length <= rest.count else {
                    kept.append(contentsOf: rest)
                    return bytes.count
                }
                let frame = UnsafeRawBufferPointer(rebasing: rest[..<length])
                rest = UnsafeRawBufferPointer(rebasing: rest[length...])
                guard try body(try Self.frame(frame)) else { return bytes.count - rest.count }
            } else {
                guard try complete(&rest) else { return bytes.count }
                var frame: [UInt8] = []
                swap(&frame, &kept)
                let isGoingOn = try Self.whole(frame, body)
                if kept.isEmpty, frame.count <= LinkLimits.batchByteCount {
                    frame.removeAll(keepingCapacity: true)
                    swap(&frame, &kept)
                }
                guard isGoingOn else { return bytes.count - rest.count }
            }
        }
    }

    private static func whole(
        _ frame: [UInt8], _ body: (LinkFrame) throws(LinkFault) -> Bool
    ) throws(LinkFault) -> Bool {
        // The standard library's call passes on no typed error.
        let result: Result<Bool, LinkFault> = frame.withUnsafeBytes { bytes in
            do throws(LinkFault) { return .success(try body(try Self.frame(bytes))) } catch { return .failure(error) }
        }
        return try result.get()
    }

    /// Moves to `kept` what it lacks of its frame; false when there is not enough.
    private func complete(_ rest: inout UnsafeRawBufferPointer) throws(LinkFault) -> Bool {
        func move(upTo count: Int) {
            let wanted = min(count - kept.count, rest.count)
            kept.append(contentsOf: rest[..<wanted])
            rest = UnsafeRawBufferPointer(rebasing: rest[wanted...])
        }
        if kept.count < LinkFrame.headerByteCount { move(upTo: LinkFrame.headerByteCount) }
        guard kept.count >= LinkFrame.headerByteCount else { return false }
        let count = kept.withUnsafeBytes { Int(UInt32(littleEndian: $0.loadUnaligned(as: UInt32.self))) }
        guard count <= bodyLimit else { throw .frameTooLong(count) }
        let length = LinkFrame.headerByteCount + count
        move(upTo: length)
        return kept.count == length
    }

    /// The bytes of the first frame; `nil`: its header is not all here yet.
    private static func length(_ bytes: UnsafeRawBufferPointer, _ limit: Int) throws(LinkFault) -> Int? {
        guard bytes.count >= LinkFrame.headerByteCount else { return nil }
        let count = Int(UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self)))
        guard count <= limit else { throw .frameTooLong(count) }
        return LinkFrame.headerByteCount + count
    }

    private static func frame(_ bytes: UnsafeRawBufferPointer) throws(LinkFault) -> LinkFrame {
        guard let kind = LinkFrame.Kind(rawValue: bytes[4]) else { throw .unknownKind(bytes[4]) }
        return LinkFrame(
            kind: kind, lease: LinkFrame.Lease(rawValue: bytes[5]) ?? .unstated,
            part: Int(UInt16(littleEndian: bytes.loadUnaligned(fromByteOffset: 6, as: UInt16.self))),
            body: UnsafeRawBufferPointer(rebasing: bytes[LinkFrame.headerByteCount...]))
    }
}

/// Reads numbers and bytes of a body from the front; `nil` past its end.
struct LinkCursor {
    private(set) var rest: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) { rest = bytes }

    var isAtEnd: Bool { rest.isEmpty }

    @inline(__always)
    mutating func next<Number: FixedWidthInteger>(_ type: Number.Type = Number.self) -> Number? {
        guard rest.count >= MemoryLayout<Number>.size else { return nil }
        defer { rest = UnsafeRawBufferPointer(rebasing: rest[MemoryLayout<Number>.size...]) }
        return Number(littleEndian: rest.loadUnaligned(as: Number.self))
    }

    @inline(__always)
    mutating func next(byteCount: some BinaryInteger) -> UnsafeRawBufferPointer? {
        guard let count = Int(exactly: byteCount), 0...rest.count ~= count else { return nil }
        defer { rest = UnsafeRawBufferPointer(rebasing: rest[count...]) }
        return UnsafeRawBufferPointer(rebasing: rest[..<count])
    }
}
