internal import CSystem
internal import Glibc

/// A timerfd: one event loop sleeps on it, for waits far below a poller's millisecond.
///
/// Confined to the thread that made it, as its descriptor may be of a table of that thread.
package struct PreciseTimer: ~Copyable {
    /// For the loop's poller only; it stays this value's to close.
    package let descriptor: CInt

    package init() throws(SystemError) {
        descriptor = longwire_timerfd()
        guard descriptor >= 0 else { throw .last("timerfd_create") }
    }

    deinit { Glibc.close(descriptor) }

    /// Makes the descriptor readable once, after this many nanoseconds; an earlier time is forgotten.
    package func set(_ nanoseconds: Int64) {
        let result = longwire_timerfd_set(descriptor, max(1, nanoseconds))
        precondition(result == 0, "the kernel refused a time that is one")
    }

    /// Makes the descriptor unreadable until the next time.
    package func clear() {
        var count: UInt64 = 0
        while read(descriptor, &count, 8) < 0, errno == EINTR {}
    }
}
