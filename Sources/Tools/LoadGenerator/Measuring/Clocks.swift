internal import Glibc

/// The clocks of a run.
enum Clocks {
    /// Nanoseconds of the monotonic clock.
    @inline(__always)
    static func now() -> Int64 { read(CLOCK_MONOTONIC) }

    /// Milliseconds since 1970, for Hello and the push API's signature.
    static func wallMilliseconds() -> UInt64 { UInt64(max(0, read(CLOCK_REALTIME) / 1_000_000)) }

    /// CPU time that the calling thread has used.
    static func threadCPU() -> Int64 { read(CLOCK_THREAD_CPUTIME_ID) }

    static func sleep(nanoseconds: Int64) {
        var length = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        _ = nanosleep(&length, nil)
    }

    @inline(__always)
    private static func read(_ clock: clockid_t) -> Int64 {
        var value = timespec()
        _ = clock_gettime(clock, &value)
        return Int64(value.tv_sec) * 1_000_000_000 + Int64(value.tv_nsec)
    }
}
