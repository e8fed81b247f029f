/// Bounds of the load generator, so that a wrong number in a command line cannot hang a machine or fill it.
enum Limits {
    /// PublishResult: the gateway is behind, nothing was accepted (docs/use/Protocol.md).
    static let busyCode: UInt32 = 6
    static let busyPauseNanoseconds: Int64 = 5_000_000
    /// The longest run, warm-up or drain: a person watches a benchmark.
    static let longestSeconds = 3_600.0
    /// A worker's number has eight bits in each payload; a million connections at 20,000 files a thread take 51.
    static let threadCount = 256
    /// Descriptors kept back for the poller, the files, the standard streams and the senders.
    static let spareDescriptorCount = 64
    /// The gateway's payload bound, 16 KiB.
    static let payloadByteCount = 16 << 10
    /// A payload carries its message's number in its first eight bytes.
    static let smallestPayloadByteCount = 8
    /// What one connection's worth of `http` requests may have outstanding.
    static let pipelineDepth = 64
    /// Past this many un-finished messages a paced run holds back: the gateway is far behind and memory is finite.
    static let outstandingCount = 500_000
    /// One read takes at most this much; a device's whole window (64 KiB) and more fits.
    static let receiveByteCount = 256 << 10
    /// One lease's answer: 500 jobs of about 800 bytes, and bodies that are several times as large.
    static let leaseByteCount = 4 << 20
    /// A sender's unsent bytes; past it no further message is encoded.
    static let sendByteCount = 512 << 10
    /// The largest frame body that is taken in, the protocol's own default.
    static let frameBodyByteCount = 64 << 10
    /// An answer of the push API is a few hundred bytes a message, a batch has up to 200; it must fit one read's buffer.
    static let responseByteCount = 240 << 10
    /// A demo.json or a devices file beyond these is not one of ours.
    static let credentialsByteCount = 64 << 10
    static let devicesByteCount = 256 << 20
    /// Paced messages fall due together in ticks of this length: short beside any latency goal, and long enough that
    /// waking up for them does not take the core that the gateway needs.
    static let tickNanoseconds: Int64 = 250_000
    /// Connections from one source address: the kernel's search for a free port grows slow well before 28,000.
    static let connectionsPerSource = 1_000
    /// How often one connection is tried again in a run.
    static let attemptCount = 3
}
