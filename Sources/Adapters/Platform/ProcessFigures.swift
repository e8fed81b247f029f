internal import Glibc

/// The kernel's figures about this process and its disk, for monitoring.
package struct ProcessFigures: Sendable, Equatable {
    package var residentByteCount: Int64 = 0
    package var virtualByteCount: Int64 = 0
    /// The number of open descriptors in the calling thread's table.
    package var descriptorCount = 0
    package var threadCount = 0

    package init() {}

    /// Returns the current figures; takes some milliseconds with many descriptors, so it must not run on an event loop.
    package static func now() -> ProcessFigures {
        var figures = ProcessFigures()
        // The fields of /proc/self/stat after the name in parentheses, which may contain any character. The first of these fields
        // is the state (proc(5)).
        let fields = text("/proc/self/stat").split(separator: ")").last?.split(separator: " ") ?? []
        if fields.count > 21 {
            figures.threadCount = Int(fields[17]) ?? 0
            figures.virtualByteCount = Int64(fields[20]) ?? 0
            figures.residentByteCount = (Int64(fields[21]) ?? 0) * Int64(sysconf(Int32(_SC_PAGESIZE)))
        }
        figures.descriptorCount = descriptors()
        return figures
    }

    /// Returns the bytes available to an unprivileged user and all bytes of the file system that contains `path`.
    package static func room(at path: String) -> (free: Int64, all: Int64)? {
        var status = statvfs()
        guard statvfs(path, &status) == 0 else { return nil }
        let unit = Int64(status.f_frsize)
        return (Int64(clamping: status.f_bavail) * unit, Int64(clamping: status.f_blocks) * unit)
    }

    private static func descriptors() -> Int {
        guard let folder = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(folder) }
        // Does not count `.`, `..` and the folder's own descriptor.
        var count = -3
        while readdir(folder) != nil { count += 1 }
        return max(0, count)
    }

    private static func text(_ path: String) -> String {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        return String(unsafeUninitializedCapacity: 4_096) { max(0, read(descriptor, $0.baseAddress, $0.count)) }
    }
}
