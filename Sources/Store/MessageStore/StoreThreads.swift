internal import Glibc
package import Platform

/// A thread that can stand in an array until it is joined.
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

/// The last words of a process that cannot go on.
enum StandardError {
    static func write(_ text: String) {
        // The process is about to end, and must end though nobody reads it.
        _ = BoundedWriter.write(text, to: STDERR_FILENO, atMostMilliseconds: 1_000)
    }

    /// Ends the process at once: destructors and other threads must not touch a store that has failed.
    static func exit(code: CInt) -> Never { _exit(code) }
}
