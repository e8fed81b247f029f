import Glibc
import Platform

/// An HTTP/1.1 server for one test that answers one connection at a time with `answer` and records all requests.
final class TinyHTTPServer: Sendable {
    struct Request: Sendable {
        var head: String
        var body: [UInt8]

        func header(_ name: String) -> String? {
            for line in head.split(separator: "\r\n").dropFirst() {
                let parts = line.split(separator: ":", maxSplits: 1)
                if parts[0].lowercased() == name.lowercased() {
                    return parts.count == 2 ? String(parts[1].drop { $0 == " " }) : ""
                }
            }
            return nil
        }
    }

    /// Returns the raw answer; an empty one closes the connection.
    typealias Answer = @Sendable (_ index: Int, Request) -> String

    private struct State: ~Copyable {
        var requests: [Request] = []
        var thread: Thread?
    }

    let port: UInt16
    private let descriptor: CInt
    private let state = Monitor(State())

    init(answer: @escaping Answer) throws {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = descriptor
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(descriptor, address, length) == 0 && listen(descriptor, 16) == 0
                    && getsockname(descriptor, address, &length) == 0
            }
        }
        precondition(isBound, "no port for the test's server")
        port = UInt16(bigEndian: address.sin_port)
        let state = state
        let thread = try Thread(named: "tiny-http") {
            while true {
                let connection = accept(descriptor, nil, nil)
                guard connection >= 0 else { return }
                if let request = Self.read(connection) {
                    let index = state.broadcast { state in
                        state.requests.append(request)
                        return state.requests.count - 1
                    }
                    let text = answer(index, request)
                    _ = text.utf8CString.withUnsafeBytes { bytes in
                        send(connection, bytes.baseAddress, bytes.count - 1, CInt(MSG_NOSIGNAL))
                    }
                }
                Glibc.shutdown(connection, CInt(SHUT_WR))
                Glibc.close(connection)
            }
        }
        var started: Thread? = consume thread
        state.withLock { $0.thread = started.take() }
    }

    var url: String { "http://127.0.0.1:\(port)/hook" }
    var requests: [Request] { state.withLock { $0.requests } }

    /// Waits for `count` requests; the bound only ends a test that fails anyway.
    func wait(forRequests count: Int) -> Bool {
        state.wait(
            atMostMilliseconds: 60_000, while: { $0.requests.count < count }, then: { $0.requests.count >= count })
    }

    func stop() {
        Glibc.shutdown(descriptor, CInt(SHUT_RDWR))  // Wakes the accept call.
        let thread = state.withLock { $0.thread.take() }
        thread?.join()
        Glibc.close(descriptor)
    }

    static func answer(_ status: String, _ body: String = "", headers: String = "") -> String {
        "HTTP/1.1 \(status)\r\nContent-Length: \(body.utf8.count)\r\nConnection: close\r\n\(headers)\r\n\(body)"
    }

    private static func read(_ connection: CInt) -> Request? {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(connection, &chunk, chunk.count, 0)
            guard count > 0 else { return nil }
            bytes.append(contentsOf: chunk[..<count])
            if bytes[0] == 0x16 { return Request(head: "a TLS handshake", body: []) }
            let text = String(decoding: bytes, as: UTF8.self)
            guard let end = text.range(of: "\r\n\r\n") else { continue }
            var request = Request(head: String(text[..<end]), body: [])
            let headCount = request.head.utf8.count + 4
            let length = Int(request.header("content-length") ?? "0") ?? 0
            if bytes.count >= headCount + length {
                request.body = Array(bytes[headCount..<headCount + length])
                return request
            }
        }
    }
}

extension String {
    /// Finds `other` without Foundation.
    fileprivate func range(of other: String) -> String.Index? {
        var index = startIndex
        while index < endIndex {
            if self[index...].utf8.starts(with: other.utf8) { return index }
            index = utf8.index(after: index)
        }
        return nil
    }
}
