internal import CSystem
internal import Glibc

/// An eventfd: any thread signals it, one event loop sleeps on it.
package final class Wakeup: Sendable {
    /// For the loop's poller only; it stays this object's to close.
    package let descriptor: CInt

    package init() throws(SystemError) {
        descriptor = longwire_eventfd()
        guard descriptor >= 0 else { throw .last("eventfd") }
    }

    deinit { Glibc.close(descriptor) }

    /// Makes the descriptor readable; never blocks, since a full counter is readable already.
    package func signal() {
        var one: UInt64 = 1
        while write(descriptor, &one, 8) < 0, errno == EINTR {}
    }

    /// Makes the descriptor unreadable until the next signal.
    package func clear() {
        var count: UInt64 = 0
        while read(descriptor, &count, 8) < 0, errno == EINTR {}
    }
}
