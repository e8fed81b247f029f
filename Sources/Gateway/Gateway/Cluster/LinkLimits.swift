/// The limits of the links between gateways, each with its reason.
enum LinkLimits {
    /// The body of one frame; a reader rejects a longer frame from its header.
    static let frameByteCount = 16 << 20
    /// The approximate size of a batch's frames, small enough that a reader buffers little and heartbeats are not delayed.
    static let batchByteCount = 256 << 10
    /// The body of a frame before the peer has identified itself.
    static let firstFrameByteCount = 256 << 10
    /// The backlog of one link, in bytes of messages, in addition to the stream's outbox.
    static let waitingByteCount = 32 << 20
    /// The outbox size up to which a link writes more to its stream.
    static let outboxByteCount = 512 << 10
    static let pieceByteCount = 64 << 10
    /// The questions in flight over one link, at least 112 bytes each: `Partition.waitingListTargetLimit`, rounded up.
    static let questionCount = 1 << 20
    /// The batches (`OutgoingBatch`) from all other loops that may wait for the link loop.
    static let parcelCount = 1 << 16
    /// The unidentified connections to the cluster's port, from addresses that belong to no gateway.
    static let strangerCount = 256
    /// The unidentified connections from each gateway's address: its link, and the trunks of its loops, possibly all at once.
    static let memberStrangerCount = 256
    /// The devices on one trunk that await acceptance by their owner; further ones receive a Close.
    static let openingRelayCount = 4_096
    /// The undelivered messages and answer batches above which reading pauses on all links.
    static let undeliveredCount = 64
    /// The written blocks in a connection's queue above which the queue is trimmed.
    static let releasedBlockCount = 64
    /// The capacity up to which an empty block is kept in the free list.
    static let keptBlockByteCount = 512 << 10
    static let keptBlockCount = 32

    /// The bytes of one device in flight over a trunk, per direction, so that a slow device does not block the others.
    ///
    /// With a round trip of 10 ms, a window of this size allows 12 MB per second.
    static let relayWindowByteCount = 128 << 10
    /// The outbox of a relayed device's stream: a window, and the Close frame.
    static let relayOutboxByteCount = 2 * relayWindowByteCount
    /// The largest piece of a device's bytes, so that the devices of a trunk take turns.
    static let relayPieceByteCount = 16 << 10
    /// The outbox size above which a trunk takes no more device bytes; a fast network sends as much in a few turns.
    static let trunkBytesByteCount = 2 << 20
    /// The outbox size above which a trunk takes no more devices.
    static let trunkOpeningByteCount = 4 << 20
    /// The total outbox of a trunk; the room above `trunkOpeningByteCount` is for ends and credits of 20 bytes each.
    static let trunkOutboxByteCount = 8 << 20
    /// The time after which a trunk without devices is closed.
    static let idleTrunkMilliseconds: UInt64 = 60_000

    /// The timing of a link, which tests shorten.
    struct Times: Sendable {
        var heartbeatMilliseconds: UInt64 = 500
        /// The silence after which a peer is considered dead.
        var silenceMilliseconds: UInt64 = 2_000
        /// The timeout from the start of a connection to its identification.
        var identificationMilliseconds: UInt64 = 5_000
        /// The backoff before the second connection attempt; it doubles up to `longestPauseMilliseconds`.
        var firstPauseMilliseconds: UInt64 = 100
        var longestPauseMilliseconds: UInt64 = 2_000
    }
}
