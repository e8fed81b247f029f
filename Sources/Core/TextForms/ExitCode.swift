/// How the programs end (sysexits.h); part of their contract with scripts.
package enum ExitCode: Int32, Sendable, CaseIterable {
    case done = 0
    /// The gateway, or what was looked at, said no; its message is printed.
    case refused = 1
    /// The command line makes no sense.
    case usage = 64
    /// Of `--check`: clients refuse a certificate, and nothing else is wrong; a start goes on with it.
    case certificate = 65
    /// No gateway answers at the address.
    case unreachable = 69
    /// A fault of ours.
    case `internal` = 70
    /// Standard output cannot be written, so what stands there is not all; or a gateway's store fails.
    case failedOutput = 74
    /// The configuration, or an address that cannot be bound.
    case configuration = 78
    /// The reader of standard output has left: what a shell says of a program that SIGPIPE ended.
    case readerLeft = 141
}

/// Ends a command with a message for the terminal.
package struct CommandFailure: Error, Equatable, CustomStringConvertible {
    package let code: ExitCode
    package let message: String
    package var description: String { message }

    private init(_ code: ExitCode, _ message: String) { (self.code, self.message) = (code, message) }

    package static func usage(_ message: String) -> Self { Self(.usage, message) }
    package static func refused(_ message: String) -> Self { Self(.refused, message) }
    package static func unreachable(_ message: String) -> Self { Self(.unreachable, message) }
}
