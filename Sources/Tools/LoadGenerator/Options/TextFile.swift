internal import Glibc
internal import Platform
internal import TextForms

enum TextFile {
    /// Reads a whole file, or until `isEnough` returns true for the last piece.
    ///
    /// - Returns: `nil` when the file does not exist.
    /// - Throws: a usage failure when it cannot be read or is larger than `limit`.
    static func read(
        _ path: String, limit: Int, until isEnough: (ArraySlice<UInt8>) -> Bool = { _ in false }
    ) throws(CommandFailure) -> [UInt8]? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw CommandFailure.usage("\(path) cannot be opened: \(errorText(errno))")
        }
        defer { _ = close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw CommandFailure.usage("\(path) cannot be read: \(errorText(errno))") }
            if count == 0 { return bytes }
            bytes.append(contentsOf: chunk[..<count])
            if isEnough(chunk[..<count]) { return bytes }
            guard bytes.count <= limit else { throw CommandFailure.usage("\(path) is larger than \(limit) bytes") }
        }
    }

    /// Replaces the file atomically, readable by its owner only.
    static func replace(_ path: String, with bytes: [UInt8]) throws(CommandFailure) {
        do throws(SystemError) { try FileSystem.replace(path, with: bytes) } catch {
            throw CommandFailure.usage("\(error.subject) cannot be written: \(errorText(error.code))")
        }
    }
}

func errorText(_ number: CInt) -> String {
    var buffer = [CChar](repeating: 0, count: 128)
    // The XSI variant fills the buffer; the GNU variant may leave it zeroed, which the fallback below handles.
    _ = strerror_r(number, &buffer, buffer.count)
    let text = String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return text.isEmpty ? "error \(number)" : text
}
