internal import CSystem
internal import Glibc

/// A named thread; it needs exactly one `join()` or `detach()`, since the sanitizers report a thread without either.
package struct Thread: ~Copyable, @unchecked Sendable {
    // Safe: the handle is only a number, and both `join` and `detach` consume the value.
    private let handle: pthread_t

    /// Starts `body` on a new thread; the system shows 15 bytes of `name`.
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

    package consuming func join() {
        let result = pthread_join(handle, nil)
        precondition(result == 0, "a thread cannot join itself")
    }

    /// Detaches the thread, for work that may outlast the caller; it ends with the process at the latest.
    package consuming func detach() {
        let result = pthread_detach(handle)
        precondition(result == 0, "a thread is detached once")
    }

    /// A nonzero number that is unique among running threads.
    package static var currentIdentifier: UInt { UInt(pthread_self()) }
}

private final class Start {
    let name: String
    let body: @Sendable () -> Void
    init(name: String, body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }
}
