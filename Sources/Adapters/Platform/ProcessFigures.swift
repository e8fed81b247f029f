internal import Glibc

/// What the kernel says of this process and of its disk, for people and their monitoring.
package struct ProcessFigures: Sendable, Equatable {
    package var residentByteCount: Int64 = 0
    package var virtualByteCount: Int64 = 0
    /// Open descriptors of the calling thread's table.
    package var descriptorCount = 0
    package var threadCount = 0

    package init() {}

    /// The figures now; takes some milliseconds where there are many descriptors, so no loop calls it.
    package static func now() -> ProcessFigures {
        var figures = ProcessFigures()
        // Fields of /proc/self/stat behind the name in parentheses, which may hold anything: state is the first (proc(5)).
        let fields = text("/proc/self/stat").split(separator: ")").last?.split(separator: " ") ?? []
        if fields.count > 21 {
            figures.threadCount = Int(fields[17]) ?? 0
            figures.virtualByteCount = Int64(fields[20]) ?? 0
            figures.residentByteCount = (Int64(fields[21]) ?? 0) * Int64(sysconf(Int32(_SC_PAGESIZE)))
        }
        figures.descriptorCount = descriptors()
        return figures
    }

    /// Free bytes for a user without privileges, and all bytes, of the file system that holds `path`.
    package static func room(at path: String) -> (free: Int64, all: Int64)? {
        var status = statvfs()
        guard statvfs(path, &status) == 0 else { return nil }
        let unit = Int64(status.f_frsize)
        return (Int64(clamping: status.f_bavail) * unit, Int64(clamping: status.f_blocks) * unit)
    }

    private static func descriptors() -> Int {
        guard let folder = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(folder) }
        // Less the two dots and the folder itself.
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
