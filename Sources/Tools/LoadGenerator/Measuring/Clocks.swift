internal import Glibc
internal import Platform

enum Clocks {
    /// Returns the monotonic clock in nanoseconds.
    @inline(__always)
    static func now() -> Int64 { Int64(SystemClock.monotonicNanoseconds) }

    /// Returns the wall clock in milliseconds since 1970, for Hello and the push API's signature.
    static func wallMilliseconds() -> UInt64 { SystemClock.wallMilliseconds }

    /// Returns the calling thread's CPU time in nanoseconds.
    static func threadCPU() -> Int64 { Int64(SystemClock.threadNanoseconds) }

    static func sleep(nanoseconds: Int64) {
        var length = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
        _ = nanosleep(&length, nil)
    }
}
