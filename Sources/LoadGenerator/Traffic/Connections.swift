// The records of the three kinds of connection. They live in slabs that never move; an index is the poller's token.

/// One device: about a hundred bytes, whatever it is doing.
struct DeviceConnection {
    enum Phase: UInt8 { case absent, connecting, greeting, ready, failed }

    var descriptor: CInt = -1
    var phase = Phase.absent
    var attempts: UInt8 = 0
    var identity: DeviceIdentity
    var startedAt: Int64 = 0
    /// The highest sequence seen in stream 0 and what of it is acked.
    var lastSequence: UInt64 = 0
    var input = Leftover()
    var output = Leftover()
}

/// One connection on the senders' listener, with its bytes still to be sent.
struct SenderConnection {
    enum Phase: UInt8 { case connecting, greeting, ready, failed }

    var descriptor: CInt = -1
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
    enum Phase: UInt8 { case closed, connecting, ready }

    var descriptor: CInt = -1
    var phase = Phase.closed
    var attempts = 0
    /// When each outstanding request was sent, oldest first, in a ring.
    let sentAt = UnsafeMutablePointer<Int64>.allocate(capacity: Limits.pipelineDepth)
    var first = 0
    var outstanding = 0
    var input = Leftover()
    var output = Leftover()

    mutating func pushSent(_ time: Int64) {
        sentAt[(first + outstanding) % Limits.pipelineDepth] = time
        outstanding += 1
    }

    mutating func popSent() -> Int64? {
        guard outstanding > 0 else { return nil }
        let time = sentAt[first]
        first = (first + 1) % Limits.pipelineDepth
        outstanding -= 1
        return time
    }
}
