import Foundation
import Glibc
import SimulatedRedis

/// Debian's redis-server on loopback with one blocking connection; `end()` stops it.
final class RealServer {
    private var process: pid_t = 0
    private let folder: URL
    private var descriptor: CInt = -1
    private var buffer: [UInt8] = []
    private var offset = 0

    struct Broken: Error { var what: String }

    init() throws {
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-redis-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let path = folder.appendingPathComponent("s").path
        let words = [
            "redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir",
            folder.path,
            "--logfile", folder.appendingPathComponent("log").path,
        ]
        var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) }
        arguments.append(nil)
        defer { for argument in arguments { free(argument) } }
        guard posix_spawnp(&process, "redis-server", nil, nil, arguments, environ) == 0 else {
            throw Broken(what: "redis-server is missing; deploy/install-dependencies.sh test")
        }
        // The server creates its socket when it is ready. A server that has exited never creates it.
        while descriptor < 0 {
            guard waitpid(process, nil, WNOHANG) == 0 else {
                throw Broken(what: "redis-server ended: \(folder.path)/log")
            }
            connect(path)
            if descriptor < 0 { usleep(5_000) }
        }
    }

    private func connect(_ path: String) {
        let socket = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        if result == 0 { descriptor = socket } else { close(socket) }
    }

    func end() {
        if descriptor >= 0 { close(descriptor) }
        kill(process, SIGKILL)
        waitpid(process, nil, 0)
        try? FileManager.default.removeItem(at: folder)
    }

    func run(_ words: [Bytes]) throws -> Reply {
        var request = Bytes("*\(words.count)\r\n".utf8)
        for word in words { request += Bytes("$\(word.count)\r\n".utf8) + word + [13, 10] }
        var sent = 0
        while sent < request.count {
            let count = request[sent...].withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { throw Broken(what: "write") }
            sent += count
        }
        return try read()
    }

    private func byte() throws -> UInt8 {
        if offset == buffer.count {
            var piece = [UInt8](repeating: 0, count: 65_536)
            let count = piece.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { throw Broken(what: "read") }
            (buffer, offset) = (Array(piece[..<count]), 0)
        }
        defer { offset += 1 }
        return buffer[offset]
    }

    private func read() throws -> Reply {
        var line: Bytes = []
        while true {
            let next = try byte()
            if next == 10 { break }
            line.append(next)
        }
        line.removeLast()
        let rest = String(decoding: line.dropFirst(), as: UTF8.self)
        switch line.first {
        case UInt8(ascii: "+"): return .simple(rest)
        case UInt8(ascii: "-"): return .error(rest)
        case UInt8(ascii: ":"): return .integer(Int64(rest) ?? 0)
        case UInt8(ascii: "$"):
            guard let count = Int(rest), count >= 0 else { return .null }
            var body: Bytes = []
            for _ in 0..<count + 2 { body.append(try byte()) }
            return .bulk(Array(body.dropLast(2)))
        case UInt8(ascii: "*"):
            guard let count = Int(rest), count >= 0 else { return .null }
            return .array(try (0..<count).map { _ in try read() })
        default: throw Broken(what: "a reply that is none")
        }
    }
}
