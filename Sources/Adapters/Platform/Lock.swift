internal import Glibc

/// A value behind a pthread mutex, for state off the hot path; never call out of the module while holding it.
///
/// The thread sanitizer does not understand `Synchronization.Mutex` and reports each use as a race.
package final class Lock<State: ~Copyable>: @unchecked Sendable {
    // Safe: `state` is accessed only while `mutex` is locked.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    /// Behind a pointer, where Swift makes no exclusivity checks.
    private let state: UnsafeMutablePointer<State>

    package init(_ state: consuming sending State) {
        self.state = .allocate(capacity: 1)
        self.state.initialize(to: state)
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        let result = pthread_mutex_init(mutex, nil)
        precondition(result == 0, "pthread_mutex_init failed")
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
        state.deinitialize(count: 1)
        state.deallocate()
    }

    package func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout State) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return try body(&state.pointee)
    }
}
