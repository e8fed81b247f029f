internal import Configuration
internal import Platform

/// The readings that `GatewayClock` works with.
package enum ClockReader {
    /// Both clocks, as close together as two system calls get.
    package static func reading() -> GatewayClock.Reading {
        GatewayClock.Reading(
            wall: Int64(SystemClock.wallMilliseconds), boot: Int64(SystemClock.boottimeMilliseconds))
    }

    /// The wall clock, for what people and other programs hold against their own: log lines, `Date`, the hook's signature.
    ///
    /// Nothing that is stored or that becomes due comes from it: see `GatewayClock`.
    package static func wall() -> Int64 { Int64(SystemClock.wallMilliseconds) }

    /// What `ClockMapping.time(atBoot:)` takes.
    package static func boot() -> Int64 { Int64(SystemClock.boottimeMilliseconds) }

    /// For durations inside the process.
    package static func monotonic() -> Int64 { Int64(SystemClock.monotonicMilliseconds) }

    /// The kernel's boot id; zero where there is none, which then never equals a stored one's boot.
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

    /// Without the kernel's id every start counts as a new boot.
    private static func fallbackBootID() -> BootID {
        var random = SystemRandomNumberGenerator()
        return BootID(high: random.next(), low: random.next())
    }
}
