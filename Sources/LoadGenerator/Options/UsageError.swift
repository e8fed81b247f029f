/// A command line, a file or a machine that a run cannot start with; says what to change.
struct UsageError: Error, Equatable, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

/// The gateway could not be reached or refused the generator; not a verdict on its speed.
struct UnavailableError: Error, Equatable, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

/// What `LoadGenerator.run(arguments:)` returns (sysexits.h, as the gateway itself does).
enum ExitCode {
    static let done: Int32 = 0
    /// The run was complete; a `--require` condition does not hold.
    static let requirementFailed: Int32 = 1
    static let usage: Int32 = 64
    static let unavailable: Int32 = 69
    static let internalError: Int32 = 70
    static let unwritable: Int32 = 74
    /// The reader of standard output has left: what a shell says of a program that SIGPIPE ended.
    static let readerLeft: Int32 = 141
}
