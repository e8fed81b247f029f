// Platform: the operating system in Swift (files, locks, threads, clocks, sockets' system calls).
internal import Glibc

/// A system call that failed, with what it was about.
public struct SystemError: Error, Equatable, CustomStringConvertible {
    /// The system call, or the step it belongs to: `open`, `fdatasync`.
    package let operation: String
    /// What the call worked on: a path or an address; empty if there is no name for it.
    package let subject: String
    /// The value of `errno`.
    package let code: CInt

    package init(operation: String, subject: String = "", code: CInt) {
        (self.operation, self.subject, self.code) = (operation, subject, code)
    }

    /// Takes `errno` as the failed call left it; to be called before anything else can change it.
    package static func last(_ operation: String, _ subject: String = "") -> SystemError {
        let code = errno
        return SystemError(operation: operation, subject: subject, code: code)
    }

    public var description: String {
        let reason = strerror(code).map { String(cString: $0) } ?? "error \(code)"
        return subject.isEmpty ? "\(operation): \(reason)" : "\(operation) \(subject): \(reason)"
    }
}

extension SystemError {
    package var isNotFound: Bool { code == ENOENT }
    /// The reader of a pipe has left.
    package var isBrokenPipe: Bool { code == EPIPE }
    package var isAlreadyThere: Bool { code == EEXIST }
    package var isOutOfSpace: Bool { code == ENOSPC || code == EDQUOT }
    package var isAddressInUse: Bool { code == EADDRINUSE }
    /// The machine answers, and nothing listens at the address.
    package var isConnectionRefused: Bool { code == ECONNREFUSED }
}
