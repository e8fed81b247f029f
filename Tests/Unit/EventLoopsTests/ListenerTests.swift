import EventLoops
import Glibc
import Platform
import Testing

@Suite("Listener")
struct ListenerTests {
    @Test("every notation of an address is parsed", arguments: ["127.0.0.1:0", "[::1]:0", "localhost:0", ":0", "*:0"])
    func notations(text: String) throws {
        let socket = try ListeningSocket(text)
        #expect(socket.address.port != 0)
    }

    @Test(
        "a bad address is refused with a hint",
        arguments: [
            ("127.0.0.1", "expected host:port"), ("127.0.0.1:port", "the port must be a number"),
            ("127.0.0.1:70000", "the port must be a number"), ("::1:7000", "stands in brackets"),
            ("no..host:1", "cannot be resolved"),
        ])
    func badAddresses(text: String, hint: String) {
        let error = #expect(throws: ListenFailure.self) { _ = try ListeningSocket(text) }
        #expect(error?.description.contains(hint) == true)
        #expect(error?.description.hasPrefix(text) == true)
    }

    @Test("a port in use is refused, even if its user shares it, and the error has advice")
    func busyPort() throws {
        let first = try ListeningSocket("127.0.0.1:0")
        let address = first.address.description
        let error = #expect(throws: ListenFailure.self) { _ = try ListeningSocket(address) }
        #expect(error?.description.contains("in use by another program") == true)
        #expect(error?.description.contains(address) == true)
        _ = consume first
    }

    @Test("several loops listen on the port that the first one found, and all connections arrive")
    func sharedPort() throws {
        try withLoops(2) { loops in
            let handles = try ListeningSocket.group("127.0.0.1:0", count: 2)
            #expect(handles[0].address == handles[1].address)
            let seen = Probe<Int>()
            for (loop, handle) in zip(loops, handles) {
                _ = try loop.startListener(handle) { [index = loop.index] connection in
                    #expect(connection.isLoopback)
                    #expect(connection.peer?.host == "127.0.0.1")
                    seen.note(index)
                }
            }
            var clients: [TestClient] = []
            for _ in 0..<200 { clients.append(try TestClient(port: handles[0].address.port)) }
            seen.wait { $0.count == 200 }
        }
    }

    @Test("a connection that is not attached is closed")
    func unwanted() throws {
        try withLoop { loop in
            let port = try loop.listen { _ in }
            #expect(try TestClient(port: port).receive().isEmpty)
        }
    }

    @Test("a paused listener leaves connections waiting and accepts them when it resumes")
    func pausing() throws {
        try withLoop { loop in
            let handle = ListeningSocket.Handle(try ListeningSocket("127.0.0.1:0"))
            let seen = Probe<Int>()
            let listener = try loop.startListener(handle) { _ in seen.note(1) }
            _ = loop.run { listener.value.pause() }
            let client = try TestClient(port: handle.address.port)
            // Two turns of the loop have passed.
            _ = loop.run {}
            _ = loop.run {}
            #expect(seen.values.isEmpty)
            _ = loop.run { listener.value.resume() }
            seen.wait { $0 == [1] }
            _ = loop.run { listener.value.close() }
            #expect(throws: SystemError.self) { _ = try TestClient(port: handle.address.port) }
            client.close()
        }
    }

    @Test("without free descriptors the listener pauses, counts, and accepts again when some are free")
    func exhaustion() async {
        await #expect(processExitsWith: .success) {
            try withLoop { loop in
                let handle = ListeningSocket.Handle(try ListeningSocket("127.0.0.1:0"))
                let seen = Probe<Int>()
                let listener = try loop.startListener(handle) { _ in seen.note(1) }
                let client = try TestClient(port: handle.address.port)
                seen.wait { $0.count == 1 }
                // The first connection was not attached, so its descriptor is free again.
                _ = loop.run {}
                // The limit is just below the next number, so only already open descriptors remain usable.
                let second = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let whole = limit.rlim_cur
                limit.rlim_cur = rlim_t(second)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                var address = sockaddr_in()
                address.sin_family = sa_family_t(AF_INET)
                address.sin_port = handle.address.port.bigEndian
                address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
                _ = withUnsafeBytes(of: &address) { bytes in
                    bytes.withMemoryRebound(to: sockaddr.self) {
                        connect(second, $0.baseAddress, socklen_t(bytes.count))
                    }
                }
                var rounds = 0
                while rounds < 2000, loop.run({ listener.value.exhaustedCount }) == 0 {
                    usleep(1000)
                    rounds += 1
                }
                guard rounds < 2000 else { exit(1) }
                limit.rlim_cur = whole
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                seen.wait { $0.count == 2 }
                guard seen.values.count == 2 else { exit(1) }
                client.close()
            }
        }
    }
}
