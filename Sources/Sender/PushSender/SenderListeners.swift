internal import Configuration
internal import Cryptography
internal import EventLoops
internal import Platform

/// The listeners of one service: plain, TLS, or both.
struct SenderListener {
    struct TLS {
        var address: ListenAddress
        var certificate: String
        var key: String
        /// The accepted client certificates, or `nil` if clients need none.
        var clients: ClientCertificates?

        /// - Throws: a failure that names the file.
        func open(_ name: String) throws(TLSFailure) -> TLSContext {
            try TLSContext(certificatePath: certificate, keyPath: key, clients: clients, name: name)
        }
    }

    var plain: ListenAddress?
    var tls: TLS?
}

/// The sender's HTTP servers, all on its loop, with shared limits for unauthenticated peers.
final class SenderListeners {
    /// The maximum of body bytes in memory: for all servers together, and for one peer address.
    static let bodyByteLimit = 32 << 20
    static let addressBodyByteLimit = 16 << 20
    /// The maximum size of an admin request's body, which is at most a broadcast.
    static let adminBodyByteLimit = 64 << 10
    private static let connectionLimit = 256
    private static let headerByteLimit = 16 << 10

    private let loop: EventLoop
    private let budget: PeerBudget = {
        var rules = PeerBudget.Rules(requests: bodyByteLimit, requestsOfNetwork: addressBodyByteLimit, others: 0)
        // A hook call is authenticated by its body, so unauthenticated peers may use the whole budget.
        rules.strangersRequests = rules.requests
        return PeerBudget(rules)
    }()
    private var secured: [(name: String, server: HTTPServer)] = []
    private(set) var addresses: [(name: String, address: String)] = []

    init(on loop: EventLoop, log: @escaping (_ event: String, _ text: String) -> Void) {
        self.loop = loop
        loop.handshakeGate = HandshakeGate(on: loop)
        var (second, count): (UInt64, Int) = (0, 0)
        loop.onHandshake { event in
            guard case .failed(.certificate, let text, let peer, let listener) = event else { return }
            // At most one line a second, so that a peer cannot fill the disk.
            let now = SystemClock.monotonicMilliseconds / 1_000
            count += 1
            guard now != second else { return }
            let more = count > 1 ? ", and \(count - 1) more before" : ""
            (second, count) = (now, 0)
            log("clientCertificateRefused", "\(listener): \(peer?.description ?? "a client"): \(text)\(more)")
        }
    }

    /// Opens a service's listeners; they share one connection limit.
    func open(
        _ name: String, _ listener: SenderListener, bodyByteLimit: Int,
        judge: @escaping (HTTPRequestHead) -> HTTPPrecheck, handler: @escaping (HTTPExchange) -> Void
    ) throws {
        let room = HTTPConnectionLimit(limit: Self.connectionLimit)
        func open(_ address: ListenAddress, _ tls: TLSContext?) throws -> HTTPServer {
            var settings = HTTPServer.Configuration()
            settings.headerByteLimit = Self.headerByteLimit
            settings.bodyByteLimit = bodyByteLimit
            settings.budget = budget
            settings.tls = tls
            settings.unixSeconds = { SystemClock.wallMilliseconds / 1_000 }
            let socket = try ListeningSocket("\(address)")
            addresses.append(
                (tls == nil ? name : name + " TLS", "\(tls == nil ? "http" : "https")://\(socket.address)"))
            return try HTTPServer(
                on: loop, socket: socket, configuration: settings, room: room, judge: judge, handler: handler)
        }
        if let address = listener.plain { _ = try open(address, nil) }
        if let tls = listener.tls { secured.append((name, try open(tls.address, try tls.open(name)))) }
    }

    /// Installs renewed certificates, by service, for new connections.
    func renew(_ contexts: [String: TLSContext]) {
        for (name, server) in secured { if let context = contexts[name] { server.renewTLS(context) } }
    }
}
