internal import Glibc

/// Blocking sleeps, never to be used on an event loop.
package enum Pause {
    package static func milliseconds(_ count: UInt64) { usleep(useconds_t(min(count, 1_000_000)) * 1_000) }
}
