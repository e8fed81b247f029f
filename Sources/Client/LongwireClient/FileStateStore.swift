#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// Keeps the state in one file, replaced as a whole.
///
/// A new file is written, synced and renamed over the old one, and then the folder is synced. So a crash leaves the old
/// state or the new one and nothing in between.
///
/// The file holds the device's secret and is readable by its owner only. One client has it at a time: a store refuses to
/// write over what another store has written since it looked last. No file is locked, because iOS ends an app that is
/// frozen with a lock. Since the file is replaced as a whole, a service extension may read it (`DisplayReceipts`).
public final class FileStateStore: StateStore {
    private let path: String
    private let draft: String
    /// What this store read or wrote last; `nil`: nothing yet.
    private let seen = Guarded<[UInt8]?>(nil)

    /// - Parameter path: the file; its folder exists. Names that begin with it and `.new` are used in passing.
    public init(path: String) {
        self.path = path
        draft = path + ".new" + String(UInt64.random(in: .min ... .max), radix: 36)
    }

    /// Renames a file that cannot be used (`stateDamaged`) to its name with `.damaged` behind it, over an earlier one.
    ///
    /// The next start registers a new device: what waited for the old one expires. Not for `stateUnreadable`, since that
    /// file may be readable later.
    ///
    /// - Throws: `stateUnwritable`.
    public func setAside() throws {
        guard rename(path, path + ".damaged") == 0 else { throw failure(.stateUnwritable, "rename \(path)") }
        seen.withValue { $0 = nil }
        try syncFolder()
    }

    public func load() throws -> ClientState? {
        let bytes = try read()
        let state = try bytes.map { try ClientState(serialized: $0) }
        seen.withValue { $0 = bytes ?? [] }
        return state
    }

    /// Removes the drafts of clients that were killed while they wrote; to be called by the one client that has the file.
    ///
    /// A draft that cannot be removed stays until the next start.
    func removeDrafts() {
        let split = path.lastIndex(of: "/")
        let folder = split.map { String(path[...$0]) } ?? "./"
        let name = (split.map { path[path.index(after: $0)...] } ?? path[...]) + ".new"
        guard let entries = opendir(folder) else { return }
        defer { _ = closedir(entries) }
        while let entry = readdir(entries) {
            let found = withUnsafePointer(to: &entry.pointee.d_name) { field in
                field.withMemoryRebound(to: CChar.self, capacity: MemoryLayout.size(ofValue: field.pointee)) {
                    String(cString: $0)
                }
            }
            // `init` adds a number in base 36.
            let rest = found.dropFirst(name.count)
            guard found.hasPrefix(name), 1...13 ~= rest.utf8.count, UInt64(rest, radix: 36) != nil else { continue }
            _ = unlink(folder + found)
        }
    }

    private func read() throws -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw failure(.stateUnreadable, "open \(path)")
        }
        defer { _ = close(descriptor) }
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let count = System.readOnce(descriptor, &part)
            if count < 0 {
                if errno == EINTR { continue }
                throw failure(.stateUnreadable, "read \(path)")
            }
            if count == 0 { break }
            bytes += part[..<count]
        }
        return bytes
    }

    public func save(_ state: ClientState) throws {
        let bytes = state.serialized
        // A file that is gone was removed: this state is as good as any.
        if let seen = seen.withValue({ $0 }), let current = try read(), current != seen {
            throw LongwireClientError(
                code: .stateUnwritable, message: "another client has written \(path); run one at a time")
        }
        let descriptor = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw failure(.stateUnwritable, "create \(draft)") }
        do {
            defer { _ = close(descriptor) }
            try write(bytes, to: descriptor)
            guard fsync(descriptor) == 0 else { throw failure(.stateUnwritable, "sync \(draft)") }
        } catch {
            _ = unlink(draft)
            throw error
        }
        guard rename(draft, path) == 0 else {
            let error = failure(.stateUnwritable, "rename \(draft)")
            _ = unlink(draft)
            throw error
        }
        seen.withValue { $0 = bytes }
        try syncFolder()
    }

    private func write(_ bytes: [UInt8], to descriptor: CInt) throws {
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeBytes { buffer in
                #if canImport(Darwin)
                Darwin.write(descriptor, buffer.baseAddress! + offset, buffer.count - offset)
                #elseif canImport(Glibc)
                Glibc.write(descriptor, buffer.baseAddress! + offset, buffer.count - offset)
                #else
                Musl.write(descriptor, buffer.baseAddress! + offset, buffer.count - offset)
                #endif
            }
            if count < 0 {
                if errno == EINTR { continue }
                throw failure(.stateUnwritable, "write \(path)")
            }
            offset += count
        }
    }

    /// Without this the rename itself may be lost with the power, and an old state would come back.
    private func syncFolder() throws {
        let folder = path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
        let descriptor = open(folder, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(.stateUnwritable, "open \(folder)") }
        defer { _ = close(descriptor) }
        guard fsync(descriptor) == 0 else { throw failure(.stateUnwritable, "sync \(folder)") }
    }

    private func failure(_ code: LongwireClientError.Code, _ doing: String) -> LongwireClientError {
        LongwireClientError(code: code, message: "cannot \(doing): \(String(cString: strerror(errno)))")
    }
}
