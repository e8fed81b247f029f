internal import Glibc

/// Operations on names in the file system: folders, renames, removal, and syncs that make changed names durable.
package enum FileSystem {
    /// Creates `path` and its missing parent folders, and syncs their names.
    ///
    /// The name of an existing folder is synced, too: the process that created it may have crashed before its own sync.
    package static func createDirectory(_ path: String, permissions: UInt32 = 0o700) throws(SystemError) {
        let parent = parent(of: path) ?? "."
        if call("mkdir", path, { mkdir(path, mode_t(permissions)) }) != 0 {
            let failure = SystemError.last("mkdir", path)
            if failure.isNotFound, parent != path {
                try createDirectory(parent, permissions: permissions)
                guard call("mkdir", path, { mkdir(path, mode_t(permissions)) }) == 0 || errno == EEXIST else {
                    throw .last("mkdir", path)
                }
            } else {
                guard failure.isAlreadyThere, isDirectory(path) else { throw failure }
                do throws(SystemError) { try synchronizeDirectory(parent) } catch {
                    // The process may have no right to read its folder's parent, which an administrator created.
                    guard error.code == EACCES || error.code == EPERM else { throw error }
                }
                return
            }
        }
        try synchronizeDirectory(parent)
    }

    /// Creates a folder that must not exist, and syncs its name.
    package static func createNewDirectory(_ path: String, permissions: UInt32 = 0o700) throws(SystemError) {
        guard call("mkdir", path, { mkdir(path, mode_t(permissions)) }) == 0 else { throw .last("mkdir", path) }
        try synchronizeDirectory(parent(of: path) ?? ".")
    }

    package static func link(_ path: String, as name: String) throws(SystemError) {
        guard call("link", path, { Glibc.link(path, name) }) == 0 else { throw .last("link", path) }
    }

    package static func isDirectory(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    package static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    /// Returns whether the path exists, and throws if that cannot be found out.
    package static func isPresent(_ path: String) throws(SystemError) -> Bool {
        guard access(path, F_OK) != 0 else { return true }
        guard errno == ENOENT else { throw .last("access", path) }
        return false
    }

    /// Returns the names in a folder without `.` and `..`, in ascending order.
    package static func list(_ path: String) throws(SystemError) -> [String] {
        guard call("opendir", path, { 0 }) == 0, let directory = opendir(path) else { throw .last("opendir", path) }
        defer { closedir(directory) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = readdir(directory) else {
                if errno != 0 { throw .last("readdir", path) }
                break
            }
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }

    /// Syncs the folder `path`, so that created, renamed and removed names survive a power failure.
    package static func synchronizeDirectory(_ path: String) throws(SystemError) {
        let descriptor = call("open", path) { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard descriptor >= 0 else { throw .last("open", path) }
        defer { close(descriptor) }
        guard call("fsync", path, { fsync(descriptor) }) == 0 else { throw .last("fsync", path) }
    }

    /// Replaces `target` with `source` atomically.
    package static func rename(_ source: String, to target: String) throws(SystemError) {
        guard call("rename", source, { Glibc.rename(source, target) }) == 0 else { throw .last("rename", source) }
    }

    /// Removes a file if it exists.
    package static func removeFile(_ path: String) throws(SystemError) {
        guard call("unlink", path, { unlink(path) }) == 0 || errno == ENOENT else { throw .last("unlink", path) }
    }

    /// Removes a folder and its contents, if it exists; links are removed, not followed.
    package static func removeTree(_ path: String) throws(SystemError) {
        var status = stat()
        guard call("lstat", path, { lstat(path, &status) }) == 0 else {
            if errno == ENOENT { return }
            throw .last("lstat", path)
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return try removeFile(path) }
        for name in try list(path) { try removeTree(path + "/" + name) }
        guard call("rmdir", path, { rmdir(path) }) == 0 || errno == ENOENT else { throw .last("rmdir", path) }
    }

    package struct Usage: Sendable, Equatable {
        package var fileCount = 0
        package var byteCount = 0
        package var diskByteCount = 0
        package init() {}
    }

    /// Returns the usage of a file or folder, zero if the path does not exist; links are not followed.
    package static func usage(of path: String) throws(SystemError) -> Usage {
        var usage = Usage()
        var status = stat()
        guard call("lstat", path, { lstat(path, &status) }) == 0 else {
            if errno == ENOENT { return usage }
            throw .last("lstat", path)
        }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            (usage.fileCount, usage.byteCount) = (1, Int(status.st_size))
            usage.diskByteCount = Int(status.st_blocks) * 512
            return usage
        }
        for name in try list(path) {
            let part = try Self.usage(of: path + "/" + name)
            usage.fileCount += part.fileCount
            usage.byteCount += part.byteCount
            usage.diskByteCount += part.diskByteCount
        }
        return usage
    }

    /// Returns the contents of a small file, at most 16 MiB.
    package static func read(_ path: String) throws(SystemError) -> [UInt8] {
        let file = try File(path: path, mode: .read)
        let count = try file.byteCount()
        guard count <= Limits.wholeFileByteCount else {
            throw SystemError(operation: "read", subject: path, code: EFBIG)
        }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: max(count, 1), alignment: 1)
        defer { buffer.deallocate() }
        let done = try file.read(into: buffer, at: 0)
        return [UInt8](buffer[..<min(done, count)])
    }

    /// Replaces a small file atomically: after a crash `path` has either the old or the new contents.
    package static func replace(_ path: String, with content: [UInt8]) throws(SystemError) {
        let draft = path + ".new"
        try removeFile(draft)
        do throws(SystemError) {
            do {
                let file = try File(path: draft, mode: .createNew)
                try file.write(content.span.bytes, at: 0)
                try file.synchronize()
            }
            try rename(draft, to: path)
        } catch {
            try? removeFile(draft)
            throw error
        }
        try synchronizeDirectory(parent(of: path) ?? ".")
    }

    /// Creates an empty temporary folder whose name begins with `prefix`.
    package static func makeTemporaryDirectory(prefix: String) throws(SystemError) -> String {
        let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        var template = Array("\(base)/\(prefix)XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .last("mkdtemp", base) }
        return template.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
    }

    /// Returns the folder that contains `path`, or `nil` for a bare name.
    static func parent(of path: String) -> String? {
        var trimmed = path[...]
        while trimmed.count > 1, trimmed.last == "/" { trimmed.removeLast() }
        guard let slash = trimmed.lastIndex(of: "/") else { return nil }
        return slash == trimmed.startIndex ? "/" : String(trimmed[..<slash])
    }
}
