internal import Glibc

/// A value behind a mutex with one condition variable, for threads that wait for a condition of the value.
package final class Monitor<State: ~Copyable>: @unchecked Sendable {
    // Safe: `state` is accessed only while `mutex` is held. Waiting releases and reacquires the mutex.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    private var state: State

    package init(_ state: consuming sending State) {
        self.state = state
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        condition = .allocate(capacity: 1)
        condition.initialize(to: pthread_cond_t())
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        // A timeout must not depend on the wall clock, which may jump.
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        let results = (pthread_mutex_init(mutex, nil), pthread_cond_init(condition, &attributes))
        pthread_condattr_destroy(&attributes)
        precondition(results == (0, 0), "the system could not make a mutex and its condition")
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    package func signal<Result: ~Copyable>(_ body: (inout State) -> Result) -> Result {
        pthread_mutex_lock(mutex)
        defer {
            pthread_cond_signal(condition)
            pthread_mutex_unlock(mutex)
        }
        return body(&state)
    }

    package func broadcast<Result: ~Copyable>(_ body: (inout State) -> Result) -> Result {
        pthread_mutex_lock(mutex)
        defer {
            pthread_cond_broadcast(condition)
            pthread_mutex_unlock(mutex)
        }
        return body(&state)
    }

    package func withLock<Result: ~Copyable>(_ body: (inout State) -> Result) -> Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return body(&state)
    }

    /// Waits while `isUnready` returns `true`, at most `milliseconds` if given, then runs `body` under the same lock.
    package func wait<Result: ~Copyable>(
        atMostMilliseconds milliseconds: UInt64? = nil, while isUnready: (borrowing State) -> Bool,
        then body: (inout State) -> Result
    ) -> Result {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        let deadline = milliseconds.map { SystemClock.monotonicNanoseconds + $0 * 1_000_000 }
        while isUnready(state) {
            guard let deadline else {
                pthread_cond_wait(condition, mutex)
                continue
            }
            var time = timespec(
                tv_sec: Int(deadline / 1_000_000_000), tv_nsec: Int(deadline % 1_000_000_000))
            if pthread_cond_timedwait(condition, mutex, &time) == ETIMEDOUT { break }
        }
        return body(&state)
    }
}
