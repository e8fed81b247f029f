/// How `longwire` ends; part of its contract with scripts.
package enum ExitCode: Int32, Sendable {
    case done = 0
    /// The gateway, or what it found, said no; its message is printed.
    case refused = 1
    /// The command line makes no sense (EX_USAGE).
    case usage = 64
    /// Nobody answers there (EX_UNAVAILABLE).
    case unreachable = 69
    /// Standard output cannot be written: what stands there is not all (EX_IOERR).
    case unwritable = 74
    /// The reader of standard output has left: what a shell says of a program that SIGPIPE ended.
    case readerLeft = 141
}

/// Ends a command with a message for the terminal.
package struct CommandFailure: Error, Equatable {
    let code: ExitCode
    let message: String

    package static func usage(_ message: String) -> CommandFailure { CommandFailure(code: .usage, message: message) }
    package static func refused(_ message: String) -> CommandFailure {
        CommandFailure(code: .refused, message: message)
    }
    static func unreachable(_ message: String) -> CommandFailure {
        CommandFailure(code: .unreachable, message: message)
    }
}
