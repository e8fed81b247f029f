/// The broadcasts of a run and their coordinator's state.
struct BroadcastModel {
    /// The generator of this part only.
    var chance: Chance
    private(set) var all: [SimulatedBroadcast] = []
    /// By loop: the earliest arrival time of the next announcement, which keeps announcements in order.
    private var launchTimes = [Int64](repeating: 0, count: 8)
    /// By broadcast: the first bucket of the step in progress.
    private var stepStarts: [Int: Int] = [:]
    private var openCalls = 0

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0xB0AD_CA57) }

    /// Whether the server makes a call now.
    mutating func isTime() -> Bool { chance.perMille(12) }

    mutating func add(_ broadcast: SimulatedBroadcast) { all.append(broadcast) }

    // MARK: Calls

    mutating func asked() { openCalls += 1 }

    mutating func answered() { openCalls -= 1 }

    var hasOpenCalls: Bool { openCalls > 0 }

    mutating func processStarted() { (launchTimes, openCalls) = ([Int64](repeating: 0, count: 8), 0) }

    // MARK: Steps

    /// Returns the time at which a loop learns of a launch: a short delay, in order.
    mutating func launchTime(loop: Int, now: Int64) -> Int64 {
        launchTimes[loop] = max(launchTimes[loop], now + chance.time(0, 4))
        return launchTimes[loop]
    }

    mutating func stepBegan(_ broadcast: Int, at bucket: Int) { stepStarts[broadcast] = bucket }

    func stepStart(_ broadcast: Int) -> Int { stepStarts[broadcast] ?? 0 }
}
