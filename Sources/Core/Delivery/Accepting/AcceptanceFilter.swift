internal import Wire

/// The (task, device) pairs that this process accepted, without false negatives: a chain of Bloom filters.
///
/// The filter saves the read of a ledger row if a list's task has certainly not reached the device.
///
/// The filter answers only for tasks created at or after `knownSince` because it may lack acceptances of older tasks.
struct AcceptanceFilter {
    private static let probeCount: UInt64 = 6
    private static let firstWordCount = 2_048
    /// The clock tolerance in ms: loops read their clocks once per turn, so a task may seem slightly younger than it is.
    private static let margin: Int64 = 5_000

    private var filters: [[UInt64]] = []
    private var lastCount = 0
    private var wordCount = 0
    private var knownSince: GatewayTime
    private let byteLimit: Int

    init(now: GatewayTime, byteLimit: Int) {
        (knownSince, self.byteLimit) = (now + Self.margin, byteLimit)
    }

    mutating func insert(_ task: TaskID, _ digest: UInt64, now: GatewayTime) {
        if filters.last.map({ lastCount * 10 >= $0.count * 64 }) ?? true {
            let count = filters.last.map { $0.count * 2 } ?? Self.firstWordCount
            if (wordCount + count) * 8 > byteLimit, !filters.isEmpty {
                // The filter is full. It is cleared and covers only tasks created from now on.
                filters.removeAll()
                (wordCount, lastCount) = (0, 0)
                knownSince = now + Self.margin
            }
            let size = filters.isEmpty ? Self.firstWordCount : count
            filters.append([UInt64](repeating: 0, count: size))
            (wordCount, lastCount) = (wordCount + size, 0)
        }
        let last = filters.count - 1
        let bitCount = UInt64(filters[last].count) * 64
        let step = Self.step(task, digest)
        for probe in 0..<Self.probeCount {
            let bit = (digest &+ probe &* step) % bitCount
            filters[last][Int(bit >> 6)] |= 1 << (bit & 63)
        }
        lastCount += 1
    }

    /// Returns whether the task has certainly not reached the device.
    func excludes(_ task: TaskID, _ digest: UInt64, createdAt: GatewayTime) -> Bool {
        guard createdAt >= knownSince else { return false }
        let step = Self.step(task, digest)
        for filter in filters.reversed() {
            let bitCount = UInt64(filter.count) * 64
            var isSet = true
            for probe in 0..<Self.probeCount where isSet {
                let bit = (digest &+ probe &* step) % bitCount
                isSet = filter[Int(bit >> 6)] & 1 << (bit & 63) != 0
            }
            if isSet { return false }
        }
        return true
    }

    /// Returns the step between a pair's probes.
    ///
    /// The digest covers task and cid. The task's random bits make the step sufficiently independent of the digest.
    private static func step(_ task: TaskID, _ digest: UInt64) -> UInt64 { (digest >> 32 ^ task.low) | 1 }
}
