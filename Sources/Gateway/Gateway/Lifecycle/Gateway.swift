internal import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Glibc
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// The gateway: opens the store, sets up the loops, and serves until it is stopped.
///
/// One thread, the control thread, creates, runs and stops the gateway. It also updates the clock and handles reloads.
final class Gateway {
    private(set) var configuration: GatewayConfiguration
    private let generated: GeneratedCredentials
    private let log: Log
    let context: GatewayContext
    private let descriptors: DescriptorBudget
    private var clock: GatewayClock
    private let time: SharedTime
    let hosts: [EventLoopHost]
    /// The cluster membership; `nil` without a cluster.
    private let node: ClusterNode?
    private let mailboxes: [Mailbox<Mail>]
    private var hook: HookSender?
    private var listeners: [(loop: EventLoop, close: () -> Void)] = []
    private var deviceTLS: Lock<TLSContext>?
    private var sendersTLS: Lock<TLSContext>?
    private var httpTLS: [(loop: EventLoop, service: HTTPService, server: LoopBound<HTTPServer>)] = []
    private(set) var addresses = Addresses()
    private var lastClockRecord: Int64 = 0
    private var lastLook: Int64 = .min / 2
    private var expiryWatch = ExpiryWatch()
    private var certificates: ListenerCertificates?
    private var isStoreBusy = false
    private var spillFailureCount = 0
    private var requestWatch = RetentionWatch("requests", limitName: "requestBytes")
    private var traceWatch = RetentionWatch("traces", limitName: "traceBytes")

    /// The listeners' addresses, with actual port numbers.
    struct Addresses {
        var device = ""
        var deviceTLS = ""
        var senders = ""
        var sendersTLS = ""
        var http = ""
        var httpTLS = ""
        var admin = ""
        var adminTLS = ""
    }

    /// The replacements for the system clock and the control thread in a `SteppedGateway`.
    struct Stepping {
        var reading: GatewayClock.Reading
        /// Called whenever a thread of the store has work for a loop.
        var posted: @Sendable () -> Void
        var fatal: @Sendable (StoreError) -> Void
    }

    /// Opens the store and every listener; the gateway serves nothing before `start()`.
    ///
    /// With `stepping` no listener is opened, and the caller runs the loops.
    ///
    /// - Throws: `StoreError`, `ListenFailure`, `TLSFailure` or `SystemError`, each with a message for operators.
    init(
        _ configuration: GatewayConfiguration, generated: GeneratedCredentials, log: Log, acceptsClock: Bool,
        stepping: Stepping? = nil
    ) throws {
        (self.configuration, self.generated, self.log) = (configuration, generated, log)
        descriptors = try DescriptorBudget(
            capacity: DescriptorTable.capacity, loopCount: configuration.loopCount,
            hasOwnTables: configuration.loopTables == .own)
        let time = SharedTime()
        self.time = time
        let start = try GatewayStart(
            configuration, descriptors, log: log, time: time, acceptsClock: acceptsClock, stepping: stepping)
        (clock, context, node) = (start.clock, start.context, start.node)
        do {
            let snapshot = start.context.apps.begin(
                configuration, descriptors, now: start.clock.mapping.time(atBoot: ClockReader.boot()), log: log)
            hosts = start.loops.enumerated().map { index, loop in
                EventLoopHost(
                    index: index, loop: loop, context: start.context, snapshot: snapshot, clock: start.clock.mapping)
            }
            let mailboxes = hosts.map { $0.openMailbox() }
            self.mailboxes = mailboxes
            for host in hosts { host.connect(mailboxes) }
            // A partition stays on the event loop that it starts on.
            for (number, first) in start.partitions.enumerated() { hosts[number].open(number, first) }
            context.setHosts(hosts.map { HostHandle($0) })
            for host in hosts { host.loop.closingStreamLimit = descriptors.closingPerLoop }
            context.status.withLock { ($0.connections, $0.startedAt) = (snapshot.connections, ClockReader.wall()) }
            if let meta = start.meta { context.submit(to: 0) { meta.write(on: $0) } }
            context.peers.addresses.set(
                configuration.addressRules, exempt: configuration.exemptAddresses, forwarded: configuration.forwarded)
            let flapping = FlapDamping.Rules(connects: configuration.limits.flappingConnects)
            context.peers.flaps.withLock { $0.rules = flapping }
            guard stepping == nil else { return }
            let certificates = try ListenerCertificates(configuration)
            try listen(try ListeningSockets(configuration), certificates)
            warnOfFewDescriptors(snapshot.connections)
            warn(of: certificates)
            note(certificates)
            if let hook = configuration.hook { self.hook = try HookSender(hook, context: context, log: log) }
            // The thread is started even without webhooks, because the admin API may add one at any time.
            try context.outbound.startFeedPoster(log)
        } catch {
            start.close()
            throw error
        }
    }

    /// Logs, at the start and not only at peak load, that configured limits exceed the available descriptors.
    private func warnOfFewDescriptors(_ limits: ConnectionLimits) {
        guard limits.isBelow(configuration.limits) else { return }
        // Without a configuration file no operator requested these limits, so the log level is only info.
        log.write(
            configuration.file == nil ? .info : .warning, .fewDescriptors,
            [
                .limit: LogValue(descriptors.capacity), .devices: LogValue(limits.devices),
                .senders: LogValue(limits.senders), .http: LogValue(limits.http), .admin: LogValue(limits.admin),
            ])
    }

    // MARK: Listening

    private func listen(_ sockets: ListeningSockets, _ certificates: ListenerCertificates) throws {
        let contexts = Dictionary(uniqueKeysWithValues: certificates.entries.map { ($0.name, $0.tls) })
        if let handles = sockets.device {
            addresses.device = try open(handles, "device", \.device) { DeviceHandshake.accept($1, tls: nil, on: $0) }
        }
        if let handles = sockets.deviceTLS, let context = contexts["device"] {
            let tls = Lock(context)
            deviceTLS = tls
            addresses.deviceTLS = try open(handles, "device.tls", \.device, isSecure: true) {
                DeviceHandshake.accept($1, tls: tls.withLock { $0 }, on: $0)
            }
        }
        if let handles = sockets.senders {
            addresses.senders = try open(handles, "senders", \.senders) {
                SenderConnection.accept($1, tls: nil, on: $0)
            }
        }
        if let handles = sockets.sendersTLS, let context = contexts["senders"] {
            let tls = Lock(context)
            sendersTLS = tls
            addresses.sendersTLS = try open(handles, "senders.tls", \.senders, isSecure: true) {
                SenderConnection.accept($1, tls: tls.withLock { $0 }, on: $0)
            }
        }
        if let handles = sockets.http {
            addresses.http = try openHTTP(handles, "http", tls: nil, .publicHTTP)
        }
        if let handles = sockets.httpTLS, let tls = contexts["http"] {
            addresses.httpTLS = try openHTTP(handles, "http.tls", tls: tls, .publicHTTP)
        }
        if let handles = sockets.admin {
            addresses.admin = try openHTTP(handles, "admin", tls: nil, .admin)
        }
        if let handles = sockets.adminTLS, let tls = contexts["admin"] {
            addresses.adminTLS = try openHTTP(handles, "admin.tls", tls: tls, .admin)
        }
    }

    /// Logs problems of certificates without rejecting them.
    ///
    /// Other listeners still work, and some clients do not verify certificates. A restart after the expiry date must not stop a
    /// working gateway.
    private func warn(of certificates: ListenerCertificates) {
        // Certificates that expire soon are logged once a day by `look`.
        let (refused, unwise) = certificates.findings(endingWithin: 0)
        for problem in refused + unwise { log.write(.warning, .configurationWarning, [.detail: .text(problem)]) }
    }

    private func open(
        _ sockets: [ListeningSocket.Handle], _ name: String,
        _ path: KeyPath<GatewayConfiguration, GatewayConfiguration.Listener>,
        isSecure: Bool = false, accept: @escaping (EventLoopHost, DetachedConnection) -> Void
    ) throws -> String {
        for (host, socket) in zip(hosts, sockets) {
            let door = Listener.Door(context.peers.addresses) { [unowned host] connection, refusal in
                host.turnAway(connection, isSecure: isSecure, .address(refusal))
            }
            let listener = try Listener(
                on: host.loop, socket: socket.take(), balancers: configuration[keyPath: path].balancers, door: door
            ) { [unowned host] connection in accept(host, connection) }
            host.listeners.add(listener)
            listeners.append((host.loop, { listener.close() }))
        }
        let bound = sockets[0].address.description
        log.write(.info, .listening, [.listener: .text(name), .address: .text(bound)])
        return bound
    }

    enum HTTPService {
        case publicHTTP, admin
    }

    private func openHTTP(
        _ sockets: [ListeningSocket.Handle], _ name: String, tls: TLSContext?, _ service: HTTPService
    ) throws -> String {
        for (host, socket) in zip(hosts, sockets) {
            let server = httpServer(on: host, service, tls: tls)
            let settings = service == .admin ? configuration.admin : configuration.http
            // Operators need the admin API even if their own address is blocked.
            try server.listen(
                socket.take(), balancers: settings.balancers,
                addresses: service == .admin ? nil : context.peers.addresses)
            if let listener = server.listener {
                host.listeners.add(listener, isPublicHTTP: service == .publicHTTP)
            }
            listeners.append((host.loop, { server.stopAccepting() }))
            if tls != nil { httpTLS.append((host.loop, service, LoopBound(server, on: host.loop))) }
        }
        let bound = sockets[0].address.description
        log.write(.info, .listening, [.listener: .text(name), .address: .text(bound)])
        return bound
    }

    /// Creates an HTTP server of one loop that listens on no address yet.
    func httpServer(on host: EventLoopHost, _ service: HTTPService, tls: TLSContext?) -> HTTPServer {
        var settings = HTTPServer.Configuration()
        settings.headerByteLimit = configuration.limits.httpHeaderBytes
        settings.budget = context.peers.budget
        settings.requestMilliseconds = UInt64(configuration.limits.httpRequestTimeoutSeconds * 1_000)
        settings.idleMilliseconds = UInt64(configuration.limits.httpIdleTimeoutSeconds * 1_000)
        settings.unixSeconds = { UInt64(ClockReader.wall() / 1_000) }
        settings.busyReply = HTTPReply(service == .admin ? AdminHandler.busy : .busy)
        settings.tls = tls
        let isAdmin = service == .admin
        return HTTPServer(
            on: host.loop, configuration: settings, room: isAdmin ? host.adminRoom : host.publicRoom,
            judge: { [unowned host] head in
                isAdmin ? host.adminHandler.judge(head) : host.publicHandler.judge(head)
            },
            handler: { [unowned host] exchange in
                if isAdmin { host.adminHandler.handle(exchange) } else { host.publicHandler.handle(exchange) }
            })
    }

    /// Sets the clocks of the loops and the store; must be called on the thread that runs the loops.
    func setClock(_ mapping: ClockMapping) {
        time.set(mapping)
        for host in hosts { host.setClock(mapping) }
    }

    // MARK: Start and stop

    func start() throws {
        if var demo = generated.demo {
            (demo.deviceAddress, demo.httpAddress) = (addresses.device, addresses.http)
            (demo.adminAddress, demo.sendersAddress) = (addresses.admin, addresses.senders)
            try demo.save(in: configuration.storePath)
        }
        let loops = self.loops
        let passages = loops.compactMap(\.passage)
        for loop in loops { try loop.start(sendingThrough: passages) }
        if let node { try node.start(context, mailboxes: mailboxes) }
    }

    /// Returns the code of a new one-time link to the console, which signs in with the token.
    func makeSignInCode(for token: Secret) -> String {
        context.signInLink.makeCode(for: token, now: ClockReader.monotonic())
    }

    /// Runs periodic work; the control thread calls it about once a second.
    func tend() {
        let reading = ClockReader.reading()
        if let floor = node?.clockFloor, clock.raise(to: floor, at: reading) {
            log.write(.warning, .clockRaised, [.offsetMilliseconds: LogValue(clock.offset)])
        }
        node?.tend()
        switch clock.observe(reading) {
        case .forwardStepRefused(let offset):
            log.write(.error, .clockStepRefused, [.offsetMilliseconds: LogValue(offset)])
        case .drifts(let offset): log.write(.warning, .clockDrifts, [.offsetMilliseconds: LogValue(offset)])
        case .agrees: log.write(.info, .clockAgrees)
        case nil: break
        }
        let mapping = clock.mapping
        time.set(mapping)
        let offset = clock.offset
        context.status.withLock { status in
            status.clockOffset = offset
            status.isClockStepRefused = offset > ClockLimits.forwardStep
        }
        context.tellAll { $0.setClock(mapping, offset: offset) }
        hook?.tend()
        if let report = context.peers.addresses.takeReport() {
            let counts = report.counts.map { "\($0.kind.label) \($0.count)" }.joined(separator: ", ")
            log.write(.warning, .addressRefused, [.address: .text(report.address), .detail: .text(counts)])
        }
        if let report = context.peers.flaps.withLock({ $0.takeReport() }) {
            log.write(
                .info, .deviceFlaps,
                [.cid: LogValue(report.device), .milliseconds: LogValue(report.delay), .count: LogValue(report.count)])
        }
        context.usage.quotas.report(to: log, registry: context.apps.registry)
        context.apps.tend(on: context, now: time.now ?? 0)
        if context.store.acceptsWrites == isStoreBusy {
            isStoreBusy.toggle()
            if isStoreBusy {
                let reason = context.store.statistics.refusalReason
                log.write(.warning, .storeBusy, reason.map { [.reason: .text($0)] } ?? [:])
            }
        }
        let store = context.store.statistics
        if store.spillFailureCount != spillFailureCount {
            spillFailureCount = store.spillFailureCount
            // With Redis, moves of rows fail during every failover, and the engine logs them itself (`redisEvent`).
            if node == nil { log.write(.error, .spillFailed, [.error: .text(store.lastSpillFailure ?? "")]) }
        }
        requestWatch.look(at: store.requests, log)
        traceWatch.look(at: store.traces, log)
        if reading.boot - lastLook > 10_000 {
            lastLook = reading.boot
            look()
            let wall = ClockReader.wall() / 1_000
            context.hosts[0].submit { MetricsGatherer.look($0, wall: wall) }
            // A notification of a changed app, from the owner of partition 0, may have been lost.
            if node != nil { context.hosts[0].submit { $0.followApps() } }
        }
        if reading.boot - lastClockRecord > 10_000 {
            lastClockRecord = reading.boot
            let record = clock.record(reading)
            if node == nil { context.submit(to: 0) { MetaRows.write(record, on: $0) } }
        }
    }

    /// Updates the process metrics on the control thread, because counting descriptors is slow.
    private func look() {
        let figures = ProcessFigures.now()
        let disk = configuration.redis == nil ? ProcessFigures.room(at: configuration.storePath) : nil
        let certificates = context.status.withLock { status in
            (status.process, status.disk) = (figures, disk)
            return status.certificates
        }
        for expiry in certificates {
            expiryWatch.look(
                at: expiry.name, end: expiry.end, now: ClockReader.wall() / 1_000,
                warning: configuration.limits.certificateWarningDays * 86_400, log)
        }
    }

    private func note(_ all: ListenerCertificates) {
        certificates = all
        let expiries = all.expiries
        context.status.withLock { $0.certificates = expiries }
    }

    /// The health check of the event loops, for the service manager's watchdog.
    private(set) lazy var pulse = WatchdogTick(loops)

    private var loops: [EventLoop] { hosts.map(\.loop) }

    /// Uses a certificate for new connections of a listener.
    private func renew(_ listener: String, _ tls: TLSContext) {
        switch listener {
        case "device": deviceTLS?.withLock { $0 = tls }
        case "senders": sendersTLS?.withLock { $0 = tls }
        default:
            let service: HTTPService = listener == "admin" ? .admin : .publicHTTP
            for (loop, one, server) in httpTLS where one == service { loop.submit { server.wrapped.renewTLS(tls) } }
        }
    }

    /// Reloads the configuration, or keeps the current one and logs the error.
    func reload() {
        do {
            var next = try ConfigurationFile.load(configuration.file)
            var random = SystemRandomNumberGenerator()
            _ = try GeneratedCredentials.complete(&next, random: &random)
            // Operations that can fail come first, so that an invalid file changes nothing.
            let applied = try next.reloaded(over: configuration)
            // `applied` lacks the listeners that wait for a restart. Their files must not fail first at that restart.
            _ = try ListenerCertificates(next)
            let certificates = try ListenerCertificates(applied)
            if let inForce = self.certificates { try certificates.requireNoWorse(than: inForce) }
            warn(of: certificates)
            if let settings = applied.hook, hook == nil {
                hook = try HookSender(settings, context: context, log: log)
            }
            for key in next.keysNeedingRestart(since: configuration) {
                log.write(.warning, .restartNeeded, [.key: .text(key)])
            }
            next = applied
            configuration = next
            for entry in certificates.entries { renew(entry.name, entry.tls) }
            note(certificates)
            context.peers.addresses.set(
                next.addressRules, exempt: next.exemptAddresses, forwarded: next.forwarded)
            context.peers.flaps.withLock { $0.rules.connects = next.limits.flappingConnects }
            let snapshot = context.apps.reload(next, on: context, now: time.now ?? 0)
            hook?.update(next.hook)
            log.setLevel(next.logging.level)
            context.status.withLock { status in
                status.configurationVersion = next.version
                if let snapshot { status.connections = snapshot.connections }
                status.reloadsApplied += 1
            }
            log.write(.info, .reloaded, [.configuration: LogValue(next.version)])
        } catch {
            context.status.withLock { $0.reloadsRefused += 1 }
            log.write(.error, .reloadRefused, [.error: .text("\(error)")])
        }
    }

    /// Reports "not ready" from now on, but continues to serve.
    ///
    /// - Returns: The time at which `stop` must be called, in monotonic milliseconds.
    func beginDrain() -> Int64 {
        log.write(.info, .draining, [.milliseconds: LogValue(configuration.limits.drainSeconds * 1_000)])
        context.status.withLock { $0.phase = .stopping }
        return ClockReader.monotonic() + configuration.limits.drainSeconds * 1_000
    }

    /// The upper bound of a clean stop from `beginDrain` on, except for a stalled disk.
    ///
    /// It sums the drain, a reserve of 10 s, and a stop timeout each for moving partitions, the hook (which uses half) and
    /// requests.
    var longestStopMilliseconds: Int64 {
        (configuration.limits.drainSeconds + 3 * configuration.limits.stopTimeoutSeconds + 10) * 1_000
    }

    /// Stops cleanly: closes the listeners, sends Close to all devices, and finishes accepted requests.
    func stop() {
        log.write(.info, .stopping)
        // The other gateways take over this gateway's partitions while it still answers requests.
        node?.leave(withinMilliseconds: configuration.limits.stopTimeoutSeconds * 1_000)
        context.setStopping()
        hook?.stop(withinMilliseconds: configuration.limits.stopTimeoutSeconds * 500)
        context.outbound.feedPoster?.stop()
        let closings = listeners.map { LoopClosing(loop: $0.loop, close: $0.close) }
        for closing in closings { closing.run() }
        context.tellAll { $0.beginStop() }
        let deadline = ClockReader.monotonic() + configuration.limits.stopTimeoutSeconds * 1_000
        while ClockReader.monotonic() < deadline, isAnyLoop({ $0.hasWorkUnderWay }) { usleep(20_000) }
        // Sends the remaining answers; an unreachable peer delays the stop only up to the usual close timeout.
        let sent = ClockReader.monotonic() + Int64(EventLoops.Limits.closeMilliseconds)
        while ClockReader.monotonic() < sent, isAnyLoop({ $0.loop.isSending }) { usleep(20_000) }
        if node == nil {
            let record = clock.record(ClockReader.reading())
            let isWritten = Flag()
            context.submit(to: 0) { MetaRows.write(record, on: $0) { isWritten.set() } }
            let written = max(deadline, ClockReader.monotonic() + 1_000)
            while ClockReader.monotonic() < written, !isWritten.isSet { usleep(5_000) }
        }
        node?.beginStop()
        for loop in loops { loop.stop() }
        for loop in loops { loop.join() }
        node?.stop()
        context.backups.stop()
        context.store.close()
        log.write(.info, .stopped)
        log.flush()
    }

    /// Returns whether the condition holds on any loop; a loop without an answer within a second counts as true.
    private func isAnyLoop(_ condition: @escaping @Sendable (EventLoopHost) -> Bool) -> Bool {
        let answers = Lock((count: 0, hasYes: false))
        context.tellAll { loop in
            let isTrue = condition(loop)
            answers.withLock { $0 = ($0.count + 1, $0.hasYes || isTrue) }
        }
        let deadline = ClockReader.monotonic() + 1_000
        while answers.withLock({ $0.count }) < hosts.count {
            guard ClockReader.monotonic() < deadline else { return true }
            usleep(2_000)
        }
        return answers.withLock { $0.hasYes }
    }

    var demo: GeneratedCredentials.Demo? { generated.demo }
}

final class Flag: Sendable {
    private let value = Lock(false)
    func set() { value.withLock { $0 = true } }
    var isSet: Bool { value.withLock { $0 } }
}

/// Closes a listener; sound to send because the closure is only called on its loop.
private struct LoopClosing: @unchecked Sendable {
    let loop: EventLoop
    let close: () -> Void
    func run() { loop.submit { self.close() } }
}
