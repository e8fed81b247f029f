package import Delivery
internal import EventLoops
internal import Glibc
package import MessageStore
internal import Platform
internal import Wire

/// A complete gateway in one process without ports, a control thread or a real clock, for fuzzing and tests.
///
/// Configuration, loops, handlers, shards and the store are those of the server, set up by `Gateway`. The caller's thread runs
/// the loops turn by turn and sets the time. The store's threads run as in a server. Connections are socket pairs.
package final class SteppedGateway {
    package enum Door: Sendable, CaseIterable { case http, admin, device, senders }

    /// The message counts of all partitions, summed.
    package struct Books: Equatable, Sendable {
        /// Messages accepted since the gateway was opened.
        package var accepted: UInt64 = 0
        package var ended: UInt64 = 0
        /// Messages accepted at any time and not ended.
        package var pending: Int64 = 0
        package var damagedRows: UInt64 = 0
    }

    let gateway: Gateway
    private let log: Log
    private let rung: Monitor<Int>
    private var servers: [(http: HTTPServer, admin: HTTPServer)] = []
    private var isOpen = true
    private var seen = 0
    /// The gateway time, which changes only with `advance`.
    package private(set) var time: GatewayTime
    private var monotonic = SystemClock.monotonicMilliseconds

    /// Opens the store of the configuration in `file`.
    ///
    /// - Parameters:
    ///   - file: The configuration file; `reload` reads it again.
    ///   - time: The initial wall clock time.
    ///   - fatal: Called on a store thread after an unrecoverable error.
    /// - Throws: The errors of a server's start.
    package init(file: String, time: GatewayTime, fatal: @escaping @Sendable (StoreError) -> Void) throws {
        var configuration = try ConfigurationFile.load(file)
        var random = SystemRandomNumberGenerator()
        let generated = try GeneratedCredentials.complete(&configuration, random: &random)
        log = try Log(format: .text, level: configuration.logging.level)
        let rung = Monitor(0)
        self.rung = rung
        do {
            gateway = try Gateway(
                configuration, generated: generated, log: log, acceptsClock: true,
                stepping: Gateway.Stepping(
                    reading: GatewayClock.Reading(wall: time, boot: ClockReader.boot()),
                    posted: { rung.broadcast { $0 += 1 } }, fatal: fatal))
        } catch {
            log.close()
            throw error
        }
        self.time = max(time, gateway.hosts[0].now)
        for host in gateway.hosts {
            servers.append(
                (
                    gateway.httpServer(on: host, .publicHTTP, tls: nil),
                    gateway.httpServer(on: host, .admin, tls: nil)
                ))
        }
        setClocks()
    }

    deinit { precondition(!isOpen, "SteppedGateway dropped without close()") }

    /// Makes the calling thread the owner of all loops.
    package func takeOver() {
        for host in gateway.hosts { host.loop.takeOver() }
    }

    // MARK: Driving

    package var loopCount: Int { gateway.hosts.count }

    /// Connects to a listener on a loop; returns a non-blocking descriptor that the caller must close.
    package func connect(_ door: Door, loop: Int) throws -> CInt {
        var ends: (CInt, CInt) = (-1, -1)
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let result = withUnsafeMutableBytes(of: &ends) { bytes in
            bytes.withMemoryRebound(to: CInt.self) { socketpair(AF_UNIX, kind, 0, $0.baseAddress) }
        }
        guard result == 0 else { throw SystemError.last("socketpair") }
        let connection = DetachedConnection(adopting: ends.0)
        let host = gateway.hosts[loop]
        switch door {
        case .http: servers[loop].http.accept(connection)
        case .admin: servers[loop].admin.accept(connection)
        case .device: DeviceHandshake.accept(connection, tls: nil, on: host)
        case .senders: SenderConnection.accept(connection, tls: nil, on: host)
        }
        return ends.1
    }

    /// Runs one turn of every loop without waiting.
    package func turn() {
        for host in gateway.hosts { host.loop.step(at: monotonic, isTick: false) }
    }

    /// Waits for new work from a store thread, up to a timeout.
    package func wait(atMostMilliseconds milliseconds: UInt64) {
        let seen = seen
        self.seen = rung.wait(atMostMilliseconds: milliseconds, while: { $0 == seen }, then: { $0 })
    }

    /// Advances both clocks of the gateway and runs one tick of every loop.
    package func advance(_ milliseconds: Int64) {
        time += milliseconds
        monotonic += UInt64(milliseconds)
        setClocks()
        for host in gateway.hosts { host.loop.step(at: monotonic, isTick: true) }
    }

    private func setClocks() {
        // A rate of -1,000,000 parts per million makes the time constant.
        let still = ClockMapping(boot: ClockReader.boot(), time: time, partsPerMillion: -1_000_000)
        gateway.setClock(still)
    }

    /// Reloads the configuration file, as on SIGHUP; returns false if the file was rejected.
    package func reload() -> Bool {
        let refused = gateway.context.status.withLock { $0.reloadsRefused }
        gateway.reload()
        turn()
        return gateway.context.status.withLock { $0.reloadsRefused } == refused
    }

    package func requestSpill() { gateway.context.store.requestSpill() }

    // MARK: Looking

    package var isReady: Bool { gateway.context.isReady }

    /// Whether a request is unanswered.
    package var hasWorkUnderWay: Bool { gateway.hosts.contains { $0.hasWorkUnderWay } }

    package var acceptsWrites: Bool { gateway.context.store.acceptsWrites }

    package var books: Books {
        var books = Books()
        for host in gateway.hosts {
            host.forEachPartition { partition in
                let statistics = partition.statistics
                books.accepted += statistics.accepted
                books.pending += statistics.pending
                books.damagedRows += statistics.damagedRows
                for state in FinalState.allCases { books.ended += statistics.ended(state) }
            }
        }
        return books
    }

    /// Stops the loops, then closes the store; all answered requests are durable.
    package func close() {
        guard isOpen else { return }
        isOpen = false
        for host in gateway.hosts { host.loop.stop() }
        gateway.context.backups.stop()
        gateway.context.store.close()
        log.close()
    }
}
