internal import Cryptography

// The records of the four kinds of connections, in slabs that never move. The poller's tokens contain their indices.

/// A device's connection, about 100 bytes in any phase.
struct DeviceConnection {
    enum Phase: UInt8 {
        case absent, connecting
        case securing
        /// Waits for the WebSocket upgrade.
        case upgrading
        case greeting, ready, failed
    }

    var descriptor: CInt = -1
    /// The TLS session, or `nil` without TLS.
    var tls: TLSSession?
    var phase = Phase.absent
    var attempts: UInt8 = 0
    var identity: DeviceIdentity
    var startedAt: Int64 = 0
    /// The highest sequence received in its stream, acked after each read.
    var lastSequence: UInt64 = 0
    var input = Leftover()
    var output = Leftover()
    /// The incomplete frame from the WebSocket messages so far.
    var message = Leftover()
}

/// A connection to the senders' listener, with its unsent bytes.
struct SenderConnection {
    enum Phase: UInt8 { case connecting, securing, greeting, ready, failed }

    var descriptor: CInt = -1
    var tls: TLSSession?
    var phase = Phase.connecting
    var input = Leftover()
    let buffer = UnsafeMutableRawPointer.allocate(byteCount: Limits.sendByteCount, alignment: 64)
    /// The offsets of the unsent bytes: sent up to `head`, filled up to `tail`.
    var head = 0
    var tail = 0

    func hasRoom(_ byteCount: Int) -> Bool { tail + byteCount <= Limits.sendByteCount }
}

struct HTTPConnection {
    enum Phase: UInt8 { case closed, connecting, securing, ready }

    var descriptor: CInt = -1
    var tls: TLSSession?
    var phase = Phase.closed
    var attempts = 0
    struct Request {
        var sentAt: Int64
        /// The ledger number of the request's first message; the others follow it.
        var firstNumber: UInt64
    }

    /// A ring buffer of outstanding requests, oldest first.
    let requests = UnsafeMutablePointer<Request>.allocate(capacity: Limits.pipelineDepth)
    var first = 0
    var outstanding = 0
    var input = Leftover()
    var output = Leftover()

    mutating func push(_ request: Request) {
        requests[(first + outstanding) % Limits.pipelineDepth] = request
        outstanding += 1
    }

    mutating func pop() -> Request? {
        guard outstanding > 0 else { return nil }
        let request = requests[first]
        first = (first + 1) % Limits.pipelineDepth
        outstanding -= 1
        return request
    }
}

/// A keep-alive connection to the admin listener, which leases and settles in turn.
struct AdminConnection {
    enum Phase: UInt8 { case closed, connecting, securing, ready, leasing, settling }

    var descriptor: CInt = -1
    var tls: TLSSession?
    var phase = Phase.closed
    var attempts = 0
    var sentAt: Int64 = 0
    /// The received bytes; answers are large and are parsed in place.
    let buffer = UnsafeMutableRawPointer.allocate(byteCount: Limits.leaseByteCount, alignment: 64)
    var filled = 0
    var request: [UInt8] = []
    /// The number of bytes of `request` that were sent.
    var sent = 0
    /// Whether the last lease was empty, so that the next one waits for jobs.
    var isPatient = false
    /// The number of jobs being settled that this run did not create.
    var foreign = 0
}
