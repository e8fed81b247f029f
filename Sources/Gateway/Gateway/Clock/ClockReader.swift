internal import Configuration
internal import Platform

/// The clock readings for `GatewayClock`, in milliseconds.
package enum ClockReader {
    /// Reads the wall clock and the boot-time clock, with as little time between the two calls as possible.
    package static func reading() -> GatewayClock.Reading {
        GatewayClock.Reading(
            wall: Int64(SystemClock.wallMilliseconds), boot: Int64(SystemClock.boottimeMilliseconds))
    }

    /// Returns the wall clock time for comparison with other programs: log lines, `Date`, the hook's signature.
    ///
    /// Stored times and deadlines use the gateway time instead (`GatewayClock`).
    package static func wall() -> Int64 { Int64(SystemClock.wallMilliseconds) }

    /// Returns the boot-time clock, for `ClockMapping.time(atBoot:)`.
    package static func boot() -> Int64 { Int64(SystemClock.boottimeMilliseconds) }

    /// Returns the monotonic clock, for durations inside the process.
    package static func monotonic() -> Int64 { Int64(SystemClock.monotonicMilliseconds) }

    /// Returns the kernel's boot id, or a random id if it cannot be read.
    package static func bootID() -> BootID {
        guard let contents = try? FileText.read("/proc/sys/kernel/random/boot_id", limit: 64) else {
            return fallbackBootID()
        }
        let digits = String(decoding: contents.bytes.filter { $0 != UInt8(ascii: "-") && $0 > 0x20 }, as: UTF8.self)
        guard digits.utf8.count == 32, let high = UInt64(digits.prefix(16), radix: 16),
            let low = UInt64(digits.dropFirst(16), radix: 16)
        else { return fallbackBootID() }
        return BootID(high: high, low: low)
    }

    /// With a random id, every start counts as a new boot.
    private static func fallbackBootID() -> BootID {
        var random = SystemRandomNumberGenerator()
        return BootID(high: random.next(), low: random.next())
    }
}
