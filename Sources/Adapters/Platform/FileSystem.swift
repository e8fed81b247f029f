internal import Glibc

/// Names in the file system: folders, renames, removal, and the sync of a folder that makes a change of names last.
package enum FileSystem {
    /// Makes `path` and the folders above it, as far as they are not there, and brings their names to the disk.
    ///
    /// A folder that is there already is fine, but its name is synced too: the process that made it may have died
    /// before it could do so.
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
                    // A server's user may not be allowed to read the folder above its own: the administrator made this one.
                    guard error.code == EACCES || error.code == EPERM else { throw error }
                }
                return
            }
        }
        try synchronizeDirectory(parent)
    }

    /// Makes one folder, which must not be there; its name is brought to the disk.
    package static func createNewDirectory(_ path: String, permissions: UInt32 = 0o700) throws(SystemError) {
        guard call("mkdir", path, { mkdir(path, mode_t(permissions)) }) == 0 else { throw .last("mkdir", path) }
        try synchronizeDirectory(parent(of: path) ?? ".")
    }

    /// Gives a file a second name on the same file system.
    package static func link(_ path: String, as name: String) throws(SystemError) {
        guard call("link", path, { Glibc.link(path, name) }) == 0 else { throw .last("link", path) }
    }

    package static func isDirectory(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    package static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

    /// The names in a folder, without `.` and `..`, in ascending order.
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

    /// Makes created, renamed and removed names in the folder `path` outlast a power failure.
    package static func synchronizeDirectory(_ path: String) throws(SystemError) {
        let descriptor = call("open", path) { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard descriptor >= 0 else { throw .last("open", path) }
        defer { close(descriptor) }
        guard call("fsync", path, { fsync(descriptor) }) == 0 else { throw .last("fsync", path) }
    }

    /// Replaces `target` by `source` in one step.
    package static func rename(_ source: String, to target: String) throws(SystemError) {
        guard call("rename", source, { Glibc.rename(source, target) }) == 0 else { throw .last("rename", source) }
    }

    /// Removes a file; one that is not there is fine.
    package static func removeFile(_ path: String) throws(SystemError) {
        guard call("unlink", path, { unlink(path) }) == 0 || errno == ENOENT else { throw .last("unlink", path) }
    }

    /// Removes a folder with everything in it; one that is not there is fine.
    ///
    /// Links are removed, not followed.
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

    /// What files take: their lengths, and the blocks that the disk has given them.
    package struct Usage: Sendable, Equatable {
        package var fileCount = 0
        package var byteCount = 0
        package var diskByteCount = 0
        package init() {}
    }

    /// What a file, or a folder with everything in it, takes; nothing for one that is not there.
    ///
    /// Links are not followed, and a file that goes away meanwhile is passed over.
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

    /// The whole of a small file, at most 16 MiB.
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

    /// Writes a small file so that after a crash `path` holds either the old content or the new, never a part.
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

    /// A new empty folder for temporary use, `prefix` leading its name.
    package static func makeTemporaryDirectory(prefix: String) throws(SystemError) -> String {
        let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        var template = Array("\(base)/\(prefix)XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw .last("mkdtemp", base) }
        return template.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
    }

    /// The folder that holds `path`; `nil` for a bare name.
    static func parent(of path: String) -> String? {
        var trimmed = path[...]
        while trimmed.count > 1, trimmed.last == "/" { trimmed.removeLast() }
        guard let slash = trimmed.lastIndex(of: "/") else { return nil }
        return slash == trimmed.startIndex ? "/" : String(trimmed[..<slash])
    }
}
