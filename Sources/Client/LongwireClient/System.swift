// The system calls of the client, with one spelling for all platforms.
#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

enum System {
    /// The link to the system's time zone on Linux.
    static let timeZoneLink = "/etc/localtime"

    /// Returns the time of both clocks.
    ///
    /// The monotonic clock includes sleep. Otherwise a device that slept through its heartbeat would rely on a dead socket.
    static func now() -> ClientTime {
        #if canImport(Darwin)
        let clock = CLOCK_MONOTONIC
        #else
        let clock = CLOCK_BOOTTIME
        #endif
        return ClientTime(monotonic: milliseconds(of: clock), wall: milliseconds(of: CLOCK_REALTIME))
    }

    /// Returns the wall time at which a wait of this length ends, for `pthread_cond_timedwait`.
    static func wallDeadline(afterMilliseconds milliseconds: Int64) -> timespec {
        let end = Self.milliseconds(of: CLOCK_REALTIME) + milliseconds
        var time = timespec()
        time.tv_sec = Int(end / 1_000)
        time.tv_nsec = Int(end % 1_000 * 1_000_000)
        return time
    }

    private static func milliseconds(of clock: clockid_t) -> Int64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }

    static func describe(_ error: CInt) -> String {
        strerror(error).map { String(cString: $0) } ?? "error \(error)"
    }

    /// Reads up to `bytes.count` bytes; returns 0 at the end, and a negative number for an error.
    static func readOnce(_ descriptor: CInt, _ bytes: inout [UInt8]) -> Int { read(descriptor, &bytes, bytes.count) }

    static func makeNonBlocking(_ descriptor: CInt) {
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    }
}
