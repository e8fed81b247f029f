#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// A file with the ids of messages that a service extension has shown, shared with the app through an app group's container.
///
/// The extension cannot hold a connection. It appends each message here, and the app's client reports them in its next session.
/// A report may be repeated after a crash; the gateway counts each once.
public struct NotificationReports: Sendable {
    private let path: String

    /// Creates the shared list.
    ///
    /// - Parameter path: the file. Its folder must exist. A file named `path` plus `.taken` is used as well.
    public init(path: String) { self.path = path }

    /// Records that the notification of this message is shown; callable from any process.
    ///
    /// - Throws: `stateUnwritable` when the file cannot be written.
    public func addShown(_ message: MessageID) throws(LongwireClientError) {
        // A line feed at both ends, so that a line truncated by a full disk does not damage this one.
        let line = Array("\n\(message)\n".utf8)
        let descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw LongwireClientError(code: .stateUnwritable, message: "cannot open \(path): \(System.describe(errno))")
        }
        defer { _ = close(descriptor) }
        // One append per line, so that lines of two processes do not mix.
        guard write(descriptor, line, line.count) == line.count else {
            throw LongwireClientError(code: .stateUnwritable, message: "cannot write \(path)")
        }
    }

    /// Returns the ids recorded since the last call, and again those of the last call.
    ///
    /// A client may have failed to store the ids of the last call.
    func take() -> [MessageID] {
        let taken = path + ".taken"
        let earlier = Self.read(taken)
        _ = rename(path, taken) == 0 || unlink(taken) == 0
        return earlier + Self.read(taken).filter { !earlier.contains($0) }
    }

    private static func read(_ path: String) -> [MessageID] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { _ = close(descriptor) }
        // Only the newest ids are kept, in case the app was not opened for a long time.
        var (bytes, part) = ([UInt8](), [UInt8](repeating: 0, count: 16 << 10))
        while true {
            let count = System.readOnce(descriptor, &part)
            guard count > 0 else { break }
            bytes = (bytes + part[..<count]).suffix(Limits.reportCount * 34)
        }
        return bytes.split(separator: UInt8(ascii: "\n")).compactMap { MessageID(hex: $0) }
    }
}
