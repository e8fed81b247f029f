internal import APNs
internal import Configuration
internal import Cryptography
internal import EventLoops
internal import HTTPClient
internal import Platform
internal import Synchronization
internal import Webhooks

final class SenderProgram {
    private let configuration: SenderConfiguration
    private let loop: EventLoop
    private let link: GatewayLink
    private let resolver: Resolver
    private let sender: LoopBound<Sender>
    private let tokens: Lock<[Secret]>
    private let adminTokens: Lock<[Secret]>
    private let channels: LoopBound<ChannelCalls>
    private let log: SenderLog
    private let keys = KeyRing()
    private let listeners: LoopBound<SenderListeners>
    private let certificates: Lock<CertificateEnds>
    private let channelCalls = Lock(0)
    let addresses: [(name: String, address: String)]
    /// The watchdog of the loop, for the service manager.
    let pulse: WatchdogTick

    /// Opens credentials and listeners without starting any thread.
    init(_ configuration: SenderConfiguration, log: SenderLog) throws {
        self.configuration = configuration
        self.log = log
        let loop = try EventLoop(index: 0, name: "apns")
        self.loop = loop
        pulse = WatchdogTick([loop])
        let tokens = Lock(configuration.tokens)
        self.tokens = tokens
        // Requests carry the newest token. The gateway also accepts the old one during the overlap.
        let link = try GatewayLink(
            configuration.link, token: { tokens.withLock { $0.first?.exposed ?? "" } }, log: log.write)
        self.link = link
        let resolver = try Resolver()
        self.resolver = resolver
        let (apps, others) = try configuration.openCredentials(keeping: keys)
        let opened = try configuration.openListeners()
        let shown = configuration.certificates((apps, others), opened)
        let certificates = Lock(configuration.ends(of: shown))
        self.certificates = certificates
        Self.warn(configuration, shown, certificates, log)
        let sender = Sender(
            on: loop, credentials: apps, otherCredentials: others, endpoints: configuration.endpoints,
            limits: configuration.limits, log: log,
            resolver: { endpoint, done in resolver.ask(endpoint, on: loop, done) },
            unreported: { link.unreported() }, setAside: { link.setAside($0) }, results: { link.take($0) })
        self.sender = LoopBound(sender, on: loop)
        let channels = ChannelCalls(of: sender, endpoints: configuration.channelEndpoints)
        channels.onCount = { [channelCalls] count in channelCalls.withLock { $0 = count } }
        self.channels = LoopBound(channels, on: loop)
        let adminTokens = Lock(configuration.adminTokens)
        self.adminTokens = adminTokens
        let listeners = SenderListeners(on: loop, log: log.write)
        if let listener = configuration.admin {
            let leases = configuration.leases
            try listeners.open(
                "admin", listener, bodyByteLimit: SenderListeners.adminBodyByteLimit,
                judge: { ChannelEndpoint.judge($0, tokens: adminTokens.withLock { $0 }) },
                handler: { exchange in
                    if ChannelEndpoint.handle(exchange, channels, tokens: adminTokens.withLock { $0 }) { return }
                    let ends = certificates.withLock { $0 }
                    Self.answer(exchange, sender, channels, link, ends, leases: leases, now: loop.now)
                })
        }
        if let hook = configuration.hook {
            let intake = HookIntake(sender, link, secrets: hook.secrets.compactMap { HookSecret($0.exposed) })
            try listeners.open(
                "hook", hook.listener, bodyByteLimit: HookIntake.bodyByteLimit, judge: { HookIntake.judge($0) },
                handler: { intake.handle($0) })
        }
        addresses = listeners.addresses
        self.listeners = LoopBound(listeners, on: loop)
    }

    private static func answer(
        _ exchange: HTTPExchange, _ sender: Sender, _ channels: ChannelCalls, _ link: GatewayLink,
        _ certificates: CertificateEnds, leases: Bool, now: UInt64
    ) {
        func respond(_ status: Int, _ text: String, headers: [(name: String, value: String)] = []) {
            exchange.respond(
                status: status, contentType: "text/plain;charset=utf-8", headers: headers,
                body: Array((text + "\n").utf8))
        }
        let path = exchange.rawTarget.prefix { $0 != "?" }
        guard ["/metrics", "/healthz", "/readyz"].contains(path) else {
            return respond(404, "/metrics, /healthz, /readyz, /v1/channels and /v1/broadcasts are here")
        }
        guard exchange.method == .get || exchange.method == .head else {
            return respond(405, "this page is read with GET", headers: [("Allow", "GET, HEAD")])
        }
        switch path {
        case "/metrics":
            exchange.respond(
                status: 200, contentType: "text/plain;version=0.0.4;charset=utf-8",
                body: SenderPages.metrics(sender, channels, link.figures, certificates, now: now))
        case "/healthz": respond(200, "ok")
        default:
            let (isReady, text) = SenderPages.readiness(sender, link.figures, leases: leases, now: now)
            respond(isReady ? 200 : 503, text)
        }
    }

    func start() throws {
        try loop.start()
        let (loop, sender, link, log) = (loop, sender, link, log)
        guard configuration.leases else { return try link.start(leases: false) { _, _, taken in taken(nil) } }
        let lease = Int64(configuration.link.askedSeconds) * 1_000
        try link.start(leases: true) { answer, askedAt, taken in
            loop.submit {
                do throws(HandoffJobReader.Failure) {
                    // The answer's time in transit is unknown, so the lease counts from the request.
                    let waited = Int64(clamping: SystemClock.monotonicMilliseconds - askedAt)
                    taken(try sender.wrapped.take(answer) { _ in JobLease(left: lease - waited, length: lease) })
                } catch {
                    log.write("gatewayFailed", error.description)
                    taken(nil)
                }
            }
        }
    }

    /// Logs the warnings of a configuration that takes effect.
    ///
    /// `tend` logs expiring certificates, one line for each.
    private static func warn(
        _ configuration: SenderConfiguration, _ shown: [ShownCertificate], _ ends: borrowing Lock<CertificateEnds>,
        _ log: SenderLog
    ) {
        let now = wallSeconds
        let found = configuration.findings(of: shown, ownEnds: false)
        for warning in configuration.warnings + found.refused + found.unwise {
            log.write("configurationWarning", warning)
        }
        ends.withLock { $0.noteEnded(now: now) }
    }

    private static var wallSeconds: Int64 { Int64(SystemClock.wallMilliseconds) / 1_000 }

    /// Logs expiring certificates, each once a day; called about once a second.
    func tend() {
        let now = Self.wallSeconds
        for text in certificates.withLock({ $0.news(now: now) }) { log.write("certificateEnds", text) }
    }

    /// Reloads credentials and tokens; after an error the old configuration stays in use.
    func reload() {
        do {
            let new = try SenderConfiguration.load(configuration.file)
            let (apps, others) = try new.openCredentials(keeping: keys)
            let opened = try new.openListeners()
            let shown = new.certificates((apps, others), opened)
            certificates.withLock { $0.replace(with: new.ends(of: shown)) }
            tokens.withLock { $0 = new.tokens }
            adminTokens.withLock { $0 = new.adminTokens }
            let credentials = Handed((apps, others))
            Self.warn(new, shown, certificates, log)
            let (sender, listeners) = (sender, listeners)
            loop.submit {
                let (apps, others) = credentials.value
                sender.wrapped.reload(credentials: apps, otherCredentials: others)
                listeners.wrapped.renew(opened)
            }
            log.write("reloaded", "credentials, tokens and certificates are in force; other keys count after a restart")
        } catch {
            log.write("reloadRefused", "\(error)")
        }
    }

    /// Finishes requests in flight, returns the other jobs, and reports both.
    func stop() {
        let (loop, sender) = (loop, sender)
        loop.submit { sender.wrapped.beginStop() }
        link.stopLeasing()
        link.joinLeaser()
        if !wait(milliseconds: configuration.stopMilliseconds) {
            let channels = channels
            loop.submit {
                sender.wrapped.abandon()
                channels.wrapped.close()
            }
            _ = wait(milliseconds: 2_000)
        }
        link.stopReporting()
        if !wait(milliseconds: 2_000) { link.abandon() }
        link.joinReporter()
        loop.stop()
        loop.join()
        resolver.stop()
    }

    /// Waits until the gateway has every outcome; returns false on timeout.
    private func wait(milliseconds: UInt64) -> Bool {
        let end = SystemClock.monotonicMilliseconds + milliseconds
        while link.figures.held > 0 || channelCalls.withLock({ $0 }) > 0 {
            guard SystemClock.monotonicMilliseconds < end else { return false }
            Pause.milliseconds(10)
        }
        return true
    }

    /// A carrier of credentials to the loop, which owns them afterwards.
    private struct Handed: @unchecked Sendable {
        let value: (ofApps: [String: [Credential]], others: [Credential])
        init(_ value: (ofApps: [String: [Credential]], others: [Credential])) { self.value = value }
    }
}
