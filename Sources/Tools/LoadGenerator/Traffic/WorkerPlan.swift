/// One worker's task; made before it starts.
struct WorkerPlan: Sendable {
    enum Job: Sendable {
        /// Connect all and stop at the Welcome: registers those without a cid.
        case register
        case idle, live, http
        /// Enqueue for absent devices, then all return; `storm` is the same seen from the other side.
        case offline
        case handoff
        /// One call to everybody; the first worker makes it.
        case broadcast
    }

    var job: Job
    /// Among all workers.
    var index: Int
    /// Opens files in a table of its own, since all workers' do not fit one.
    var hasOwnDescriptors: Bool
    var credentials: Credentials
    var devices: [DeviceIdentity]
    /// The first device's place among all, and so its source address.
    var firstDevice: Int
    var senders: Int
    var httpConnections: Int
    /// Connections to the admin listener.
    var adminConnections: Int
    /// This worker's share.
    var inFlight: Int
    /// This worker's share; `nil`: as fast as `inFlight` allows.
    var rate: Double?
    var handshakes: Int
    /// The upper 16 bits of every payload's number, so that messages of an earlier run are told apart.
    var runTag: UInt64
    var httpToken: String
    /// `nil`: no listener of this run speaks TLS.
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
