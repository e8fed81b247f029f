internal import Glibc

public struct SystemError: Error, Equatable, CustomStringConvertible {
    /// The system call, or the step it belongs to: `open`, `fdatasync`.
    package let operation: String
    /// The path or address of the call, or empty.
    package let subject: String
    package let code: CInt

    package init(operation: String, subject: String = "", code: CInt) {
        (self.operation, self.subject, self.code) = (operation, subject, code)
    }

    /// Returns an error with the current `errno`; must be called before anything else can change it.
    package static func last(_ operation: String, _ subject: String = "") -> SystemError {
        let code = errno
        return SystemError(operation: operation, subject: subject, code: code)
    }

    /// The system's text for the code.
    package var reason: String { strerror(code).map { String(cString: $0) } ?? "error \(code)" }

    public var description: String {
        subject.isEmpty ? "\(operation): \(reason)" : "\(operation) \(subject): \(reason)"
    }
}

extension SystemError {
    package var isNotFound: Bool { code == ENOENT }
    package var isForbidden: Bool { code == EACCES || code == EPERM }
    package var isBrokenPipe: Bool { code == EPIPE }
    package var isAlreadyThere: Bool { code == EEXIST }
    package var isOutOfSpace: Bool { code == ENOSPC || code == EDQUOT }
    package var isAddressInUse: Bool { code == EADDRINUSE }
    /// Whether the machine is reachable but nothing listens at the address.
    package var isConnectionRefused: Bool { code == ECONNREFUSED }
}
