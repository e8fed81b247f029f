package enum Limits {
    /// The maximum size of a reply with all its parts, far above the largest page that the store reads.
    package static let replyByteCount = 128 << 20
    /// The maximum number of parts of a reply.
    package static let replyElementCount = 1 << 20
    /// The connect timeout, after which the client tries another server.
    package static let connectMilliseconds = 2_000
    /// The reply timeout of a command, after which the connection is closed.
    package static let commandMilliseconds = 5_000
    /// The reply timeout of a request for the slot map, after which the client tries another server.
    package static let mapMilliseconds = 500
    /// The time after a timeout in which a server is asked for the slot map only after all others.
    static let silenceMilliseconds: UInt64 = 10_000
    /// The minimum interval between requests for the slot map, since each costs a server some microseconds.
    static let mapPauseMilliseconds: UInt64 = 100
    /// The shortest and longest backoff between retries.
    package static let retryMilliseconds = 10
    package static let longestRetryMilliseconds = 500
    /// The maximum number of redirects in one attempt; while slots move, one or two occur.
    static let redirectCount = 5
    static let readByteCount = 64 << 10
}
