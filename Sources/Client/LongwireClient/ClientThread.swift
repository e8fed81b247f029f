#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

enum ClientThread {
    private final class Box {
        let body: () -> Void
        init(_ body: @escaping () -> Void) { self.body = body }
    }

    /// Starts a detached thread.
    ///
    /// - Parameter body: moved to the new thread.
    /// - Returns: false when the system gave no thread; `body` was not called then.
    static func start(_ body: sending @escaping () -> Void) -> Bool {
        // The new thread releases this retain. If no thread starts, the code below does.
        let context = Unmanaged.passRetained(Box(body))
        #if canImport(Darwin)
        var thread: pthread_t?
        let code = pthread_create(
            &thread, nil,
            { context in
                Unmanaged<Box>.fromOpaque(context).takeRetainedValue().body()
                return nil
            }, context.toOpaque())
        guard code == 0, let thread else {
            context.release()
            return false
        }
        #else
        var thread = pthread_t()
        let code = pthread_create(
            &thread, nil,
            { context in
                if let context { Unmanaged<Box>.fromOpaque(context).takeRetainedValue().body() }
                return nil
            }, context.toOpaque())
        guard code == 0 else {
            context.release()
            return false
        }
        #endif
        pthread_detach(thread)
        return true
    }
}

/// A latch that threads wait for.
///
/// It opens once and stays open.
///
/// Sound although unchecked: `opened` is accessed only while `mutex` is held, and neither `mutex` nor `condition` moves.
final class Latch: @unchecked Sendable {
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    private var opened = false

    init() {
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
        condition = .allocate(capacity: 1)
        condition.initialize(to: pthread_cond_t())
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        condition.deallocate()
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    var isOpen: Bool {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        return opened
    }

    func open() {
        pthread_mutex_lock(mutex)
        opened = true
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    func wait() {
        pthread_mutex_lock(mutex)
        while !opened { pthread_cond_wait(condition, mutex) }
        pthread_mutex_unlock(mutex)
    }

    /// Waits until the latch is open or the time is over; returns whether it is open.
    func wait(milliseconds: Int64) -> Bool {
        var until = System.wallDeadline(afterMilliseconds: milliseconds)
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while !opened {
            // Both a timeout and a time that the system rejects end the wait.
            if pthread_cond_timedwait(condition, mutex, &until) != 0 { break }
        }
        return opened
    }
}
