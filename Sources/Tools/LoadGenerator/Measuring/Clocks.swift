internal import Glibc
internal import Platform

/// The clocks of a run.
enum Clocks {
    /// Nanoseconds of the monotonic clock.
    @inline(__always)
    static func now() -> Int64 { Int64(SystemClock.monotonicNanoseconds) }

    /// Milliseconds since 1970, for Hello and the push API's signature.
    static func wallMilliseconds() -> UInt64 { SystemClock.wallMilliseconds }

    /// CPU time that the calling thread has used.
    static func threadCPU() -> Int64 { Int64(SystemClock.threadNanoseconds) }

    static func sleep(nanoseconds: Int64) {
        var length = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        _ = nanosleep(&length, nil)
    }
}
