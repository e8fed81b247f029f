internal import Glibc

/// The clocks of the machine and of the process, as integers; core modules receive the time as an argument instead.
package enum SystemClock {
    /// A clock for timers and measurements; it never decreases and stops during the machine's sleep.
    package static var monotonicNanoseconds: UInt64 { read(CLOCK_MONOTONIC) }
    package static var monotonicMilliseconds: UInt64 { read(CLOCK_MONOTONIC) / 1_000_000 }

    /// A clock for expiry times; it never decreases and includes the machine's sleep.
    package static var boottimeMilliseconds: UInt64 { read(CLOCK_BOOTTIME) / 1_000_000 }

    /// Milliseconds since 1970; the value may jump in both directions.
    package static var wallMilliseconds: UInt64 { read(CLOCK_REALTIME) / 1_000_000 }

    /// The CPU time of all threads of this process.
    package static var processNanoseconds: UInt64 { read(CLOCK_PROCESS_CPUTIME_ID) }

    /// The CPU time of the calling thread; reading it costs a system call.
    package static var threadNanoseconds: UInt64 { read(CLOCK_THREAD_CPUTIME_ID) }

    /// The kernel's id of this boot in 32 hex digits, or `nil` if unavailable.
    package static var bootID: String? {
        guard let file = try? File(path: "/proc/sys/kernel/random/boot_id", mode: .read) else { return nil }
        return withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { buffer in
            guard let count = try? file.read(into: buffer, at: 0) else { return nil }
            let digits = buffer[..<count].filter { $0 != UInt8(ascii: "-") && $0 > 0x20 }
            return digits.count == 32 ? String(decoding: digits, as: UTF8.self) : nil
        }
    }

    private static func read(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        let result = clock_gettime(clock, &time)
        precondition(result == 0, "the kernel lacks a clock that Linux has had since 2.6.39")
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
