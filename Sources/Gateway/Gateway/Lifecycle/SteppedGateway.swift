package import Delivery
internal import EventLoops
internal import Glibc
package import MessageStore
internal import Platform
internal import Wire

/// A whole gateway without a port, a control thread or a clock of its own: for fuzzing and tests, in one process.
///
/// Configuration, loops, fronts, shards and the store are the server's own, wired by `Gateway`. The caller's thread runs the
/// loops turn by turn and says what time it is; the store's threads run as they do in a server. Connections are pairs of
/// sockets inside the process.
package final class SteppedGateway {
    /// A listener of the server.
    package enum Door: Sendable, CaseIterable { case http, admin, device, senders }

    /// What the loops count, summed.
    package struct Books: Equatable, Sendable {
        /// Since the gateway was opened.
        package var accepted: UInt64 = 0
        package var ended: UInt64 = 0
        /// Accepted and not ended, whenever accepted.
        package var pending: Int64 = 0
        package var damagedRows: UInt64 = 0
    }

    let gateway: Gateway
    private let log: Log
    private let rung: Monitor<Int>
    private var servers: [(http: HTTPServer, admin: HTTPServer)] = []
    private var isOpen = true
    private var seen = 0
    /// Gateway time; it stands still until `advance`.
    package private(set) var time: GatewayTime
    private var monotonic = SystemClock.monotonicMilliseconds

    /// Opens the store that the configuration in `file` names.
    ///
    /// - Parameters:
    ///   - file: a configuration file; `reload` reads it again.
    ///   - time: what the wall clock shows.
    ///   - fatal: called on a thread of the store that cannot go on.
    /// - Throws: as a start of the server does.
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

    /// Says that the calling thread drives the gateway from now on.
    package func takeOver() {
        for host in gateway.hosts { host.loop.takeOver() }
    }

    // MARK: Driving

    package var loopCount: Int { gateway.hosts.count }

    /// Connects to a door on one of the loops.
    ///
    /// - Returns: the caller's end, a non-blocking descriptor that is the caller's to close.
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

    /// Runs one turn of every loop with what is there.
    package func turn() {
        for host in gateway.hosts { host.loop.step(at: monotonic, isTick: false) }
    }

    /// Sleeps until a thread of the store has work for a loop that came after the last call, at most so long.
    package func wait(atMostMilliseconds milliseconds: UInt64) {
        let seen = seen
        self.seen = rung.wait(atMostMilliseconds: milliseconds, while: { $0 == seen }, then: { $0 })
    }

    /// Lets time pass, on both of the gateway's clocks, and runs the hooks of one tick.
    package func advance(_ milliseconds: Int64) {
        time += milliseconds
        monotonic += UInt64(milliseconds)
        setClocks()
        for host in gateway.hosts { host.loop.step(at: monotonic, isTick: true) }
    }

    private func setClocks() {
        // At this speed the line is flat.
        let still = ClockMapping(boot: ClockReader.boot(), time: time, partsPerMillion: -1_000_000)
        gateway.setClock(still)
    }

    /// Reads the configuration file again, as on SIGHUP.
    ///
    /// - Returns: false when it was refused.
    package func reload() -> Bool {
        let refused = gateway.context.status.withLock { $0.reloadsRefused }
        gateway.reload()
        turn()
        return gateway.context.status.withLock { $0.reloadsRefused } == refused
    }

    /// Asks the spiller to move everything that is young to the ordered store.
    package func requestSpill() { gateway.context.store.requestSpill() }

    // MARK: Looking

    /// The gateway's own rows are durable.
    package var isReady: Bool { gateway.context.isReady }

    /// A caller waits for an answer that is not out yet.
    package var hasWorkUnderWay: Bool { gateway.hosts.contains { $0.hasWorkUnderWay } }

    /// What `/readyz` would say of the store.
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

    /// Ends the loops, then the store; what was answered is in the folder.
    package func close() {
        guard isOpen else { return }
        isOpen = false
        for host in gateway.hosts { host.loop.stop() }
        gateway.context.backups.stop()
        gateway.context.store.close()
        log.close()
    }
}
