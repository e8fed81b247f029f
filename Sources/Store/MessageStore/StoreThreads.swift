internal import Glibc
package import Platform

/// A thread handle that can be stored in an array and joined once.
package final class JoinableThread {
    private var thread: Thread?

    package init(named name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
        thread = try Thread(named: name, body)
    }

    package func join() {
        guard let thread = thread.take() else { return }
        thread.join()
    }
}

/// Output and exit of a process with a failed store.
enum StandardError {
    static func write(_ text: String) {
        // The write is bounded, because the process must exit even if stderr is blocked.
        _ = BoundedWriter.write(text, to: STDERR_FILENO, atMostMilliseconds: 1_000)
    }

    /// Exits immediately; destructors and other threads must not touch a failed store.
    static func exit(code: CInt) -> Never { _exit(code) }
}
