/// What one worker found; all of them added up are what the run found.
///
/// Adding up is exact: counts, histograms' buckets and sets, never figures that were rounded before.
struct WorkerTally: Sendable {
    var connectLatency = Histogram()
    var deliverLatency = Histogram()
    var resultLatency = Histogram()
    var answerLatency = Histogram()
    var leaseLatency = Histogram()
    var settleLatency = Histogram()
    /// From the moment a paced message was due to the moment it was encoded.
    var sendLag = Histogram()
    /// Devices that reached their Welcome.
    var connected = 0
    /// Devices that did not, after all attempts.
    var failedDevices = 0
    /// TLS handshakes that were good, and those that were not; a refused certificate of ours counts among the latter.
    var handshakes = 0
    var failedHandshakes = 0
    /// Connections that ended after their Welcome.
    var lostConnections = 0
    var published = 0
    var accepted = 0
    var delivered = 0
    var acks = 0
    var refused = 0
    /// Refused because the gateway was busy, and sent again.
    var busy = 0
    var repeats = 0
    var disordered = 0
    /// Delivered messages, or leased jobs, that this run did not make.
    var foreign = 0
    var failedRequests = 0
    var malformed = 0
    /// Jobs of this run in the answers to leases, and those whose settlement was recorded.
    var leased = 0
    var settled = 0
    var stale = 0
    /// Which jobs were leased, by any worker.
    var jobs = JobSet()
    /// In the measured time.
    var measuredAccepted = 0
    var measuredDelivered = 0
    var measuredAnswers = 0
    /// Messages that could not be encoded when they were due because the gateway took no more.
    var stalls = 0
    var remainder = MessageLedger.Remainder()
    /// What each broadcast came to.
    var rounds: [BroadcastRound] = []
    var failures: [String: Int] = [:]
    /// The devices as they are known now: newly registered ones have their cid and secret.
    var devices: [DeviceIdentity] = []
    /// Nanoseconds.
    var connectStartedAt = Int64.max
    var connectEndedAt: Int64 = 0
    var phaseStartedAt = Int64.max
    var phaseEndedAt: Int64 = 0
    /// When the last device got the last of its messages, or the last settlement was recorded.
    var drainEndedAt: Int64 = 0
    /// Of the measured time: all threads' CPU, how long it was, and how long the thread that waited least did.
    var totalCPU: Int64 = 0
    var measuredTime: Int64 = 0
    var waited = Int64.max
    /// The busiest thread's share of a core in its busiest phase, 0 to 1.
    var busiest = 0.0
    /// What ended the worker early.
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

    /// Adds another worker's findings.
    mutating func merge(_ other: WorkerTally) {
        for path in Self.sums { self[keyPath: path] += other[keyPath: path] }
        for path in Self.histograms { self[keyPath: path].merge(other[keyPath: path]) }
        // A job that two workers were given is a repeat that neither of them could see.
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
