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
    /// Such connections from each gateway's address: its link, and the trunks of its loops, which may come all at once.
    static let memberStrangerCount = 256
    /// Devices on one trunk that their owner has not taken yet; the next one is told to come back.
    static let openingRelayCount = 4_096
    /// Answers that may wait for a loop whose mailbox is full, before nothing more is read from any link.
    static let undeliveredCount = 64
    /// Blocks that went out and are still in a connection's list, before the list is cut.
    static let releasedBlockCount = 64
    /// A queue of blocks keeps an empty one of up to this size for another turn.
    static let keptBlockByteCount = 512 << 10
    /// Empty blocks that are kept.
    static let keptBlockCount = 32

    /// Bytes of one device that may be on their way over a trunk, each way: no device keeps more of it from the others.
    ///
    /// A round trip of 10 ms carries 12 MB a second.
    static let relayWindowByteCount = 128 << 10
    /// What the stream of a relayed device may hold: a window, and the last word to the device.
    static let relayOutboxByteCount = 2 * relayWindowByteCount
    /// A device's bytes go in pieces of at most this size, so that the devices of a trunk take turns.
    static let relayPieceByteCount = 16 << 10
    /// What a trunk may hold before it takes no more bytes of devices: some turns of a fast network.
    static let trunkBytesByteCount = 2 << 20
    /// What it may hold before it takes no more devices.
    static let trunkOpeningByteCount = 4 << 20
    /// What it may hold at all: the rest is for ends and credits, which must not wait (20 bytes each).
    static let trunkOutboxByteCount = 8 << 20
    /// A trunk without devices is kept so long.
    static let idleTrunkMilliseconds: UInt64 = 60_000

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
