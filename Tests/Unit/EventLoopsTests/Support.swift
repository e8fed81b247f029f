import Cryptography
import EventLoops
import Glibc
import Platform
import Testing

/// The timeout of a test's waits, which only a failure reaches.
let timeoutMilliseconds: UInt64 = 20_000

/// Values that a test's loop produces and the test waits for.
final class Probe<Value: Sendable>: Sendable {
    private let monitor: Monitor<[Value]> = Monitor([])

    func note(_ value: Value) { monitor.broadcast { $0.append(value) } }

    var values: [Value] { monitor.withLock { $0 } }

    /// Waits until `condition` holds for all recorded values; returns them, or records a failure.
    @discardableResult
    func wait(
        sourceLocation: SourceLocation = #_sourceLocation, until condition: ([Value]) -> Bool
    ) -> [Value] {
        let (values, isReady) = monitor.wait(
            atMostMilliseconds: timeoutMilliseconds, while: { !condition($0) }, then: { ($0, condition($0)) })
        #expect(isReady, "waited in vain; saw \(values)", sourceLocation: sourceLocation)
        return values
    }
}

extension EventLoop {
    /// Runs `work` on the loop and waits for it.
    func run<Result: Sendable>(_ work: @escaping @Sendable () -> Result) -> Result? {
        let probe = Probe<Result>()
        submit { probe.note(work()) }
        return probe.wait { !$0.isEmpty }.first
    }
}

/// Runs started loops, stopped and joined at the end.
func withLoops(_ count: Int = 1, hasOwnTables: Bool = false, _ body: ([EventLoop]) throws -> Void) throws {
    var loops: [EventLoop] = []
    defer {
        for loop in loops { loop.stop() }
        for loop in loops { loop.join() }
    }
    for index in 0..<count { loops.append(try EventLoop(index: index, hasOwnTable: hasOwnTables)) }
    let passages = loops.compactMap(\.passage)
    for loop in loops { try loop.start(sendingThrough: passages) }
    try body(loops)
}

func withLoop(_ body: (EventLoop) throws -> Void) throws { try withLoops { try body($0[0]) } }

func withTemporaryDirectory(_ body: (String) throws -> Void) throws {
    let path = try FileSystem.makeTemporaryDirectory(prefix: "longwire-loops-")
    defer { try? FileSystem.removeTree(path) }
    try body(path)
}

/// A value for a loop's closure; the test ensures that only the loop uses it.
struct Unchecked<Value>: @unchecked Sendable {
    var value: Value
    init(_ value: Value) { self.value = value }
}

/// A blocking client whose calls fail after `timeoutMilliseconds`.
final class TestClient {
    let descriptor: CInt
    private var tls: TLSSession?
    private var isOpen = true

    /// `source` is the last byte of the client's address 127.0.0.`source`.
    init(port: UInt16, receiveBufferByteCount: CInt? = nil, source: UInt32? = nil) throws {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var bound = timeval(tv_sec: Int(timeoutMilliseconds / 1000), tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &bound, size)
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &bound, size)
        var one: CInt = 1
        setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
        if var receiveBufferByteCount {
            setsockopt(
                descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBufferByteCount, socklen_t(MemoryLayout<CInt>.size))
        }
        if let source {
            var own = sockaddr_in()
            own.sin_family = sa_family_t(AF_INET)
            own.sin_addr.s_addr = UInt32(0x7F00_0000 + source).bigEndian
            let isBound = withUnsafeBytes(of: &own) { bytes in
                bytes.withMemoryRebound(to: sockaddr.self) { bind(descriptor, $0.baseAddress, socklen_t(bytes.count)) }
            }
            guard isBound == 0 else { throw SystemError.last("bind") }
        }
        let result = withUnsafeBytes(of: &address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { connect(descriptor, $0.baseAddress, socklen_t(bytes.count)) }
        }
        guard result == 0 else { throw SystemError.last("connect") }
    }

    deinit { close() }

    func close() {
        guard isOpen else { return }
        isOpen = false
        tls = nil
        Glibc.close(descriptor)
    }

    func reset() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        close()
    }

    func shutDownWriting() { shutdown(descriptor, CInt(SHUT_WR)) }

    func startTLS(_ context: TLSContext, name: String = "localhost") throws -> TLSSession.Progress {
        let session = try TLSSession(connecting: context, descriptor: descriptor, serverName: name)
        tls = session
        return session.handshake()
    }

    func send(_ bytes: [UInt8]) throws {
        var done = 0
        try bytes.withUnsafeBytes { all in
            while done < all.count {
                let rest = UnsafeRawBufferPointer(rebasing: all[done...])
                if let tls {
                    guard case .bytes(let count) = tls.write(rest) else { throw SystemError.last("SSL_write") }
                    done += count
                } else {
                    let count = Glibc.send(descriptor, rest.baseAddress, rest.count, CInt(MSG_NOSIGNAL))
                    guard count > 0 else { throw SystemError.last("send") }
                    done += count
                }
            }
        }
    }

    func send(_ text: String) throws { try send(Array(text.utf8)) }

    /// Returns at most `limit` bytes; none at the end of the stream.
    func receive(atMost limit: Int = 65536) throws -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: limit)
        let count: Int = try buffer.withUnsafeMutableBytes { bytes in
            guard let tls else { return recv(descriptor, bytes.baseAddress, bytes.count, 0) }
            switch tls.read(into: bytes) {
            case .bytes(let count): return count
            case .ended: return 0
            case let other: throw SystemError(operation: "SSL_read \(other)", code: EIO)
            }
        }
        guard count >= 0 else { throw SystemError.last("recv") }
        return Array(buffer[..<count])
    }

    func receive(exactly count: Int) throws -> [UInt8] {
        var result: [UInt8] = []
        while result.count < count {
            let part = try receive(atMost: count - result.count)
            if part.isEmpty { break }
            result += part
        }
        return result
    }

    /// Returns all bytes up to the end of the stream; a reset counts as the end.
    func receiveAll() -> [UInt8] {
        var result: [UInt8] = []
        while let part = try? receive(), !part.isEmpty { result += part }
        return result
    }

    /// Returns one HTTP answer, with a Content-Length or without a body.
    func receiveAnswer(hasBody: Bool = true) throws -> (head: String, body: String) {
        var head: [UInt8] = []
        while !head.suffix(4).elementsEqual([13, 10, 13, 10]) {
            let byte = try receive(atMost: 1)
            if byte.isEmpty { break }
            head += byte
        }
        let text = String(decoding: head, as: UTF8.self)
        var length = 0
        for line in text.split(separator: "\r\n") where line.lowercased().hasPrefix("content-length:") {
            length = Int(line.drop { $0 != ":" }.dropFirst().drop { $0 == " " }) ?? 0
        }
        return (text, String(decoding: hasBody ? try receive(exactly: length) : [], as: UTF8.self))
    }
}

/// A delegate whose reactions are closures on the loop, and whose end is recorded.
final class TestDelegate: StreamDelegate {
    let ended = Probe<CloseReason>()
    var onReceived: (UnsafeRawBufferPointer, ByteStream) -> Int = { bytes, _ in bytes.count }
    var onFilled: ((ByteStream) -> Void)?
    var onDrained: ((ByteStream) -> Void)?
    var onTimeout: ((ByteStream) -> Void)?
    /// Returns whether the stream stays after the peer's half-close.
    var onPeerEnd: ((ByteStream) -> Bool)?

    override func peerEnded(_ stream: ByteStream) -> Bool { onPeerEnd?(stream) ?? super.peerEnded(stream) }
    override func received(_ bytes: UnsafeRawBufferPointer, on stream: ByteStream) -> Int { onReceived(bytes, stream) }
    override func outboxFilled(_ stream: ByteStream) {
        if let onFilled { onFilled(stream) } else { super.outboxFilled(stream) }
    }
    override func outboxDrained(_ stream: ByteStream) { onDrained?(stream) }
    override func timedOut(_ stream: ByteStream) {
        if let onTimeout { onTimeout(stream) } else { super.timedOut(stream) }
    }
    override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
}

final class EndNoting: StreamDelegate {
    private let ended: Probe<CloseReason>
    init(_ ended: Probe<CloseReason>) { self.ended = ended }
    override func closed(_ stream: ByteStream, _ reason: CloseReason) { ended.note(reason) }
}

extension EventLoop {
    /// Starts a listener on this loop; the listener may only be used on the loop.
    func startListener(
        _ handle: ListeningSocket.Handle, _ connected: @escaping @Sendable (DetachedConnection) -> Void
    ) throws -> Unchecked<Listener> {
        let started = Probe<Unchecked<Listener>>()
        submit { [unowned self] in
            do {
                let listener = try Listener(on: self, socket: handle.take(), connected: connected)
                started.note(Unchecked(listener))
            } catch {
                Issue.record(error)
            }
        }
        return try #require(started.wait { !$0.isEmpty }.first)
    }

    /// Listens on a free port and passes each connection to `connected` on the loop.
    func listen(_ connected: @escaping @Sendable (DetachedConnection) -> Void) throws -> UInt16 {
        // Opened on the loop, because the loop may have a separate descriptor table.
        let opened = Probe<UInt16>()
        submit { [unowned self] in
            do {
                let socket = try ListeningSocket("127.0.0.1:0")
                opened.note(socket.address.port)
                _ = try Listener(on: self, socket: socket, connected: connected)
            } catch {
                Issue.record(error)
            }
        }
        return try #require(opened.wait { !$0.isEmpty }.first)
    }

    /// Listens and attaches a stream with a delegate from `make` to each connection.
    func serve(
        tls: TLSContext? = nil, outboxByteLimit: Int = Limits.outboxByteCount,
        _ make: @escaping @Sendable () -> TestDelegate
    ) throws -> UInt16 {
        try listen { [unowned self] connection in
            _ = ByteStream(
                attaching: connection, on: self, delegate: make(), outboxByteLimit: outboxByteLimit, tls: tls)
        }
    }
}
