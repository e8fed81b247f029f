internal import Configuration
internal import Cryptography
internal import EventLoops
internal import Glibc
internal import Platform
internal import PushAPI

/// The start was interrupted by SIGTERM or SIGINT.
struct StartInterrupted: Error {}

/// Delays a start during a temporary problem, such as Redis servers that load their data.
///
/// During the delay it answers health checks on the HTTP and admin listeners: `/healthz` with 200, other requests with 503 and
/// the reason. It logs each new reason once and the current one every minute, and extends the service manager's start timeout.
/// The control thread uses it and must block SIGTERM and SIGINT, which end the wait.
final class StartWait {
    /// The time between two attempts.
    private static let pauseMilliseconds = 250
    private static let logMilliseconds: UInt64 = 60_000
    /// The extension of the service manager's timeout, longer than an attempt with several unresponsive servers.
    private static let extensionMilliseconds: UInt64 = 60_000

    private let configuration: GatewayConfiguration
    private let log: Log
    private let manager: ServiceManager
    private let reason = Lock("")
    private var loop: EventLoop?
    private var loggedAt: UInt64 = 0
    private var began: UInt64 = 0

    init(_ configuration: GatewayConfiguration, log: Log, manager: ServiceManager = ServiceManager()) {
        (self.configuration, self.log, self.manager) = (configuration, log, manager)
    }

    deinit { precondition(loop == nil, "StartWait dropped without end()") }

    /// Waits until the next attempt is due.
    ///
    /// - Parameter trouble: The problem that the start waits for, and its remedy.
    /// - Throws: `StartInterrupted`; `ListenFailure` or `TLSFailure` if a health check's listener cannot be opened.
    func pause(for trouble: String) throws {
        let now = SystemClock.monotonicMilliseconds
        if began == 0 { began = now }
        let isNew = reason.withLock { reason in
            defer { reason = trouble }
            return reason != trouble
        }
        if isNew || now - loggedAt >= Self.logMilliseconds {
            loggedAt = now
            log.write(.warning, .startWaits, [.reason: .text(trouble), .milliseconds: LogValue(Int64(now - began))])
        }
        manager.tellWaiting("Waiting: \(trouble)", atMostMilliseconds: Self.extensionMilliseconds)
        if loop == nil { try open() }
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT] { sigaddset(&signals, number) }
        var moment = timespec(tv_sec: 0, tv_nsec: Self.pauseMilliseconds * 1_000_000)
        guard sigtimedwait(&signals, nil, &moment) < 0 else { throw StartInterrupted() }
    }

    /// Closes the listeners, so that the gateway can listen on the same ports.
    func end() {
        loop?.stop()
        loop?.join()
        loop = nil
    }

    private func open() throws {
        let loop = try EventLoop(index: 0, name: "start")
        self.loop = loop
        do {
            let certificates = try ListenerCertificates(configuration)
            let contexts = Dictionary(uniqueKeysWithValues: certificates.entries.map { ($0.name, $0.tls) })
            for (name, listener) in [("http", configuration.http), ("admin", configuration.admin)] {
                try open(listener.plain, listener.balancers, nil, on: loop)
                if let tls = listener.tls { try open(tls.address, listener.balancers, contexts[name], on: loop) }
            }
            try loop.start()
        } catch {
            end()
            throw error
        }
    }

    private func open(
        _ address: ListenAddress?, _ balancers: [AddressRange], _ tls: TLSContext?, on loop: EventLoop
    ) throws {
        // For port 0, the kernel would choose another port than it later chooses for the gateway.
        guard let address, address.port != 0 else { return }
        var settings = HTTPServer.Configuration()
        settings.tls = tls
        settings.connectionLimit = 256
        settings.unixSeconds = { UInt64(ClockReader.wall() / 1_000) }
        let server = HTTPServer(
            on: loop, configuration: settings,
            judge: { [reason] head in
                // Requests with a body get a 503, which callers retry, instead of a final 413.
                guard head.bodyByteCount > 0 else { return .take(byteLimit: 0, isProven: false) }
                return .refuse(HTTPReply(Self.response(to: head.target, reason.withLock { $0 })))
            },
            handler: { [reason] exchange in
                let reply = HTTPReply(Self.response(to: exchange.rawTargetBytes, reason.withLock { $0 }))
                exchange.respond(
                    status: reply.status, contentType: reply.contentType, headers: reply.headers, body: reply.body)
            })
        try server.listen(try ListeningSocket(address.description), balancers: balancers)
    }

    private static func response(to target: UnsafeRawBufferPointer, _ reason: String) -> APIResponse {
        guard PublicHandler.isProbe(target) else {
            return target.starts(with: "/v2/".utf8) ? .starting : HealthPage.starting(reason, isHealth: false)
        }
        return HealthPage.starting(reason, isHealth: target.starts(with: "/healthz".utf8))
    }
}
