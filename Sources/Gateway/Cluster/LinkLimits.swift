/// The bounds of the links between gateways, each with its reason.
enum LinkLimits {
    /// The body of one frame: a reader refuses a longer one before it keeps a byte of it.
    static let frameByteCount = 16 << 20
    /// A batch is cut into frames of about this size, so that a reader holds little and heartbeats get between.
    static let batchByteCount = 256 << 10
    /// The body of a frame from a connection that has not said who it is; a relayed device's Hello is the longest.
    static let firstFrameByteCount = 256 << 10
    /// Bytes of messages that may wait for one link, beyond what its stream holds.
    static let waitingByteCount = 32 << 20
    /// What a link's stream may hold before more is put into it.
    static let outboxByteCount = 512 << 10
    /// Bytes put into a stream in one piece.
    static let pieceByteCount = 64 << 10
    /// Questions that may be under way over one link: as many as the devices of all lists that may wait on one loop.
    ///
    /// Each takes 112 bytes at least.
    static let questionCount = 1 << 20
    /// Parcels that may wait for the link loop from all other loops.
    static let parcelCount = 1 << 16
    /// Connections to the cluster's port that have not said who they are, from addresses that no gateway has.
    static let strangerCount = 256
    /// Such connections from each gateway's address: its relays, and room for its link, which must not wait for them.
    static let memberStrangerCount = openingRelayCount + 64
    /// Relays to one gateway that it has not taken yet; the next device is told to come back.
    static let openingRelayCount = 256
    /// Answers that may wait for a loop whose mailbox is full, before nothing more is read from any link.
    static let undeliveredCount = 64
    /// Blocks that went out and are still in a connection's list, before the list is cut.
    static let releasedBlockCount = 64
    /// A queue of blocks keeps an empty one of up to this size for another turn.
    static let keptBlockByteCount = 512 << 10
    /// Empty blocks that are kept.
    static let keptBlockCount = 32

    /// How long a stream between a device and its owner may hold what the other side does not take.
    static let relayOutboxByteCount = 256 << 10

    /// Times of a link, which tests shorten.
    struct Times: Sendable {
        /// How often each side says that it is there.
        var heartbeatMilliseconds: UInt64 = 500
        /// A side that said nothing for so long is gone.
        var silenceMilliseconds: UInt64 = 2_000
        /// How long a connection may take from its first byte to its identification.
        var identificationMilliseconds: UInt64 = 5_000
        /// The pause before the second try to connect; it doubles up to `longestPauseMilliseconds`.
        var firstPauseMilliseconds: UInt64 = 100
        var longestPauseMilliseconds: UInt64 = 2_000
    }
}
