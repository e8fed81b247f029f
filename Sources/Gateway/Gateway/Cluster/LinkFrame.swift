/// A frame between gateways.
///
/// The header has four bytes with the length of the body, one with the kind, one with a heartbeat's `Lease`, and two with the
/// partition. The body follows. Numbers are little-endian.
struct LinkFrame {
    static let headerByteCount = 8

    enum Kind: UInt8 {
        /// The sender's identity and versions (`LinkHello`); the receiver answers with its own Hello.
        case hello = 1
        /// The reason the connection ends (`LinkClose`).
        case close
        /// A keep-alive without body.
        case heartbeat
        /// A device that is relayed to its owner over a trunk (`RelayPreamble`).
        case relay
        /// The owner's acceptance of a device.
        case relayed
        /// The first frame of a trunk (`RelayTrunk`, `LinkHello`).
        case trunk
        case relayBytes
        /// A number of further bytes that the receiver may send for a device.
        case relayCredit
        /// The end of a device's connection, after all its bytes.
        case relayEnd
        case publishes = 16
        /// A list's devices in a partition.
        case list
        case message
        case published = 32
        case answer
        /// The number of a frame that could not be decoded.
        case unread
    }

    enum Lease: UInt8 {
        /// The value in frames other than heartbeats.
        case unstated
        case held
        case ended
    }

    let kind: Kind
    var lease = Lease.unstated
    let part: Int
    let body: UnsafeRawBufferPointer
}

/// A violation of the framing; the connection is closed.
enum LinkFault: Error, Equatable {
    case frameTooLong(Int)
    case unknownKind(UInt8)
    /// A frame that is not allowed in this state, or whose body does not match its kind.
    case malformed(String)
}

/// Splits a byte stream into frames, regardless of the sizes of its pieces.
///
/// It keeps at most one incomplete frame, and only the received bytes of that frame. It is a class because the handler of a frame
/// may raise `bodyLimit` while `read` is running.
final class LinkFrameReader {
    var bodyLimit = LinkLimits.firstFrameByteCount
    private var kept: [UInt8] = []

    /// Calls `body` with each complete frame in the kept and the new bytes, until `body` returns false.
    ///
    /// - Returns: The number of consumed bytes: all of them unless `body` stopped the reader.
    /// - Throws: The errors of `body`, and `LinkFault` for bytes that are no frames.
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
        // `withUnsafeBytes` does not propagate typed errors.
        let result: Result<Bool, LinkFault> = frame.withUnsafeBytes { bytes in
            do throws(LinkFault) { return .success(try body(try Self.frame(bytes))) } catch { return .failure(error) }
        }
        return try result.get()
    }

    /// Moves bytes to `kept` until it has a complete frame; returns false if more bytes are needed.
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

    /// Returns the byte count of the first frame, or `nil` if its header is incomplete.
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

/// Reads numbers and bytes from the front of a body; returns `nil` past its end.
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
