/// The load generator's limits, which keep a wrong number on the command line from exhausting the machine.
enum Limits {
    /// The PublishResult code of an overloaded gateway that accepted nothing (docs/use/Protocol.md).
    static let busyCode: UInt32 = 6
    static let busyPauseNanoseconds: Int64 = 5_000_000
    /// The maximum length of a run, warm-up or drain.
    static let longestSeconds = 3_600.0
    /// A worker's index has eight bits in each payload; a million connections with 20,000 files per thread need 51 threads.
    static let threadCount = 256
    /// Descriptors reserved for the poller, files, standard streams and senders.
    static let spareDescriptorCount = 64
    static let payloadByteCount = 16 << 10
    /// A payload begins with the message's number, eight bytes.
    static let smallestPayloadByteCount = 8
    /// The maximum of outstanding `http` requests per connection.
    static let pipelineDepth = 64
    /// The maximum of unfinished messages.
    ///
    /// A paced run pauses beyond it, because the gateway is far behind and memory is limited.
    static let outstandingCount = 500_000
    /// The maximum size of one read: more than a device's window of 64 KiB.
    static let receiveByteCount = 256 << 10
    /// The maximum size of a lease answer: 500 jobs of about 800 bytes, with room for bodies several times as large.
    static let leaseByteCount = 4 << 20
    /// The maximum of a sender's unsent bytes; no further message is encoded beyond it.
    static let sendByteCount = 512 << 10
    /// The maximum frame body, the protocol's default.
    static let frameBodyByteCount = 64 << 10
    /// The maximum push API answer: a few hundred bytes per message, at most 200 messages, and within one read's buffer.
    static let responseByteCount = 240 << 10
    static let credentialsByteCount = 64 << 10
    static let devicesByteCount = 256 << 20
    /// The length of a tick, in which paced messages become due together.
    ///
    /// It is short compared with any latency goal, and long enough that wake-ups do not take CPU from the gateway.
    static let tickNanoseconds: Int64 = 250_000
    /// Connections per source address; the kernel's search for a free port becomes slow well before 28,000.
    static let connectionsPerSource = 1_000
    /// The maximum of attempts per connection.
    static let attemptCount = 3
}
