internal import Wire

/// Which devices connect and leave over and over, and when each may come again.
///
/// **What flapping is.** A device may be welcomed `Rules.connects` times at once, and once every 15 s after that. A network that is bad
/// makes a device come back some times a minute, for a while: that is within it. One that comes faster than that for longer has a
/// fault, such as two processes with one identity that replace each other. Its next Hello is refused, for two seconds at first, twice
/// as long each time that it goes on, a minute at most. After that it is welcome again, whatever it did: nobody is kept out. A device that
/// has been calm for as long as its welcomes cost is forgotten.
///
/// Only a Hello that the shard has accepted counts, since it needs the device's proof: who knows no more than a cid cannot slow its device
/// down. Whether the client was still there for its Welcome does not matter. A Hello that comes too early changes nothing.
///
/// A value in a fixed table; a set of it that is full forgets the device with the fewest welcomes in a row. Times are a loop's milliseconds.
struct FlapDamping {
    struct Rules: Equatable {
        /// Welcomes at once; 0: no device is slowed.
        var connects: Int64 = 20
    }

    /// What a welcome costs: so long the device is calm until it is forgotten.
    static let calmMilliseconds: Int64 = 15_000
    static let firstDelay: Int64 = 2_000
    static let longestDelay: Int64 = 60_000
    /// Devices that the book has room for.
    static let deviceCount = 16_384
    private static let wayCount = 8

    private struct Entry: BitwiseCopyable {
        /// 0: nobody's.
        var device: UInt64 = 0
        /// When its welcomes are paid for.
        var paidAt: Int64 = 0
        var slowedUntil: Int64 = 0
        /// How often in a row it went on.
        var level: Int64 = 0
    }

    /// What there is to tell since the last report.
    struct Report: Equatable {
        var count = 0
        /// The device that was slowed last, and for how long.
        var device = DeviceID(high: 0, low: 0)
        var delay: Int64 = 0
    }

    var rules = Rules()
    private var report = Report()
    private var entries: [Entry]

    init(deviceCount: Int = FlapDamping.deviceCount) {
        precondition(deviceCount % Self.wayCount == 0, "devices come in sets")
        entries = Array(repeating: Entry(), count: deviceCount)
    }

    /// How long until the device may come; 0: now.
    func delay(of cid: DeviceID, now: Int64) -> Int64 {
        guard rules.connects > 0, let place = place(of: cid) else { return 0 }
        return max(0, entries[place].slowedUntil - now)
    }

    /// Counts a Welcome.
    ///
    /// - Returns: how long the device's next Hello is refused from now on; 0 for a device that does not flap.
    mutating func welcomed(_ cid: DeviceID, now: Int64) -> Int64 {
        guard rules.connects > 0 else { return 0 }
        let place = place(of: cid) ?? makePlace(for: cid)
        var entry = entries[place]
        if entry.paidAt <= now { (entry.level, entry.slowedUntil) = (0, 0) }
        entry.paidAt = max(entry.paidAt, now) + Self.calmMilliseconds
        var delay: Int64 = 0
        if entry.paidAt - now > rules.connects * Self.calmMilliseconds {
            delay = min(Self.firstDelay << min(entry.level, 16), Self.longestDelay)
            entry.level += 1
            entry.slowedUntil = now + delay
            // Long bursts are not held against it for ever.
            entry.paidAt = min(entry.paidAt, now + (rules.connects + 4) * Self.calmMilliseconds)
            report = Report(count: report.count + 1, device: cid, delay: delay)
        }
        entries[place] = entry
        return delay
    }

    /// How many Hellos of devices that flap were accepted since the last call; `nil`: none.
    mutating func takeReport() -> Report? {
        guard report.count > 0 else { return nil }
        defer { report = Report() }
        return report
    }

    // MARK: Places

    /// cids are random, or come from a proof: they spread by themselves.
    private func name(_ cid: DeviceID) -> UInt64 { max(1, cid.high ^ cid.low) }

    private func places(_ name: UInt64) -> Range<Int> {
        let set = Int(truncatingIfNeeded: name % UInt64(entries.count / Self.wayCount))
        return set * Self.wayCount..<(set + 1) * Self.wayCount
    }

    private func place(of cid: DeviceID) -> Int? {
        let name = name(cid)
        return places(name).first { entries[$0].device == name }
    }

    private mutating func makePlace(for cid: DeviceID) -> Int {
        let name = name(cid)
        let range = places(name)
        let place = range.min { entries[$0].paidAt < entries[$1].paidAt } ?? range.lowerBound
        entries[place] = Entry(device: name)
        return place
    }
}
