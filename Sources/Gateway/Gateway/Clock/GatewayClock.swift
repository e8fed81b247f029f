package import Delivery

/// The gateway time: the wall clock at the start plus the boot-time clock, slewed, never backwards.
///
/// The control thread owns a `GatewayClock` and passes it readings about once a second. The resulting mapping is a plain value
/// that every loop copies, so a loop reads the time with one clock call and a multiplication. Message deadlines use the gateway
/// time.
///
/// - It never runs backwards, within a process and across a restart.
/// - It follows the wall clock by running up to `ClockLimits.slewPartsPerMillion` faster or slower. A small correction therefore
///   neither expires messages early nor causes a jump.
/// - It ignores and reports a wall clock that is more than an hour ahead. A bad RTC battery or a mistyped date must not expire
///   every queue. After a restart within one boot, the stored record distinguishes such a step from downtime. After a reboot
///   it cannot, and the wall clock is used.
package struct GatewayClock: Sendable {
    /// The readings of the control thread, in milliseconds.
    package struct Reading: Equatable, Sendable {
        /// CLOCK_REALTIME since 1970.
        package var wall: Int64
        /// CLOCK_BOOTTIME, which includes suspends and is never set.
        package var boot: Int64
        package init(wall: Int64, boot: Int64) { (self.wall, self.boot) = (wall, boot) }
    }

    /// A change of the clock's state, to be logged.
    package enum Event: Equatable, Sendable {
        /// The wall clock is ahead by `offset`, more than an hour, and is ignored.
        case forwardStepRefused(offset: Int64)
        /// The wall clock differs by more than a second (ahead if positive), and the gateway time follows it.
        case drifts(offset: Int64)
        /// The wall clock and the gateway time agree again.
        case agrees
    }

    private enum State: Equatable { case agrees, drifts, refused }

    /// The mapping with which loops compute the time.
    package private(set) var mapping: ClockMapping
    /// The wall clock minus the gateway time at the last reading, in milliseconds.
    package private(set) var offset: Int64 = 0
    private var state = State.agrees
    private let bootID: BootID

    /// Starts the gateway time.
    ///
    /// - Parameters:
    ///   - reading: The current clocks.
    ///   - bootID: The kernel's id of this boot.
    ///   - stored: The record of the last run; `nil` for an empty store.
    ///   - acceptsClock: Whether to accept a wall clock that is more than an hour ahead.
    package init(_ reading: Reading, bootID: BootID, stored: ClockRecord?, acceptsClock: Bool = false) {
        var start = reading.wall
        if let stored {
            if stored.bootID == bootID, reading.boot >= stored.boot {
                // Within one boot, the boot-time clock gives the exact time, however long the process was down.
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

    /// Advances to a time that another gateway of the cluster has used; returns whether the step exceeds a second.
    ///
    /// Otherwise messages accepted by that gateway would have an acceptance time in this gateway's future.
    package mutating func raise(to floor: GatewayTime, at reading: Reading) -> Bool {
        let now = mapping.time(atBoot: reading.boot)
        guard floor > now else { return false }
        mapping = ClockMapping(
            boot: max(reading.boot, mapping.boot), time: floor, partsPerMillion: mapping.partsPerMillion)
        offset = reading.wall - floor
        return floor - now > ClockLimits.reportedDrift
    }

    /// Compares the gateway time with the wall clock and adjusts the speed.
    ///
    /// Call it about once a second, and store `record` about every ten seconds and at a clean stop.
    package mutating func observe(_ reading: Reading) -> Event? {
        let now = mapping.time(atBoot: reading.boot)
        offset = reading.wall - now
        let isRefused = offset > ClockLimits.forwardStep
        // This speed would remove the offset within `slewHorizon`; the next line limits it.
        let wanted = isRefused ? 0 : offset * 1_000_000 / ClockLimits.slewHorizon
        let speed = max(-ClockLimits.slewPartsPerMillion, min(ClockLimits.slewPartsPerMillion, wanted))
        // The new mapping starts at the current time, so that no step occurs.
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

    package func record(_ reading: Reading) -> ClockRecord {
        ClockRecord(maximum: mapping.time(atBoot: reading.boot), boot: reading.boot, bootID: bootID)
    }
}

/// A linear mapping from the boot-time clock to the gateway time.
package struct ClockMapping: Equatable, Sendable {
    package let boot: Int64
    package let time: GatewayTime
    /// The speed relative to the boot-time clock, faster if positive.
    package let partsPerMillion: Int64

    /// Returns the gateway time at a reading of the boot-time clock; never less than the mapping's start.
    @inlinable package func time(atBoot boot: Int64) -> GatewayTime {
        let elapsed = max(0, boot &- self.boot)
        return time &+ elapsed &+ elapsed &* partsPerMillion / 1_000_000
    }

    @usableFromInline init(boot: Int64, time: GatewayTime, partsPerMillion: Int64) {
        (self.boot, self.time, self.partsPerMillion) = (boot, time, partsPerMillion)
    }
}

/// The kernel's random id of the current boot, 16 bytes.
package struct BootID: Hashable, Sendable {
    package let high: UInt64
    package let low: UInt64
    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// The stored state of the clock: the highest gateway time, and the boot-time clock at that moment.
package struct ClockRecord: Equatable, Sendable {
    package var maximum: GatewayTime
    package var boot: Int64
    package var bootID: BootID

    package init(maximum: GatewayTime, boot: Int64, bootID: BootID) {
        (self.maximum, self.boot, self.bootID) = (maximum, boot, bootID)
    }

    package static let byteCount = 32

    /// The encoded record: four big-endian words.
    package var bytes: [UInt8] {
        let words = [UInt64(bitPattern: maximum), UInt64(bitPattern: boot), bootID.high, bootID.low]
        return words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(56 - 8 * $0)) } }
    }

    /// Decodes a record; returns `nil` for invalid bytes.
    package init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        var words: [UInt64] = [0, 0, 0, 0]
        for (index, byte) in bytes.enumerated() { words[index / 8] = words[index / 8] << 8 | UInt64(byte) }
        let maximum = Int64(bitPattern: words[0]), boot = Int64(bitPattern: words[1])
        // Times after the year 9999 are invalid, and sums could overflow.
        guard 0...253_402_300_799_999 ~= maximum, 0...253_402_300_799_999 ~= boot else { return nil }
        self.init(maximum: maximum, boot: boot, bootID: BootID(high: words[2], low: words[3]))
    }
}

/// The limits of the clock, in milliseconds unless noted.
package enum ClockLimits {
    /// The lead above which the wall clock is considered wrong.
    package static let forwardStep: Int64 = 3_600_000
    /// The largest change of speed, 5 %, which removes a minute in 20 minutes and shifts a 10 s deadline by at most 0.5 s.
    package static let slewPartsPerMillion: Int64 = 50_000
    /// The time in which the current speed would remove the offset; the speed falls with the offset, which prevents an overshoot.
    package static let slewHorizon: Int64 = 30_000
    package static let reportedDrift: Int64 = 1_000
    /// The offset above which `/readyz` warns, because timestamps of business servers or devices may be rejected.
    package static let noticedOffset: Int64 = 10_000
}
