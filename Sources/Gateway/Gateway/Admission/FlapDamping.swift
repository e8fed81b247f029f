internal import Wire

/// Delays devices that reconnect repeatedly (flapping).
///
/// A device may connect `Rules.connects` times in a burst, and once every 15 s after that. A device on a bad network reconnects a
/// few times a minute and stays within this limit. A device above it has a fault, such as two processes with one identity that
/// replace each other. Its next Hello is refused for two seconds; the delay doubles with each repetition, up to one minute. After
/// the delay the device is always accepted again. An entry expires when its connects are paid off, at 15 s per connect.
///
/// Only a Hello accepted by the shard counts, because it proves the device's identity. An attacker with only a cid cannot slow a
/// device down. A Hello counts even if the client left before its Welcome. A Hello refused as too early changes nothing.
///
/// A value type with a fixed table. A full set of the table evicts the device with the fewest recent connects. Times are in
/// milliseconds of the loop's clock.
struct FlapDamping {
    struct Rules: Equatable {
        /// The number of connects allowed in a burst; 0 disables the delay.
        var connects: Int64 = 20
    }

    /// The time in milliseconds that pays off one connect.
    static let calmMilliseconds: Int64 = 15_000
    static let firstDelay: Int64 = 2_000
    static let longestDelay: Int64 = 60_000
    static let deviceCount = 16_384
    private static let wayCount = 8

    private struct Entry: BitwiseCopyable {
        /// The device's key, from `name(_:)`; 0 if the entry is free.
        var device: UInt64 = 0
        /// The time at which all connects are paid off.
        var paidAt: Int64 = 0
        var slowedUntil: Int64 = 0
        /// The number of consecutive delays.
        var level: Int64 = 0
    }

    struct Report: Equatable {
        var count = 0
        /// The device delayed last, and its delay in milliseconds.
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

    /// Returns the time in milliseconds until the device is accepted; 0 if it is accepted now.
    func delay(of cid: DeviceID, now: Int64) -> Int64 {
        guard rules.connects > 0, let place = place(of: cid) else { return 0 }
        return max(0, entries[place].slowedUntil - now)
    }

    /// Counts a Hello that the shard has accepted.
    ///
    /// - Returns: The delay of the device's next Hello in milliseconds; 0 if the device does not flap.
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
            // The debt is capped, so a long burst does not block a device for a long time afterwards.
            entry.paidAt = min(entry.paidAt, now + (rules.connects + 4) * Self.calmMilliseconds)
            report = Report(count: report.count + 1, device: cid, delay: delay)
        }
        entries[place] = entry
        return delay
    }

    /// Returns the delays imposed since the last call, or `nil` if there were none.
    mutating func takeReport() -> Report? {
        guard report.count > 0 else { return nil }
        defer { report = Report() }
        return report
    }

    // MARK: Places

    /// Returns the table key of a device; cids are random or derived from a proof, so they need no further hashing.
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
