internal import Glibc
internal import Platform

/// Reads and replaces small files at start and reload; must not be called on an event loop.
package enum FileText {
    package struct Failure: Error, Equatable, CustomStringConvertible {
        package var path: String
        package var reason: String
        package var isAbsent = false

        package init(path: String, reason: String, isAbsent: Bool = false) {
            (self.path, self.reason, self.isAbsent) = (path, reason, isAbsent)
        }

        package var description: String { "\(path): \(reason)" }
    }

    package struct Contents {
        package var bytes: [UInt8]
        /// Whether users other than the owner can read the file, apart from the exception in `isReadableByOthers(_:)`.
        package var isReadableByOthers: Bool
    }

    /// Reads a regular file of at most `limit` bytes.
    package static func read(_ path: String, limit: Int) throws(Failure) -> Contents {
        // Without O_NONBLOCK, opening a pipe would block until it has a writer.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw failure(path, errno) }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure(path, errno) }
        guard status.st_mode & S_IFMT == S_IFREG else { throw Failure(path: path, reason: "not a regular file") }
        guard status.st_size <= limit else {
            throw Failure(path: path, reason: "\(status.st_size) bytes are too many; at most \(limit)")
        }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw failure(path, errno) }
            if count == 0 { break }
            bytes.append(contentsOf: chunk[..<count])
            guard bytes.count <= limit else { throw Failure(path: path, reason: "more than \(limit) bytes") }
        }
        return Contents(bytes: bytes, isReadableByOthers: isReadableByOthers(status))
    }

    /// Returns whether users other than the owner can read the file.
    ///
    /// A file that root owns may be readable by the service's group, because administrators provide secrets in this way.
    private static func isReadableByOthers(_ status: stat) -> Bool {
        if status.st_mode & 0o007 != 0 { return true }
        return status.st_mode & 0o070 != 0 && !(status.st_uid == 0 && (status.st_gid == getegid() || geteuid() == 0))
    }

    /// Replaces `path` atomically, even over a power failure, with a file that only its owner can read.
    package static func replacePrivately(_ path: String, with bytes: [UInt8]) throws(Failure) {
        do throws(SystemError) { try FileSystem.replace(path, with: bytes) } catch {
            throw failure(error.subject, error.code)
        }
    }

    /// Creates a folder that only its owner can access, with its parent folders, durably; an existing folder is not changed.
    package static func makeFolder(_ path: String) throws(Failure) {
        do throws(SystemError) { try FileSystem.createDirectory(path) } catch {
            throw failure(path, error.code == EEXIST ? ENOTDIR : error.code)
        }
    }

    private static func failure(_ path: String, _ code: CInt) -> Failure {
        Failure(path: path, reason: String(cString: strerror(code)), isAbsent: code == ENOENT)
    }
}
