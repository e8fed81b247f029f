internal import APNs
internal import Configuration
internal import Cryptography
internal import EventLoops
internal import HTTPClient
internal import Platform
internal import Synchronization
internal import Vendors
internal import Webhooks

final class SenderProgram {
    private let configuration: SenderConfiguration
    private let loop: EventLoop
    private let links: [(channel: Channel, link: GatewayLink)]
    private let senders: LoopBound<Senders>
    private let stopTransports: [@Sendable () -> Void]
    private let relay: ReceiptRelay?
    private let tokens: Lock<[Secret]>
    private let adminTokens: Lock<[Secret]>
    private let log: SenderLog
    private let keys = KeyRing()
    private let listeners: LoopBound<SenderListeners>
    private let certificates: Lock<CertificateEnds>
    private let channelCalls = Lock(0)
    let addresses: [(name: String, address: String)]
    /// The watchdog of the loop, for the service manager.
    let pulse: WatchdogTick

    /// The objects that are confined to the loop.
    struct Senders {
        let apple: AppleSender
        let channels: ChannelCalls
        let vendors: [VendorSender]
        let transports: [VendorTransport]
        let intake: JobIntake
        let links: [(channel: Channel, link: GatewayLink)]
        var receipts: (intake: ReceiptIntake, relay: ReceiptRelay)?

        /// The senders of all channels with a credential.
        func forEach(_ body: (any ChannelSender) -> Void) {
            body(apple)
            for vendor in vendors { body(vendor) }
        }
    }

    /// Opens credentials and listeners; starts only the threads of the vendors' transports.
    init(_ configuration: SenderConfiguration, log: SenderLog) throws {
        self.configuration = configuration
        self.log = log
        let loop = try EventLoop(index: 0, name: "sender")
        self.loop = loop
        pulse = WatchdogTick([loop])
        let tokens = Lock(configuration.tokens)
        self.tokens = tokens
        var links: [Channel: GatewayLink] = [:]
        for channel in configuration.channels {
            var settings = configuration.link
            settings.channel = channel
            // Requests carry the newest token. The gateway also accepts the old one during the overlap.
            links[channel] = try GatewayLink(
                settings, token: { tokens.withLock { $0.first?.exposed ?? "" } }, log: log.write)
        }
        let ordered = configuration.channels.compactMap { channel in links[channel].map { (channel: channel, link: $0) }
        }
        self.links = ordered
        let (apps, others) = try configuration.openCredentials(keeping: keys)
        let opened = try configuration.openListeners()
        let shown = configuration.certificates((apps, others), opened)
        let certificates = Lock(configuration.ends(of: shown))
        self.certificates = certificates
        Self.warn(configuration, shown, certificates, log)
        // Without a credential of Apple no jobs arrive here.
        let appleLink = links[.apns]
        let sender = AppleSender(
            on: loop, credentials: apps, otherCredentials: others, endpoints: configuration.endpoints,
            limits: configuration.limits, log: log,
            resolver: { loop.resolve($0, $1) },
            unreported: { appleLink?.unreported() ?? [:] }, setAside: { appleLink?.setAside($0) },
            results: { appleLink?.take($0) })
        let channels = ChannelCalls(of: sender, endpoints: configuration.channelEndpoints)
        channels.onCount = { [channelCalls] count in channelCalls.withLock { $0 = count } }
        let (vendors, transports) = try Self.vendors(configuration, links, on: loop, log)
        stopTransports = transports.map(\.stop)
        let all: [any ChannelSender] = [sender] + vendors
        let intake = JobIntake(
            all.compactMap { sender in links[sender.register.channel].map { (sender: sender, link: $0) } })
        var senders = Senders(
            apple: sender, channels: channels, vendors: vendors, transports: transports, intake: intake, links: ordered)
        if configuration.receipts != nil {
            let relay = try ReceiptRelay(
                configuration.link, token: { tokens.withLock { $0.first?.exposed ?? "" } }, log: log)
            senders.receipts = (ReceiptIntake(configuration.receiptAccounts, to: relay), relay)
        }
        relay = senders.receipts?.relay
        self.senders = LoopBound(senders, on: loop)
        let pageSenders = senders
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
                    Self.answer(exchange, pageSenders, ends, leases: leases, now: loop.now)
                })
        }
        if let hook = configuration.hook {
            let intake = HookIntake(intake, secrets: hook.secrets.compactMap { HookSecret($0.exposed) })
            try listeners.open(
                "hook", hook.listener, bodyByteLimit: HookIntake.bodyByteLimit, judge: { HookIntake.judge($0) },
                handler: { intake.handle($0) })
        }
        if let listener = configuration.receipts, let intake = senders.receipts?.intake {
            try listeners.open(
                "receipts", listener, bodyByteLimit: Receipts.bodyByteCount, judge: { intake.judge($0) },
                handler: { intake.handle($0) })
        }
        addresses = listeners.addresses
        self.listeners = LoopBound(listeners, on: loop)
    }

    /// Creates the senders of all vendors but Apple, and their transports: one for HTTP/2 and one for HTTP/1.1.
    ///
    /// libcurl limits the connections per host for a whole transport. The HTTP/2 transport gets the largest `connections`
    /// setting. The HTTP/1.1 transport has no limit, because each lane limits its concurrent requests.
    private static func vendors(
        _ configuration: SenderConfiguration, _ links: [Channel: GatewayLink], on loop: EventLoop, _ log: SenderLog
    ) throws -> ([VendorSender], [VendorTransport]) {
        var transports: [Bool: VendorTransport] = [:]
        for isHTTP2 in [true, false] {
            let settings = configuration.vendorSettings.filter { vendor, _ in
                vendor.facts.wantsHTTP2 == isHTTP2 && links[.vendor(vendor)] != nil
            }
            guard let connections = settings.values.map(\.connections).max() else { continue }
            transports[isHTTP2] = try VendorTransport(
                on: loop, connectionsPerHost: isHTTP2 ? connections : 0,
                resolver: isHTTP2 ? { loop.resolve($0, $1) } : nil)
        }
        var senders: [VendorSender] = []
        for vendor in Vendor.allCases {
            guard let link = links[.vendor(vendor)], let settings = configuration.vendorSettings[vendor],
                let transport = transports[vendor.facts.wantsHTTP2]
            else { continue }
            let register = JobRegister(
                of: .vendor(vendor), on: loop, log: log, unreported: { link.unreported() },
                setAside: { link.setAside($0) }, results: { link.take($0) })
            senders.append(
                VendorSender(
                    configuration.accounts(of: vendor), settings: settings, register: register, through: transport))
        }
        return (senders, Array(transports.values))
    }

    private static func answer(
        _ exchange: HTTPExchange, _ senders: Senders, _ certificates: CertificateEnds, leases: Bool, now: UInt64
    ) {
        func respond(_ status: Int, _ text: String, headers: [(name: String, value: String)] = []) {
            exchange.respond(
                status: status, contentType: "text/plain;charset=utf-8", headers: headers,
                body: Array((text + "\n").utf8))
        }
        let path = exchange.rawTarget.prefix { $0 != "?" }
        guard ["/metrics", "/healthz", "/readyz", "/status"].contains(path) else {
            return respond(404, "/metrics, /healthz, /readyz, /status, /v1/channels and /v1/broadcasts are here")
        }
        guard exchange.method == .get || exchange.method == .head else {
            return respond(405, "this page is read with GET", headers: [("Allow", "GET, HEAD")])
        }
        switch path {
        case "/metrics":
            exchange.respond(
                status: 200, contentType: "text/plain;version=0.0.4;charset=utf-8",
                body: SenderPages.metrics(senders, certificates, now: now))
        case "/healthz": respond(200, "ok")
        case "/status":
            exchange.respond(
                status: 200, contentType: "application/json", body: SenderPages.status(senders, now: now))
        default:
            let (isReady, text) = SenderPages.readiness(senders, leases: leases, now: now)
            respond(isReady ? 200 : 503, text)
        }
    }

    func start() throws {
        try loop.start()
        for (channel, link) in links { try start(link, of: channel) }
        try relay?.start()
    }

    private func start(_ link: GatewayLink, of channel: Channel) throws {
        let (loop, senders, log) = (loop, senders, log)
        guard configuration.leases else { return try link.start(leases: false) { _, _, taken in taken(nil) } }
        let lease = Int64(configuration.link.askedSeconds) * 1_000
        try link.start(leases: true) { answer, askedAt, taken in
            loop.submit {
                do throws(HandoffJobReader.Failure) {
                    let intake = senders.wrapped.intake
                    let reader = try intake.read(answer)
                    // The answer's time in transit is unknown, so the lease counts from the request.
                    let waited = Int64(clamping: SystemClock.monotonicMilliseconds - askedAt)
                    taken(
                        intake.take(reader, leasedBy: channel) { _ in
                            JobLease(left: lease - waited, length: lease)
                        })
                } catch {
                    log.write("gatewayFailed", error.description)
                    taken(nil)
                }
            }
        }
    }

    /// Logs the warnings of a configuration that takes effect.
    ///
    /// Expiring certificates are left out, because `tend` logs them.
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
            let (senders, listeners, accounts) = (senders, listeners, new.vendorAccounts)
            let receipts = new.receiptAccounts
            for channel in new.channels where !links.contains(where: { $0.channel == channel }) {
                log.write("configurationWarning", "credentials of \(channel.name) take effect after a restart")
            }
            loop.submit {
                let (apps, others) = credentials.value
                senders.wrapped.apple.reload(credentials: apps, otherCredentials: others)
                for sender in senders.wrapped.vendors {
                    sender.reload(accounts.filter { $0.vendor == sender.vendor })
                }
                senders.wrapped.receipts?.intake.accounts = receipts
                listeners.wrapped.renew(opened)
            }
            log.write("reloaded", "credentials, tokens and certificates are in force; other keys count after a restart")
        } catch {
            log.write("reloadRefused", "\(error)")
        }
    }

    /// Finishes requests in flight, returns the other jobs, and reports both.
    func stop() {
        let (loop, senders) = (loop, senders)
        loop.submit { senders.wrapped.forEach { $0.beginStop() } }
        for (_, link) in links { link.stopLeasing() }
        for (_, link) in links { link.joinLeaser() }
        if !wait(milliseconds: configuration.stopMilliseconds) {
            loop.submit {
                senders.wrapped.forEach { $0.abandon() }
                for transport in senders.wrapped.transports { transport.abandon() }
                senders.wrapped.channels.close()
            }
            _ = wait(milliseconds: 2_000)
        }
        for (_, link) in links { link.stopReporting() }
        if !wait(milliseconds: 2_000) {
            for (_, link) in links { link.abandon() }
        }
        for (_, link) in links { link.joinReporter() }
        relay?.stop(milliseconds: 2_000)
        for stop in stopTransports { stop() }
        loop.stop()
        loop.join()
    }

    /// Waits until the gateway has every outcome; returns false on timeout.
    private func wait(milliseconds: UInt64) -> Bool {
        let end = SystemClock.monotonicMilliseconds + milliseconds
        while links.contains(where: { $0.link.figures.held > 0 }) || channelCalls.withLock({ $0 }) > 0 {
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
