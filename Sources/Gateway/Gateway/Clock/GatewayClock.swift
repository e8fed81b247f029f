package import Delivery

/// Gateway time: the wall clock at start plus the boot-time clock, slewed, never backwards.
///
/// One control thread owns a `GatewayClock` and gives it readings about once a second. The mapping that comes out is
/// a plain value, and every loop keeps a copy of it. So a loop's "now" is one reading of the boot-time clock and a
/// multiplication. Deadlines of messages are in this time, so these rules hold:
///
/// - It never runs backwards, within a process and across a restart.
/// - It follows the wall clock by running up to `ClockLimits.slewPartsPerMillion` faster or slower, so that a small
///   correction neither ends messages early nor shows as a jump.
/// - A wall clock that stands more than an hour ahead is not followed at all and is reported: an RTC battery or a
///   mistyped date must not expire every queue. Across a restart within one boot the stored record tells such a step
///   apart from time spent stopped; after a reboot it cannot be told, and the wall clock is taken.
package struct GatewayClock: Sendable {
    /// What the control thread reads, in milliseconds.
    package struct Reading: Equatable, Sendable {
        /// CLOCK_REALTIME since 1970.
        package var wall: Int64
        /// CLOCK_BOOTTIME: counts through suspends, never set.
        package var boot: Int64
        package init(wall: Int64, boot: Int64) { (self.wall, self.boot) = (wall, boot) }
    }

    /// What an operator has to know, reported when it changes.
    package enum Event: Equatable, Sendable {
        /// The wall clock stands this far ahead, more than an hour, and is not followed.
        case forwardStepRefused(offset: Int64)
        /// It left the gateway's time by more than a second (ahead if positive) and is being followed.
        case drifts(offset: Int64)
        /// They agree again.
        case agrees
    }

    private enum State: Equatable { case agrees, drifts, refused }

    /// What loops compute their time with.
    package private(set) var mapping: ClockMapping
    /// Wall clock minus gateway time at the last reading; a gauge.
    package private(set) var offset: Int64 = 0
    private var state = State.agrees
    private let bootID: BootID

    /// Starts the time.
    ///
    /// - Parameters:
    ///   - reading: the clocks now.
    ///   - bootID: the kernel's name for this boot.
    ///   - stored: the record of the last run; `nil` for an empty store.
    ///   - acceptsClock: take the wall clock even when it stands more than an hour ahead of what it should be.
    package init(_ reading: Reading, bootID: BootID, stored: ClockRecord?, acceptsClock: Bool = false) {
        var start = reading.wall
        if let stored {
            if stored.bootID == bootID, reading.boot >= stored.boot {
                // The same boot: what the time should be is known exactly, however long the gateway was stopped.
                let expected = stored.maximum + (reading.boot - stored.boot)
                start = max(reading.wall, expected)
                if reading.wall - expected > ClockLimits.forwardStep, !acceptsClock { start = expected }
            }
            start = max(start, stored.maximum)
        }
        self.bootID = bootID
        mapping = ClockMapping(boot: reading.boot, time: start, partsPerMillion: 0)
        offset = reading.wall - start
    }

    /// Goes forward to a time that another gateway of the cluster has given; true when that was a step of over a second.
    ///
    /// A message that it accepted is then not younger here than it was there.
    package mutating func raise(to floor: GatewayTime, at reading: Reading) -> Bool {
        let now = mapping.time(atBoot: reading.boot)
        guard floor > now else { return false }
        mapping = ClockMapping(
            boot: max(reading.boot, mapping.boot), time: floor, partsPerMillion: mapping.partsPerMillion)
        offset = reading.wall - floor
        return floor - now > ClockLimits.reportedDrift
    }

    /// Compares with the wall clock and adjusts the speed.
    ///
    /// Call about once a second, and store `record` about every ten seconds and at a clean stop.
    package mutating func observe(_ reading: Reading) -> Event? {
        let now = mapping.time(atBoot: reading.boot)
        offset = reading.wall - now
        let isRefused = offset > ClockLimits.forwardStep
        // Half the distance in the next half minute or so, within the bound.
        let wanted = isRefused ? 0 : offset * 1_000_000 / ClockLimits.slewHorizon
        let speed = max(-ClockLimits.slewPartsPerMillion, min(ClockLimits.slewPartsPerMillion, wanted))
        // The new line starts where the old one stands: no step, not even of a millisecond.
        mapping = ClockMapping(boot: max(reading.boot, mapping.boot), time: now, partsPerMillion: speed)

        let next: State =
            isRefused ? .refused : abs(offset) > ClockLimits.reportedDrift ? .drifts : .agrees
        defer { state = next }
        guard next != state else { return nil }
        switch next {
        case .refused: return .forwardStepRefused(offset: offset)
        case .drifts: return .drifts(offset: offset)
        case .agrees: return .agrees
        }
    }

    /// What a start after this moment needs.
    package func record(_ reading: Reading) -> ClockRecord {
        ClockRecord(maximum: mapping.time(atBoot: reading.boot), boot: reading.boot, bootID: bootID)
    }
}

/// The line from the boot-time clock to gateway time.
package struct ClockMapping: Equatable, Sendable {
    package let boot: Int64
    package let time: GatewayTime
    /// Speed above (below, if negative) the boot-time clock's.
    package let partsPerMillion: Int64

    /// The gateway time at a reading of the boot-time clock; never below where the line starts.
    @inlinable package func time(atBoot boot: Int64) -> GatewayTime {
        let elapsed = max(0, boot &- self.boot)
        return time &+ elapsed &+ elapsed &* partsPerMillion / 1_000_000
    }

    @usableFromInline init(boot: Int64, time: GatewayTime, partsPerMillion: Int64) {
        (self.boot, self.time, self.partsPerMillion) = (boot, time, partsPerMillion)
    }
}

/// The kernel's name for the time since the machine was switched on; 16 bytes.
package struct BootID: Hashable, Sendable {
    package let high: UInt64
    package let low: UInt64
    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// What the store keeps of the clock: the highest time given, and the boot-time clock at that moment.
package struct ClockRecord: Equatable, Sendable {
    package var maximum: GatewayTime
    package var boot: Int64
    package var bootID: BootID

    package init(maximum: GatewayTime, boot: Int64, bootID: BootID) {
        (self.maximum, self.boot, self.bootID) = (maximum, boot, bootID)
    }

    package static let byteCount = 32

    /// Four big-endian words.
    package var bytes: [UInt8] {
        let words = [UInt64(bitPattern: maximum), UInt64(bitPattern: boot), bootID.high, bootID.low]
        return words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(56 - 8 * $0)) } }
    }

    /// `nil` unless it is what `bytes` writes.
    package init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        var words: [UInt64] = [0, 0, 0, 0]
        for (index, byte) in bytes.enumerated() { words[index / 8] = words[index / 8] << 8 | UInt64(byte) }
        let maximum = Int64(bitPattern: words[0]), boot = Int64(bitPattern: words[1])
        // Beyond the year 9999 it is no time of ours, and sums could overflow.
        guard 0...253_402_300_799_999 ~= maximum, 0...253_402_300_799_999 ~= boot else { return nil }
        self.init(maximum: maximum, boot: boot, bootID: BootID(high: words[2], low: words[3]))
    }
}

/// The clock's bounds, in milliseconds unless they say otherwise.
package enum ClockLimits {
    /// Beyond it a wall clock ahead of us is taken for broken.
    package static let forwardStep: Int64 = 3_600_000
    /// Five per cent: a minute is made good in twenty, and a 10 s deadline is off by half a second at most.
    package static let slewPartsPerMillion: Int64 = 50_000
    /// At this distance per second of offset the speed is reduced, so that the approach ends without a swing.
    package static let slewHorizon: Int64 = 30_000
    package static let reportedDrift: Int64 = 1_000
    /// Beyond it `/readyz` names the difference: a business server's or a device's times may be refused for it.
    package static let noticedOffset: Int64 = 10_000
}
