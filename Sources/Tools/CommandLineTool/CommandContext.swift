internal import Foundation
internal import Glibc
internal import TextForms

/// The environment of a command, which tests replace.
struct CommandContext: Sendable {
    var environment: [String: String]
    var readInput: @Sendable () -> [UInt8]
    /// Writes one line to standard output; callable from any thread.
    var write: @Sendable (String) -> Void
    var complain: @Sendable (String) -> Void
    var isTerminal: Bool

    init(
        environment: [String: String], readInput: @escaping @Sendable () -> [UInt8],
        write: @escaping @Sendable (String) -> Void, complain: @escaping @Sendable (String) -> Void,
        isTerminal: Bool = false
    ) {
        (self.environment, self.readInput, self.isTerminal) = (environment, readInput, isTerminal)
        (self.write, self.complain) = (write, complain)
    }

    static var process: CommandContext {
        CommandContext(
            environment: ProcessInfo.processInfo.environment,
            readInput: { Array(FileHandle.standardInput.readDataToEndOfFile()) },
            // One write per line, so that pipe readers see each line at once and lines never mix.
            write: { line in
                guard let code = put(line, on: STDOUT_FILENO) else { return }
                endUnwritten(code)
            },
            complain: { _ = put($0, on: STDERR_FILENO) }, isTerminal: isatty(STDOUT_FILENO) == 1)
    }

    /// Ends the process because standard output cannot be written.
    ///
    /// A reader that closed the pipe, such as `head`, is no error. Other failures exit with an error, so that truncated output
    /// is not taken for complete.
    static func endUnwritten(_ code: CInt) -> Never {
        if code == EPIPE { _exit(ExitCode.readerLeft.rawValue) }
        _ = put("longwire: standard output cannot be written: \(String(cString: strerror(code)))", on: STDERR_FILENO)
        _exit(ExitCode.failedOutput.rawValue)
    }

    /// Writes lines with control characters escaped; returns `errno` on failure.
    private static func put(_ line: String, on descriptor: CInt) -> CInt? {
        let bytes = Array((TerminalText.lines(line) + "\n").utf8)
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress! + offset, $0.count - offset) }
            if count > 0 {
                offset += count
            } else if count < 0, errno == EAGAIN {
                var look = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&look, 1, -1)
            } else if count < 0, errno != EINTR {
                return errno
            }
        }
        return nil
    }
}
