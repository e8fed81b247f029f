/// The bounds of this module, each with its reason.
package enum Limits {
    /// One reply, all its parts together: far above the largest page that the store reads.
    package static let replyByteCount = 128 << 20
    /// The parts of one reply.
    package static let replyElementCount = 1 << 20
    /// A server that does not take a connection in this time is passed over for another one.
    package static let connectMilliseconds = 2_000
    /// A server that gives no reply in this time counts as gone.
    package static let commandMilliseconds = 5_000
    /// A server that does not tell the map in this time is passed over for another one.
    package static let mapMilliseconds = 500
    /// A server that was silent is asked for the map after the others for so long.
    static let silenceMilliseconds: UInt64 = 10_000
    /// The map of slots is asked for again after this at the earliest: each asking costs a server some microseconds.
    static let mapPauseMilliseconds: UInt64 = 100
    /// The pauses between two tries, from the first to the longest.
    package static let retryMilliseconds = 10
    package static let longestRetryMilliseconds = 500
    /// Redirects that one try follows; a map in motion gives one or two.
    static let redirectCount = 5
    /// A read from the socket.
    static let readByteCount = 64 << 10
}
