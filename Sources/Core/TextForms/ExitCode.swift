/// The exit codes of the programs (sysexits.h); scripts depend on them.
package enum ExitCode: Int32, Sendable, CaseIterable {
    case done = 0
    /// A request was rejected or a check failed; the message is printed.
    case refused = 1
    /// The command line is invalid.
    case usage = 64
    /// The only fault that `--check` found is a certificate that clients reject; a gateway would start with it.
    case certificate = 65
    case unreachable = 69
    case `internal` = 70
    /// Standard output could not be written completely, or a gateway's store failed.
    case failedOutput = 74
    /// The configuration is invalid, or an address could not be bound.
    case configuration = 78
    /// The reader of standard output closed it: the code a shell reports for SIGPIPE.
    case readerLeft = 141
}

/// An error that ends a command with an exit code and a message.
package struct CommandFailure: Error, Equatable, CustomStringConvertible {
    package let code: ExitCode
    package let message: String
    package var description: String { message }

    private init(_ code: ExitCode, _ message: String) { (self.code, self.message) = (code, message) }

    package static func usage(_ message: String) -> Self { Self(.usage, message) }
    package static func refused(_ message: String) -> Self { Self(.refused, message) }
    package static func unreachable(_ message: String) -> Self { Self(.unreachable, message) }
}
