package enum Limits {
    /// The interval of tick hooks and timeout checks, fine enough for deadlines of a second.
    package static let tickMilliseconds: UInt64 = 50

    /// The size above which the array of submitted work is not kept for reuse.
    static let keptWorkCount = 4096

    /// The connections accepted per batch, so that a burst of connects does not delay existing connections.
    static let acceptBatchCount = 64
    /// The connections that an HTTP server accepts per batch; accepting a connection costs a tenth of a request.
    static let httpAcceptBatchCount = 256
    /// The backoff of a listener that ran out of descriptors.
    static let acceptPauseMilliseconds: UInt64 = 100
    /// The maximum size of a PROXY header: 52 bytes for IPv6, plus the extensions of TLS and cloud balancers.
    static let proxyHeaderByteCount = 2_048
    /// The timeout of a PROXY header; a balancer connects when a client does, so it sends the header immediately.
    static let proxyHeaderMilliseconds = 5_000
    /// The maximum number of a listener's connections that wait for their header.
    static let proxyHeaderCount = 4_096
    /// The backlog of unaccepted connections in the kernel, which limits it to `net.core.somaxconn`.
    static let listenBacklogCount: Int32 = 4096

    /// The number of eight-entry sets in the address table: 65,536 addresses in 4 MiB.
    static let addressSetCount = 8_192
    /// The burst of an address: clients behind one router reconnect together after it restarts.
    static let addressBurstMilliseconds: UInt64 = 2_000
    /// The shortest and longest retry delay of a refused address; an immediate retry would fail again.
    static let addressLeastMilliseconds: UInt32 = 1_000
    static let addressLongestMilliseconds: UInt32 = 10_000
    /// The maximum time for which an address is refused because of a request's bytes.
    static let addressDebtMilliseconds: UInt64 = 60_000
    /// The retry delay of an address with all its connections in use, since a dead connection is detected by its heartbeat.
    static let addressFullMilliseconds: UInt32 = 30_000

    /// The size of a receive, large enough to drain a full socket buffer in few calls.
    package static let receiveByteCount = 64 * 1024
    /// The bytes that a delegate may leave unconsumed: a maximum frame (64 KiB and header) and one more receive.
    package static let unconsumedByteCount = 160 * 1024
    /// The bytes read from a stream per turn; the remaining bytes wait until all other streams had their turn.
    package static let readByteCountPerTurn = 256 * 1024
    /// The least that a read of a TLS stream counts against `readByteCountPerTurn`.
    static let recordCharge = 1024

    /// The default size of a stream's outbox: a window of frames, at least one maximum frame.
    package static let outboxByteCount = 256 * 1024
    /// The size of a pooled block with its header: a few typical frames, since many streams may need one in the same turn.
    static let blockByteCount = 2048
    /// The number of blocks in a loop's free list (16 MiB).
    static let pooledBlockCount = 8192
    /// The pieces in one `sendmsg`; the kernel allows 1,024, but the list is on the stack.
    static let gatheredPieceCount = 64
    /// The size of a TLS record, OpenSSL's unit of sending.
    static let recordByteCount = 16 * 1024

    /// The bytes of a delegate prefetched before it is called: its first fields.
    static let delegateByteCount = 128

    /// The timeout of a TLS handshake: two round trips, with tolerance for a bad mobile network.
    package static let handshakeMilliseconds: UInt64 = 10_000
    /// The time in which a closing stream must be flushed and receive the peer's end.
    package static let closeMilliseconds: UInt64 = 2_000

    /// The memory counted for a TLS handshake in progress; a stalled handshake was measured at 24 KiB.
    package static let handshakeByteCount = 32 * 1024
    /// The change of the streams' memory from which a loop reports it to the budget.
    static let budgetStepByteCount = 64 * 1024

    /// The buckets of the timeout wheel: 102 s per revolution at one tick each; longer timeouts stay for further revolutions.
    static let wheelBucketCount = 2048
    /// The slots allocated at a time; slots never move, because lists of the kernel and libevent point to them.
    static let slabSlotCount = 64
    /// The rounds of final callbacks when a loop stops; the bound prevents callbacks from starting new work endlessly.
    static let stopRoundCount = 16

    /// The time without output after which a WebSocket is pinged; proxies close idle connections after 60 s, some after 30 s.
    static let webSocketQuietMilliseconds: UInt64 = 25_000
    /// The maximum size of an unmasked WebSocket frame head.
    static let webSocketHeadByteCount = 10

    /// The maximum number of headers, three times as many as proxies add at most.
    static let headerCount = 256
    /// The maximum size of a chunk-size line with its extensions, or of all trailers together.
    static let chunkLineByteCount = 4096
    /// The initial memory of a request, enough for a typical push with its head.
    static let firstRequestByteCount = 2048
    /// The number of buffers of `firstRequestByteCount` in a loop's free list, for the requests of one turn.
    static let keptRequestCount = 64
    /// The unsent responses of a connection above which its next request is not parsed.
    static let waitingAnswerByteCount = 64 * 1024
    /// The size up to which bodies need no reservation; ten thousand connections with one such body hold 40 MB.
    package static let freeBodyByteCount = 4096
    /// The step in which a chunked body reserves memory.
    static let reservedBodyByteCount = 64 * 1024
    /// The number of longest waiting connections searched for one of the new connection's network.
    static let displacementLookCount = 32
    /// The time after its last response in which a connection cannot be displaced: a round trip of a slow network.
    static let farewellMilliseconds: UInt64 = 500
    /// The time for which a client with an unauthenticated request cannot be displaced.
    static let unprovenMilliseconds: UInt64 = 1_000
    /// The bytes read from a refused client, because unread bytes would cause a reset that discards the response.
    static let drainedByteCount = 64 * 1024

    /// The maximum size of a response; the largest are leases of a few hundred jobs.
    static let answerByteCount = 1 << 28

    /// The readable bytes after a request body, which simdjson requires.
    package static let bodyPaddingByteCount = 64
}
