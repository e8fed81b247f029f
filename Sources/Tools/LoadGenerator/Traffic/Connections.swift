internal import Cryptography

// The records of the four kinds of connection. They live in slabs that never move; an index is the poller's token.

/// One device: about a hundred bytes, whatever it is doing.
struct DeviceConnection {
    enum Phase: UInt8 {
        case absent, connecting
        /// In its TLS handshake.
        case securing
        /// Asks for a WebSocket.
        case upgrading
        case greeting, ready, failed
    }

    var descriptor: CInt = -1
    /// `nil`: the bytes are plain.
    var tls: TLSSession?
    var phase = Phase.absent
    var attempts: UInt8 = 0
    var identity: DeviceIdentity
    var startedAt: Int64 = 0
    /// The highest sequence seen in stream 0 and what of it is acked.
    var lastSequence: UInt64 = 0
    var input = Leftover()
    var output = Leftover()
    /// Of a WebSocket: the beginning of a frame of ours, out of the messages that brought it.
    var message = Leftover()
}

/// One connection on the senders' listener, with its bytes still to be sent.
struct SenderConnection {
    enum Phase: UInt8 { case connecting, securing, greeting, ready, failed }

    var descriptor: CInt = -1
    var tls: TLSSession?
    var phase = Phase.connecting
    var input = Leftover()
    let buffer = UnsafeMutableRawPointer.allocate(byteCount: Limits.sendByteCount, alignment: 64)
    /// Sent up to here, and filled up to there.
    var head = 0
    var tail = 0

    func hasRoom(_ byteCount: Int) -> Bool { tail + byteCount <= Limits.sendByteCount }
}

/// One keep-alive connection to the push API.
struct HTTPConnection {
    enum Phase: UInt8 { case closed, connecting, securing, ready }

    var descriptor: CInt = -1
    var tls: TLSSession?
    var phase = Phase.closed
    var attempts = 0
    struct Request {
        var sentAt: Int64
        /// The ledger's number of the request's first message; the others follow it.
        var firstNumber: UInt64
    }

    /// The outstanding requests, oldest first, in a ring.
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

/// One keep-alive connection to the admin listener, which leases, settles and leases again.
struct AdminConnection {
    enum Phase: UInt8 { case closed, connecting, securing, ready, leasing, settling }

    var descriptor: CInt = -1
    var tls: TLSSession?
    var phase = Phase.closed
    var attempts = 0
    var sentAt: Int64 = 0
    /// Answers are large: they gather here and are read in place.
    let buffer = UnsafeMutableRawPointer.allocate(byteCount: Limits.leaseByteCount, alignment: 64)
    var filled = 0
    var request: [UInt8] = []
    /// How much of `request` the socket has taken.
    var sent = 0
    /// The last lease found nothing: the next one waits.
    var isPatient = false
    /// Jobs under settlement that this run did not make.
    var foreign = 0
}
