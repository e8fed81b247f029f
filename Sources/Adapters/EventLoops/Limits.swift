/// The bounds of this module, each with its reason.
package enum Limits {
    /// How often a loop's tick hooks run and its timeouts are looked at: fine enough for deadlines of a second.
    package static let tickMilliseconds: UInt64 = 50

    /// A burst of submitted work beyond this does not keep its array.
    static let keptWorkCount = 4096

    /// Waiting connections taken in one go, so that a storm of connects leaves room for those already in.
    static let acceptBatchCount = 64
    /// The same of an HTTP server: a connection for one request waits behind all that the kernel has from before.
    ///
    /// To take one costs some microseconds, a tenth of what its request costs; requests have bounds of their own.
    static let httpAcceptBatchCount = 256
    /// The rest of a listener that ran out of descriptors, before it tries again.
    static let acceptPauseMilliseconds: UInt64 = 100
    /// A balancer's PROXY header: 52 bytes with IPv6, and what TLS and cloud balancers add behind.
    static let proxyHeaderByteCount = 2_048
    /// A balancer sends its header at once; it only opens the connection when a client is there.
    static let proxyHeaderMilliseconds = 5_000
    /// Connections of one listener that wait for their header.
    static let proxyHeaderCount = 4_096
    /// Connections the kernel may hold before we accept them; it cuts this to `net.core.somaxconn`.
    static let listenBacklogCount: Int32 = 4096

    /// Sets of eight addresses in the book of what each address does: 65,536 addresses in 4 MiB, and no more.
    static let addressSetCount = 8_192
    /// An address may use so much of its rates at once: those behind one router come back in a burst when it does.
    static let addressBurstMilliseconds: UInt64 = 2_000
    /// When an address comes back that is refused: at once would be the same again, and one that was sent away for
    /// long would wait behind a crowd that has gone.
    static let addressLeastMilliseconds: UInt32 = 1_000
    static let addressLongestMilliseconds: UInt32 = 10_000
    /// So long at most an address pays for one request's bytes, whatever its bound.
    static let addressDebtMilliseconds: UInt64 = 60_000
    /// An address with all its connections in use: one that is lost ends with its heartbeat, not within a second.
    static let addressFullMilliseconds: UInt32 = 30_000

    /// One receive: large enough that a full socket buffer takes few calls.
    package static let receiveByteCount = 64 * 1024
    /// Bytes a delegate may leave unconsumed: one maximum frame (64 KiB and header) and one more receive behind it.
    package static let unconsumedByteCount = 160 * 1024
    /// Bytes read from one stream in one turn; the rest waits until every other stream had its turn.
    package static let readByteCountPerTurn = 256 * 1024

    /// A stream's outbox unless its owner says otherwise: a window of frames; it must hold a maximum frame.
    package static let outboxByteCount = 256 * 1024
    /// A pooled block with its header: a few typical frames, and what many streams use in one turn stays small.
    static let blockByteCount = 2048
    /// Blocks a loop keeps for reuse (16 MiB); more go back to the allocator.
    static let pooledBlockCount = 8192
    /// Pieces of one `sendmsg`; the kernel takes 1,024, but the list lies on our stack.
    static let gatheredPieceCount = 64
    /// Bytes of one TLS record, which is what OpenSSL sends at a time.
    static let recordByteCount = 16 * 1024

    /// What is fetched of a delegate before it is called: its first fields.
    static let delegateByteCount = 128

    /// A TLS handshake costs two round trips; ten seconds forgive a bad mobile network.
    package static let handshakeMilliseconds: UInt64 = 10_000
    /// How long a closing stream may take to flush and to receive the peer's own end.
    package static let closeMilliseconds: UInt64 = 2_000

    /// Memory of OpenSSL for a handshake under way: 24 KiB were measured for a stalled one.
    package static let handshakeByteCount = 32 * 1024
    /// A loop reports changes of what its streams hold from this size on.
    static let budgetStepByteCount = 64 * 1024

    /// Buckets of the wheel of timeouts: at one tick a bucket 102 s around; longer timeouts pass by and stay.
    static let wheelBucketCount = 2048
    /// Slots allocated at a time; slots never move, since the kernel's and libevent's lists point into them.
    static let slabSlotCount = 64
    /// Rounds of last callbacks when a loop stops: a callback may close a neighbour, not start new work for ever.
    static let stopRoundCount = 16

    /// A WebSocket on which the server has sent nothing for so long is pinged: proxies end what is silent for 60 s, some
    /// after 30.
    static let webSocketQuietMilliseconds: UInt64 = 25_000
    /// What stands before a WebSocket's payload at most, unmasked.
    static let webSocketHeadByteCount = 10

    /// Headers of one request: three times what the chattiest proxies add.
    static let headerCount = 256
    /// A chunk's size with its extensions, or all trailers together.
    static let chunkLineByteCount = 4096
    /// A request's memory to begin with: a usual push with its head.
    static let firstRequestByteCount = 2048
    /// Pieces of that size that a loop's server keeps: requests under way in one turn.
    static let keptRequestCount = 64
    /// Answers that wait to be sent on one connection before its next request is looked at.
    static let waitingAnswerByteCount = 64 * 1024
    /// Bodies of this size count against no bound: ten thousand connections with one each hold 40 MB.
    package static let freeBodyByteCount = 4096
    /// What a growing body of chunks reserves at a time.
    static let reservedBodyByteCount = 64 * 1024
    /// Longest waiting connections among which a newcomer's own network is looked for.
    static let displacementLookCount = 32
    /// How long a connection with its last answer keeps its place: a round trip of a slow network.
    static let farewellMilliseconds: UInt64 = 500
    /// How long a client that sends a request keeps its place, if nothing vouches for the request.
    static let unprovenMilliseconds: UInt64 = 1_000
    /// What is read of a client that is turned away, so that unread bytes do not reset the answer.
    static let drainedByteCount = 64 * 1024

    /// One answer; the largest ones are leases of a few hundred jobs.
    static let answerByteCount = 1 << 28

    /// Readable bytes behind a request body, as simdjson needs them.
    package static let bodyPaddingByteCount = 64
}
