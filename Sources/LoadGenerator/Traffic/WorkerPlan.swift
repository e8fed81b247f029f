/// What one thread is to do; made before it starts.
struct WorkerPlan: Sendable {
    enum Job: Sendable {
        /// Connect all and stop at the Welcome: registers those without a cid.
        case register
        case idle, live, http, offline
    }

    var job: Job
    var index: Int
    var credentials: Credentials
    var devices: [DeviceIdentity]
    /// The first device's place among all, and so its source address.
    var firstDevice: Int
    var senders: Int
    var httpConnections: Int
    /// This thread's share.
    var inFlight: Int
    /// This thread's share; `nil`: as fast as `inFlight` allows.
    var rate: Double?
    var handshakes: Int
    /// The upper 16 bits of every payload's number, so that messages of an earlier run are told apart.
    var runTag: UInt64
    var httpToken: String
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
        var connectsDevices: Bool
    }
}

/// What one thread found.
struct WorkerTally: Sendable {
    var connectLatency = Histogram()
    var deliverLatency = Histogram()
    var resultLatency = Histogram()
    var answerLatency = Histogram()
    /// Devices that reached their Welcome.
    var connected = 0
    /// Devices that did not, after all attempts.
    var failedDevices = 0
    /// Connections that ended after their Welcome.
    var lostConnections = 0
    var published = 0
    var accepted = 0
    var delivered = 0
    var acks = 0
    var refused = 0
    var repeats = 0
    var disordered = 0
    /// Delivered messages that this run did not publish.
    var foreign = 0
    var failedRequests = 0
    var malformed = 0
    /// In the measured time.
    var measuredAccepted = 0
    var measuredDelivered = 0
    var remainder = MessageLedger.Remainder()
    var failures: [String: Int] = [:]
    /// The devices as they are known now: newly registered ones have their cid and secret.
    var devices: [DeviceIdentity] = []
    /// Nanoseconds.
    var connectStartedAt = Int64.max
    var connectEndedAt: Int64 = 0
    var phaseStartedAt = Int64.max
    var phaseEndedAt: Int64 = 0
    /// When the last device got the last of its messages.
    var drainEndedAt: Int64 = 0
    /// Of the measured time.
    var threadCPU: Int64 = 0
    var waited: Int64 = 0
    /// What ended the thread early.
    var fatal: String?

    /// Adds another thread's findings; `threadCPU` keeps the busiest.
    mutating func merge(_ other: WorkerTally) {
        connectLatency.merge(other.connectLatency)
        deliverLatency.merge(other.deliverLatency)
        resultLatency.merge(other.resultLatency)
        answerLatency.merge(other.answerLatency)
        connected += other.connected
        failedDevices += other.failedDevices
        lostConnections += other.lostConnections
        published += other.published
        accepted += other.accepted
        delivered += other.delivered
        acks += other.acks
        refused += other.refused
        repeats += other.repeats
        disordered += other.disordered
        foreign += other.foreign
        failedRequests += other.failedRequests
        malformed += other.malformed
        measuredAccepted += other.measuredAccepted
        measuredDelivered += other.measuredDelivered
        remainder.unanswered += other.remainder.unanswered
        remainder.undelivered += other.remainder.undelivered
        for (text, count) in other.failures { failures[text, default: 0] += count }
        devices += other.devices
        connectStartedAt = min(connectStartedAt, other.connectStartedAt)
        connectEndedAt = max(connectEndedAt, other.connectEndedAt)
        phaseStartedAt = min(phaseStartedAt, other.phaseStartedAt)
        phaseEndedAt = max(phaseEndedAt, other.phaseEndedAt)
        drainEndedAt = max(drainEndedAt, other.drainEndedAt)
        // The thread that waited least is the one that may have been the bottleneck.
        if other.threadCPU > threadCPU { (threadCPU, waited) = (other.threadCPU, other.waited) }
        fatal = fatal ?? other.fatal
    }
}
