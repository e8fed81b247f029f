/// The results of one worker, or their sum over all workers.
///
/// Sums are exact: they add counts, histogram buckets and sets, not rounded figures.
struct WorkerTally: Sendable {
    var connectLatency = Histogram()
    var deliverLatency = Histogram()
    var resultLatency = Histogram()
    var answerLatency = Histogram()
    var leaseLatency = Histogram()
    var settleLatency = Histogram()
    /// The delay from a paced message's due time to its encoding.
    var sendLag = Histogram()
    /// Devices that received their Welcome.
    var connected = 0
    /// Devices without a Welcome after all attempts.
    var failedDevices = 0
    /// Successful and failed TLS handshakes; a refused client certificate counts as failed.
    var handshakes = 0
    var failedHandshakes = 0
    /// Connections that ended after their Welcome.
    var lostConnections = 0
    var published = 0
    var accepted = 0
    var delivered = 0
    var acks = 0
    var refused = 0
    /// Messages refused by a busy gateway and sent again.
    var busy = 0
    var repeats = 0
    var disordered = 0
    /// Delivered messages or leased jobs that this run did not create.
    var foreign = 0
    var failedRequests = 0
    var malformed = 0
    /// Jobs of this run that were leased, and those whose settlement was recorded.
    var leased = 0
    var settled = 0
    var stale = 0
    var jobs = JobSet()
    /// Counts within the measured time.
    var measuredAccepted = 0
    var measuredDelivered = 0
    var measuredAnswers = 0
    /// Messages that could not be encoded when due, because the gateway accepted no more.
    var stalls = 0
    var remainder = MessageLedger.Remainder()
    var rounds: [BroadcastRound] = []
    var failures: [String: Int] = [:]
    /// The devices after the run; newly registered ones have their cid and secret.
    var devices: [DeviceIdentity] = []
    /// Nanoseconds of the monotonic clock.
    var connectStartedAt = Int64.max
    var connectEndedAt: Int64 = 0
    var phaseStartedAt = Int64.max
    var phaseEndedAt: Int64 = 0
    /// The time of the last delivery or of the last recorded settlement.
    var drainEndedAt: Int64 = 0
    /// The CPU of all threads in the measured time, the length of that time, and the waiting time of the least idle thread, in
    /// nanoseconds.
    var totalCPU: Int64 = 0
    var measuredTime: Int64 = 0
    var waited = Int64.max
    /// The busiest thread's share of a core in its busiest phase, 0 to 1.
    var busiest = 0.0
    var fatal: String?

    private static var sums: [WritableKeyPath<WorkerTally, Int>] {
        [
            \.connected, \.handshakes, \.failedHandshakes, \.failedDevices, \.lostConnections, \.published, \.accepted,
            \.delivered, \.acks, \.refused,
            \.busy,
            \.repeats, \.disordered, \.foreign, \.failedRequests, \.malformed, \.leased, \.settled, \.stale,
            \.measuredAccepted, \.measuredDelivered, \.measuredAnswers, \.stalls, \.remainder.unanswered,
            \.remainder.undelivered,
        ]
    }

    private static var histograms: [WritableKeyPath<WorkerTally, Histogram>] {
        [
            \.connectLatency, \.deliverLatency, \.resultLatency, \.answerLatency, \.leaseLatency, \.settleLatency,
            \.sendLag,
        ]
    }

    mutating func merge(_ other: WorkerTally) {
        for path in Self.sums { self[keyPath: path] += other[keyPath: path] }
        for path in Self.histograms { self[keyPath: path].merge(other[keyPath: path]) }
        // A job that two workers leased is a repeat that neither of them could detect.
        repeats += jobs.merge(other.jobs)
        BroadcastRound.merge(&rounds, other.rounds)
        for (text, count) in other.failures { failures[text, default: 0] += count }
        devices += other.devices
        connectStartedAt = min(connectStartedAt, other.connectStartedAt)
        connectEndedAt = max(connectEndedAt, other.connectEndedAt)
        phaseStartedAt = min(phaseStartedAt, other.phaseStartedAt)
        phaseEndedAt = max(phaseEndedAt, other.phaseEndedAt)
        drainEndedAt = max(drainEndedAt, other.drainEndedAt)
        totalCPU += other.totalCPU
        measuredTime = max(measuredTime, other.measuredTime)
        waited = min(waited, other.waited)
        busiest = max(busiest, other.busiest)
        fatal = fatal ?? other.fatal
    }
}
