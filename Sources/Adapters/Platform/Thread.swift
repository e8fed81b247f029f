internal import CSystem
internal import Glibc

/// A joinable thread with a name, for work that blocks or that owns an event loop.
///
/// Exactly one `join()` or `detach()` per thread: the sanitizers report a thread that had neither.
package struct Thread: ~Copyable, @unchecked Sendable {
    // Sound because the handle is only a number and both ends consume it.
    private let handle: pthread_t

    /// Starts `body` on a new thread named `name` (15 bytes show).
    package init(named name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
        var handle = pthread_t()
        let start = Unmanaged.passRetained(Start(name: name, body: body))
        let result = pthread_create(
            &handle, nil,
            { context in
                guard let context else { preconditionFailure("a thread started without its context") }
                let start = Unmanaged<Start>.fromOpaque(context).takeRetainedValue()
                longwire_name_this_thread(start.name)
                start.body()
                return nil
            }, start.toOpaque())
        guard result == 0 else {
            start.release()
            throw SystemError(operation: "pthread_create", subject: name, code: result)
        }
        self.handle = handle
    }

    /// Waits for the end of the thread.
    package consuming func join() {
        let result = pthread_join(handle, nil)
        precondition(result == 0, "a thread cannot join itself")
    }

    /// Lets the thread end by itself, for work that may outlast the caller: the process's end is its end, too.
    package consuming func detach() {
        let result = pthread_detach(handle)
        precondition(result == 0, "a thread is detached once")
    }

    /// A number that no two living threads share; never 0.
    package static var currentIdentifier: UInt { UInt(pthread_self()) }
}

private final class Start {
    let name: String
    let body: @Sendable () -> Void
    init(name: String, body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }
}
