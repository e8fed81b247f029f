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
/// The file holds the device's secret and is readable by its owner only. One process has a client on it at a time; since
/// the file is replaced as a whole, a service extension may read it (`DisplayReceipts`).
public final class FileStateStore: StateStore {
    private let path: String

    /// - Parameter path: the file; its folder exists. The name with `.new` behind it is used in passing.
    public init(path: String) { self.path = path }

    public func load() throws -> ClientState? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw failure(.stateUnreadable, "open \(path)")
        }
        defer { _ = close(descriptor) }
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let count = read(descriptor, &part, part.count)
            if count < 0 {
                if errno == EINTR { continue }
                throw failure(.stateUnreadable, "read \(path)")
            }
            if count == 0 { break }
            bytes += part[..<count]
        }
        return try ClientState(serialized: bytes)
    }

    public func save(_ state: ClientState) throws {
        let draft = path + ".new"
        let descriptor = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw failure(.stateUnwritable, "create \(draft)") }
        do {
            defer { _ = close(descriptor) }
            try write(state.serialized, to: descriptor)
            guard fsync(descriptor) == 0 else { throw failure(.stateUnwritable, "sync \(draft)") }
        } catch {
            _ = unlink(draft)
            throw error
        }
        guard rename(draft, path) == 0 else { throw failure(.stateUnwritable, "rename \(draft)") }
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
