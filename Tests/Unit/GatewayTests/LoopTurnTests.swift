import Cryptography
import Glibc
import Testing

@testable import EventLoops
@testable import Gateway

@Suite("A turn of a loop")
final class LoopTurnTests {
    enum Flood: CaseIterable {
        /// The other app, which has been the only one so far.
        case lone
        /// The other app, after both have sent requests.
        case contended
        /// A caller that names the waiting app, but has no token of it.
        case stranger
    }

    private let folder = TemporaryFolder()
    private let gateway: SteppedGateway
    private var tokens: [String: String] = [:]

    init() throws {
        let text = """
            {device: {listen: '127.0.0.1:0', allowPlaintextRegistration: true}, senders: {listen: 'off'}, http: {listen: '127.0.0.1:0'},
             admin: {listen: '127.0.0.1:0'}, store: {path: '\(folder.path)/data', durability: 'os'}, loops: 1,
             limits: {httpConnections: 80}, log: {level: 'error'},
             apps: [{appId: 'loud', appKey: 'k', appSecret: 'app-secret-1', masterSecret: 'master-secret-1'},
                    {appId: 'quiet', appKey: 'k', appSecret: 'app-secret-2', masterSecret: 'master-secret-2'}]}
            """
        gateway = try SteppedGateway(file: folder.write("longwired.json5", text), time: 1_700_000_000_000) { _ in }
        while !gateway.isReady {
            gateway.wait(atMostMilliseconds: 1)
            gateway.turn()
        }
        for (app, secret) in [("loud", "master-secret-1"), ("quiet", "master-secret-2")] {
            let stamp = "\(gateway.time)"
            let sign = SHA256.digest(Array("k\(stamp)\(secret)".utf8)).hex
            let caller = try Caller(gateway)
            caller.send("POST", "/v2/\(app)/auth", #"{"appkey":"k","timestamp":"\#(stamp)","sign":"\#(sign)"}"#)
            while caller.answers == 0 { turn(caller) }
            let start = try #require(caller.text.firstRange(of: #""token":""#)).upperBound
            tokens[app] = String(caller.text[start...].prefix { $0 != "\"" })
        }
        // Earlier calls must not count in the measured turn.
        gateway.turn()
    }

    deinit {
        gateway.close()
        SmallGateway.remove("\(folder.path)/data")
    }

    /// A connection and the number of its answers.
    private final class Caller {
        private let descriptor: CInt
        private(set) var text = ""
        private(set) var answers = 0

        init(_ gateway: SteppedGateway) throws { descriptor = try gateway.connect(.http, loop: 0) }

        deinit { Glibc.close(descriptor) }

        func send(_ method: String, _ path: String, _ body: String, token: String = "", count: Int = 1) {
            let request =
                "\(method) \(path) HTTP/1.1\r\nHost: x\r\ntoken: \(token)\r\n"
                + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
            let bytes = Array(String(repeating: request, count: count).utf8)
            #expect(Glibc.write(descriptor, bytes, bytes.count) == bytes.count)
        }

        func look() {
            var room = [UInt8](repeating: 0, count: 1 << 18)
            let count = Glibc.read(descriptor, &room, room.count)
            guard count > 0 else { return }
            text = String(decoding: room[..<count], as: UTF8.self)
            answers += text.ranges(of: "HTTP/1.1 ").count
        }
    }

    private func turn(_ callers: Caller...) { turn(callers) }

    private func turn(_ callers: [Caller]) {
        gateway.turn()
        for caller in callers { caller.look() }
    }

    /// Sends requests that are answered in the turn in which they are handled.
    private func send(_ count: Int = 1, of app: String, on caller: Caller, token: String? = nil) {
        caller.send("POST", "/v2/\(app)/push/single/cid", "{", token: token ?? tokens[app] ?? "", count: count)
    }

    /// Makes both apps send requests.
    private func contend(_ loud: Caller, _ quiet: Caller) {
        send(of: "loud", on: loud)
        send(of: "quiet", on: quiet)
        while loud.answers + quiet.answers < 2 { turn(loud, quiet) }
        gateway.turn()
    }

    @Test("a request waits for at most a slice a turn of another app's thousand requests", arguments: Flood.allCases)
    func slice(flood: Flood) throws {
        let crowd = try (0..<40).map { _ in try Caller(gateway) }
        let quiet = try Caller(gateway)
        if flood == .contended { contend(crowd[0], quiet) }
        let before = crowd[0].answers + quiet.answers
        for caller in crowd {
            switch flood {
            case .lone, .contended: send(25, of: "loud", on: caller)
            case .stranger: send(25, of: "quiet", on: caller, token: String(repeating: "0", count: 64))
            }
        }
        send(of: "quiet", on: quiet)
        var turns = 0
        let answered = quiet.answers
        while quiet.answers == answered {
            turn(crowd + [quiet])
            turns += 1
        }
        let slice =
            switch flood {
            case .contended: AppShares.publishesPerTurn
            case .lone: AppShares.loneRequestsPerTurn
            // The first requests of a calm turn are handled without a check of their sender.
            case .stranger: 2 * AppShares.loneRequestsPerTurn
            }
        let total = crowd.reduce(quiet.answers) { $0 + $1.answers } - before - 1
        // The poller reports a few dozen connections per turn.
        #expect(turns <= 3)
        #expect(total <= turns * slice, "\(total) answers in \(turns) turns")
        // No waiting request is lost.
        for _ in 0..<200 { turn(crowd) }
        #expect(crowd.reduce(0) { $0 + $1.answers } == 1_000 + (flood == .contended ? 1 : 0))
    }

    @Test("while waiting requests use most places, new connections wait in the kernel")
    func crowded() throws {
        let member = gateway.gateway.hosts[0]
        let socket = try ListeningSocket("127.0.0.1:0")
        let port = socket.address.port
        let listener = try Listener(on: member.loop, socket: socket) { _ in }
        member.listeners.add(listener, isPublicHTTP: true)
        let crowd = try (0..<78).map { _ in try Caller(gateway) }
        let quiet = try Caller(gateway)
        contend(crowd[0], quiet)
        for caller in crowd { send(10, of: "loud", on: caller) }
        for _ in 0..<4 { turn(crowd) }
        let client = try connect(to: port)
        defer { Glibc.close(client) }
        for _ in 0..<4 { turn(crowd) }
        #expect(listener.acceptedCount == 0)
        for _ in 0..<100 { turn(crowd) }
        #expect(listener.acceptedCount == 1)
        #expect(crowd.reduce(0) { $0 + $1.answers } == 781)
    }

    private func connect(to port: UInt16) throws -> CInt {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(result == 0)
        return descriptor
    }
}
