internal import Foundation

/// The surroundings of a command, so that tests can give it others.
public struct CommandContext: Sendable {
    public var environment: [String: String]
    public var readInput: @Sendable () -> [UInt8]
    /// Writes one line to standard output; whole lines only, from any thread.
    public var write: @Sendable (String) -> Void
    public var complain: @Sendable (String) -> Void

    public init(
        environment: [String: String], readInput: @escaping @Sendable () -> [UInt8],
        write: @escaping @Sendable (String) -> Void, complain: @escaping @Sendable (String) -> Void
    ) {
        (self.environment, self.readInput) = (environment, readInput)
        (self.write, self.complain) = (write, complain)
    }

    /// The process's own.
    public static var process: CommandContext {
        CommandContext(
            environment: ProcessInfo.processInfo.environment,
            readInput: { Array(FileHandle.standardInput.readDataToEndOfFile()) },
            // One write a line: readers of a pipe see a line as soon as it is there, and lines never mix.
            write: { FileHandle.standardOutput.write(Data(($0 + "\n").utf8)) },
            complain: { FileHandle.standardError.write(Data(($0 + "\n").utf8)) })
    }
}
