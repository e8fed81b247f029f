internal import Glibc

/// An exclusive lock on a folder: a locked file with its owner's process id; the kernel releases it when the process ends.
package struct LockFile: ~Copyable, Sendable {
    package enum Failure: Error, Equatable, CustomStringConvertible {
        /// Another process holds the lock; its process id is `nil` if the file does not contain it.
        case heldByAnotherProcess(path: String, process: Int32?)
        case system(SystemError)

        package var description: String {
            switch self {
            case .heldByAnotherProcess(let path, let process?): "\(path) is in use by process \(process)"
            case .heldByAnotherProcess(let path, nil): "\(path) is in use by another process"
            case .system(let error): error.description
            }
        }
    }

    private let file: File

    /// Unlocks explicitly: a child process that is being started briefly has copies of the descriptors, so closing this one would
    /// not release the lock.
    deinit { file.unlock() }

    /// Takes the lock of `path`, creates the file if needed and writes this process's id to it.
    package init(path: String) throws(Failure) {
        do throws(SystemError) {
            let file = try File(path: path, mode: .createOrReadWrite)
            self = try LockFile(locking: file)
        } catch {
            if error.operation == Self.heldOperation {
                throw .heldByAnotherProcess(path: path, process: Self.owner(of: path))
            }
            throw .system(error)
        }
    }

    private static let heldOperation = "flock (held)"

    private init(locking file: consuming File) throws(SystemError) {
        guard try file.tryLock() else { throw .last(Self.heldOperation, file.path) }
        try file.truncate(toByteCount: 0)
        try file.write(Array("\(getpid())\n".utf8).span.bytes, at: 0)
        self.file = file
    }

    private static func owner(of path: String) -> Int32? {
        guard let content = try? FileSystem.read(path) else { return nil }
        return Int32(String(decoding: content.prefix { $0 != 10 }, as: UTF8.self))
    }
}
