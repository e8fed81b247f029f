struct WorkerPlan: Sendable {
    enum Job: Sendable {
        /// Connects all devices up to the Welcome, and registers those without a cid.
        case register
        case idle, live, http
        /// Enqueues for disconnected devices, then reconnects all; `storm` uses the same job.
        case offline
        case handoff
        /// Sends broadcasts from the first worker.
        case broadcast
    }

    var job: Job
    /// The worker's index among all workers.
    var index: Int
    /// Whether the worker has a private descriptor table, because one table is too small for all.
    var hasOwnDescriptors: Bool
    var credentials: Credentials
    var devices: [DeviceIdentity]
    /// The first device's index among all, which selects its source address.
    var firstDevice: Int
    var senders: Int
    var httpConnections: Int
    var adminConnections: Int
    /// This worker's share of the messages in flight.
    var inFlight: Int
    /// This worker's share of the rate, or `nil` for as fast as `inFlight` allows.
    var rate: Double?
    var handshakes: Int
    /// The upper 16 bits of every payload's number, to distinguish messages of an earlier run.
    var runTag: UInt64
    var httpToken: String
    var tls: TLSFiles?
    var options: RunTimes

    struct RunTimes: Sendable {
        var timeout: Int64
        var hold: Int64
        var warmup: Int64
        var duration: Int64
        var drain: Int64
        var heartbeatSeconds: UInt32
        var payloadByteCount: Int
        var messagesPerDevice: Int
        var pipeline: Int
        var batch: Int
        var leaseCount: Int
        var connectsDevices: Bool
        var speaksWebSocket = false
    }
}
