internal import CSystem
internal import Glibc

/// Readiness of many descriptors for one thread that owns its whole turn: the load generator, not the gateway, whose
/// loops are libevent's.
///
/// Not thread-safe: one thread makes it and uses it. Registrations are edge-triggered and for both directions, so a
/// descriptor is touched once and then only read and written until the kernel says "not now".
package struct Poller: ~Copyable {
    package struct Failure: Error, Equatable, Sendable {
        package let errorNumber: CInt
    }

    package struct Ready: Sendable {
        /// What the descriptor was added with.
        package let token: UInt64
        package let isReadable: Bool
        package let isWritable: Bool
        /// The peer has ended its side, or the connection failed; there may still be bytes to read.
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

    /// Registers a non-blocking descriptor; closing it takes it out again.
    package func add(_ descriptor: CInt, token: UInt64) throws(Failure) {
        guard longwire_poll_add(self.descriptor, descriptor, token) == 0 else {
            throw Failure(errorNumber: errno)
        }
    }

    /// Waits for readiness.
    ///
    /// - Parameter nanoseconds: the longest wait; negative for no bound.
    /// - Returns: how many are ready, at most 512; read them with `ready(at:)` before the next wait.
    /// - Throws: when the system call fails; a signal is no failure, it answers 0.
    package mutating func wait(nanoseconds: Int64) throws(Failure) -> Int {
        let count = longwire_poll_wait(descriptor, events, CInt(Self.capacity), nanoseconds)
        guard count >= 0 else { throw Failure(errorNumber: errno) }
        return Int(count)
    }

    /// One of those that the last `wait(nanoseconds:)` counted; `index` is below what it returned.
    package func ready(at index: Int) -> Ready {
        precondition(index >= 0 && index < Self.capacity, "no such event")
        let event = events[index]
        return Ready(
            token: event.token, isReadable: event.flags & UInt32(LONGWIRE_READABLE) != 0,
            isWritable: event.flags & UInt32(LONGWIRE_WRITABLE) != 0,
            isHungUp: event.flags & UInt32(LONGWIRE_HUNG_UP) != 0)
    }
}
