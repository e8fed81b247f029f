/// What a run looked like from outside, several times a second: the plots' points.
struct Sampler: Sendable {
    struct Sample: Sendable, Equatable {
        /// Nanoseconds of the monotonic clock.
        var time: Int64
        /// Totals since the run began.
        var connected = 0
        var accepted = 0
        var delivered = 0
        var settled = 0
        /// Nanoseconds since the process began; `nil` when it cannot be looked at.
        var serverCPU: Int64?
        var serverMemory: Int?
        var generatorCPU: Int64 = 0
    }

    private(set) var samples: [Sample] = []
    private var interval = Limits.sampleNanoseconds

    /// Takes a sample if it is time for one.
    mutating func look(_ coordinator: Coordinator, _ meter: ProcessMeter?, outsideCPU: Int64) {
        let now = Clocks.now()
        guard now - (samples.last?.time ?? 0) >= interval else { return }
        var sample = Sample(time: now)
        sample.connected = coordinator.count(.connected)
        sample.accepted = coordinator.count(.accepted)
        sample.delivered = coordinator.count(.delivered)
        sample.settled = coordinator.count(.settled)
        sample.serverCPU = meter?.cpu()
        sample.serverMemory = meter?.residentByteCount()
        sample.generatorCPU = Clocks.processCPU() + outsideCPU
        append(sample)
    }

    /// Keeps at most `Limits.sampleCount`: a longer run has points further apart.
    mutating func append(_ sample: Sample) {
        samples.append(sample)
        guard samples.count > Limits.sampleCount else { return }
        samples = samples.enumerated().filter { $0.offset.isMultiple(of: 2) }.map(\.element)
        interval *= 2
    }
}
