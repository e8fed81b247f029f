#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// A store that keeps the state in one file and replaces the file as a whole.
///
/// A save writes and syncs a new file, renames it over the old one, and syncs the folder. A crash leaves either the old state
/// or the new one.
///
/// The file holds the device's secret and is readable by its owner only. One client uses it at a time: a save fails if another
/// store has written the file since the last load or save. The file is not locked, because iOS ends an app that is suspended
/// while it holds a lock. Since the file is replaced as a whole, a service extension may read it (`DisplayReceipts`).
public final class FileStateStore: StateStore {
    private let path: String
    private let draft: String
    /// The bytes that this store last read or wrote, or `nil` before the first access.
    private let seen = Guarded<[UInt8]?>(nil)

    /// Creates a store.
    ///
    /// - Parameter path: the file. Its folder must exist. The store also creates files named `path` plus `.new` and a suffix.
    public init(path: String) {
        self.path = path
        draft = path + ".new" + String(UInt64.random(in: .min ... .max), radix: 36)
    }

    /// Renames a damaged file (`stateDamaged`) to its name plus `.damaged`, replacing an earlier one.
    ///
    /// The next start registers a new device, and messages queued for the old one expire. Do not use this after
    /// `stateUnreadable`: the file may be readable later.
    ///
    /// - Throws: `stateUnwritable`.
    public func setAside() throws {
        guard rename(path, path + ".damaged") == 0 else { throw failure(.stateUnwritable, "rename \(path)") }
        seen.withValue { $0 = nil }
        try syncFolder()
    }

    /// Reads the file.
    ///
    /// Returns `nil` if it does not exist.
    ///
    /// - Throws: `stateUnreadable` or `stateDamaged`.
    public func load() throws -> ClientState? {
        let bytes = try read()
        let state = try bytes.map { try ClientState(serialized: $0) }
        seen.withValue { $0 = bytes ?? [] }
        return state
    }

    /// Removes the drafts of clients that were killed while they wrote.
    ///
    /// Only the client that uses the file may call this. A draft that cannot be removed stays until the next start.
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
            // The name of a draft ends in a number in base 36; see `init`.
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

    /// Replaces the file.
    ///
    /// - Throws: `stateUnwritable` when the file cannot be written or another client has written it, and `stateUnreadable` when
    ///   the check for another client cannot read it.
    public func save(_ state: ClientState) throws {
        let bytes = state.serialized
        // If the file is gone, it was removed on purpose, and this state is written.
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

    /// Syncs the folder; without this, a power loss could undo the rename and restore an old state.
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
