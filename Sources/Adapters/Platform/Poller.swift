internal import CSystem
internal import Glibc

/// An epoll wrapper for a thread with its own loop.
///
/// The load generator uses it; the gateway's loops use libevent. Not thread-safe: one thread creates and uses it. Registrations
/// are edge-triggered and for both directions, so a descriptor is registered once and then read and written until EAGAIN.
package struct Poller: ~Copyable {
    package struct Failure: Error, Equatable, Sendable {
        package let errorNumber: CInt
    }

    package struct Ready: Sendable {
        package let token: UInt64
        package let isReadable: Bool
        package let isWritable: Bool
        /// Whether the peer has ended its side or the connection failed; unread bytes may remain.
        package let isHungUp: Bool
    }

    private static let capacity = 512
    private let descriptor: CInt
    private let events: UnsafeMutablePointer<longwire_ready>

    package init() throws(Failure) {
        descriptor = longwire_poll_create()
        guard descriptor >= 0 else { throw Failure(errorNumber: errno) }
        events = .allocate(capacity: Self.capacity)
        events.initialize(repeating: longwire_ready(), count: Self.capacity)
    }

    deinit {
        events.deallocate()
        _ = close(descriptor)
    }

    /// Registers a non-blocking descriptor; closing the descriptor removes it.
    package func add(_ descriptor: CInt, token: UInt64) throws(Failure) {
        guard longwire_poll_add(self.descriptor, descriptor, token) == 0 else {
            throw Failure(errorNumber: errno)
        }
    }

    /// Waits for readiness.
    ///
    /// - Parameter nanoseconds: the longest wait; negative for no bound.
    /// - Returns: the number of ready descriptors, at most 512, or 0 after a signal. They must be read with `ready(at:)` before
    ///   the next wait.
    /// - Throws: when the system call fails.
    package mutating func wait(nanoseconds: Int64) throws(Failure) -> Int {
        let count = longwire_poll_wait(descriptor, events, CInt(Self.capacity), nanoseconds)
        guard count >= 0 else { throw Failure(errorNumber: errno) }
        return Int(count)
    }

    /// Returns a descriptor that the last `wait(nanoseconds:)` reported; `index` must be below its result.
    package func ready(at index: Int) -> Ready {
        precondition(index >= 0 && index < Self.capacity, "no such event")
        let event = events[index]
        return Ready(
            token: event.token, isReadable: event.flags & UInt32(LONGWIRE_READABLE) != 0,
            isWritable: event.flags & UInt32(LONGWIRE_WRITABLE) != 0,
            isHungUp: event.flags & UInt32(LONGWIRE_HUNG_UP) != 0)
    }
}
