internal import Glibc

/// The fuzzer's end of a nonblocking connection to the gateway.
struct StreamEnd {
    private(set) var descriptor: CInt
    private var outgoing: [UInt8] = []
    private var sentCount = 0
    private(set) var incoming: [UInt8] = []
    private var takenCount = 0
    private enum Half { case open, ending, shut }
    /// The state of the fuzzer's sending half.
    private var half = Half.open
    /// Whether the gateway has closed its end; `incoming` then has all bytes that it sent.
    private(set) var isOver = false

    init(_ descriptor: CInt) { self.descriptor = descriptor }

    var isOpen: Bool { descriptor >= 0 && !isOver }
    var hasOutgoing: Bool { sentCount < outgoing.count }

    mutating func write(_ bytes: some Sequence<UInt8>) { outgoing.append(contentsOf: bytes) }

    /// Sends and receives as much as possible without blocking.
    ///
    /// - Returns: true if a byte was sent or received.
    mutating func exchange(reads: Bool = true) -> Bool {
        guard isOpen else { return false }
        var hasMoved = false
        while sentCount < outgoing.count {
            let count = outgoing.withUnsafeBytes {
                send(descriptor, $0.baseAddress! + sentCount, $0.count - sentCount, CInt(MSG_NOSIGNAL))
            }
            guard count > 0 else { break }
            sentCount += count
            hasMoved = true
        }
        if sentCount == outgoing.count {
            outgoing.removeAll(keepingCapacity: true)
            sentCount = 0
            if half == .ending {
                shutdown(descriptor, CInt(SHUT_WR))
                half = .shut
            }
        }
        guard reads else { return hasMoved }
        return receive() || hasMoved
    }

    private mutating func receive() -> Bool {
        var hasMoved = false
        while true {
            let (count, failure) = withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 8) { room in
                let count = recv(descriptor, room.baseAddress, room.count, 0)
                if count > 0 { incoming.append(contentsOf: room[..<count]) }
                return (count, errno)
            }
            if count > 0 {
                hasMoved = true
                continue
            }
            if count == 0 || failure != EAGAIN && failure != EINTR { isOver = true }
            return hasMoved
        }
    }

    /// The bytes that were received and not taken.
    var waiting: ArraySlice<UInt8> { incoming[takenCount...] }

    mutating func take(_ count: Int) {
        takenCount += count
        guard takenCount == incoming.count || takenCount > 1 << 20 else { return }
        incoming.removeFirst(takenCount)
        takenCount = 0
    }

    var isHalfClosed: Bool { half != .open }

    /// Closes the sending half after the written bytes; answers are still read.
    mutating func halfClose() { half = .ending }

    mutating func close() {
        guard descriptor >= 0 else { return }
        Glibc.close(descriptor)
        descriptor = -1
    }
}
