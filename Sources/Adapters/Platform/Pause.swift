internal import Glibc

/// A thread that sleeps; never a loop's.
package enum Pause {
    package static func milliseconds(_ count: UInt64) { usleep(useconds_t(min(count, 1_000_000)) * 1_000) }
}
