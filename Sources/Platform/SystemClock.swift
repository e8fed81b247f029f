internal import Glibc

/// The clocks of the machine and of the process, as plain numbers, for the edges that hand time to the pure modules.
package enum SystemClock {
    /// Never goes back and stands still while the machine sleeps; for timers and measurements.
    package static var monotonicNanoseconds: UInt64 { read(CLOCK_MONOTONIC) }
    package static var monotonicMilliseconds: UInt64 { read(CLOCK_MONOTONIC) / 1_000_000 }

    /// Never goes back and counts the machine's sleep; for what must expire while a laptop is closed.
    package static var boottimeNanoseconds: UInt64 { read(CLOCK_BOOTTIME) }
    package static var boottimeMilliseconds: UInt64 { read(CLOCK_BOOTTIME) / 1_000_000 }

    /// Milliseconds since 1970; may jump in both directions.
    package static var wallMilliseconds: UInt64 { read(CLOCK_REALTIME) / 1_000_000 }

    /// CPU time of all threads of this process so far.
    package static var processNanoseconds: UInt64 { read(CLOCK_PROCESS_CPUTIME_ID) }

    /// CPU time of the calling thread so far; costs a system call.
    package static var threadNanoseconds: UInt64 { read(CLOCK_THREAD_CPUTIME_ID) }

    private static func read(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        let result = clock_gettime(clock, &time)
        precondition(result == 0, "the kernel lacks a clock that Linux has had since 2.6.39")
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
