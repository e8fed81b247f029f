internal import CSystem
internal import Glibc

/// A timerfd for one event loop, for delays far below a millisecond, confined to the thread that created it.
package struct PreciseTimer: ~Copyable {
    /// The descriptor for the loop's poller; only this value may close it.
    package let descriptor: CInt

    package init() throws(SystemError) {
        descriptor = longwire_timerfd()
        guard descriptor >= 0 else { throw .last("timerfd_create") }
    }

    deinit { Glibc.close(descriptor) }

    /// Makes the descriptor readable once after this delay; replaces an earlier setting.
    package func set(_ nanoseconds: Int64) {
        let result = longwire_timerfd_set(descriptor, max(1, nanoseconds))
        precondition(result == 0, "the kernel refused a time that is one")
    }

    /// Makes the descriptor unreadable until the timer fires again.
    package func clear() {
        var count: UInt64 = 0
        while read(descriptor, &count, 8) < 0, errno == EINTR {}
    }
}
