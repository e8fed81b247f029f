internal import Delivery
internal import EventLoops
internal import Wire

// Limits, timeouts and counts of connections that have no session yet.
extension EventLoopHost {
    /// Counts a new connection; returns `false` if the limit is reached and no other connection can be displaced.
    ///
    /// The connection that has waited longest for its Hello is displaced, so silent connections cannot block new ones. After
    /// `true` the caller must call `endHandshake` and `endConnection`.
    func admit(_ kind: ConnectionKind, from peer: SocketAddress?) -> Bool {
        let count = kind == .device ? context.connections.devices : context.connections.senders
        _ = count.enter(limit: .max)
        if kind == .device { _ = context.connections.handshakes.enter(limit: .max) }
        if isRoom(for: kind, count) { return true }
        let waiting =
            kind == .device
            ? handshakes.longestWaiting(preferring: peer?.network)
            : senderHandshakes.longestWaiting(preferring: peer?.network)
        if let waiting {
            metrics.count(kind == .device ? .deviceDisplaced : .senderDisplaced)
            waiting.handshakeDisplaced()
            if isRoom(for: kind, count) { return true }
        }
        count.leave()
        if kind == .device { context.connections.handshakes.leave() }
        metrics.count(kind == .device ? .deviceTurnedAway : .senderTurnedAway)
        return false
    }

    /// Counts a device that another gateway relays after its Hello; returns `false` if the limit is reached.
    func admitRelayed() -> Bool {
        _ = context.connections.devices.enter(limit: .max)
        if hasRoomForDevices { return true }
        context.connections.devices.leave()
        metrics.count(.deviceTurnedAway)
        return false
    }

    private var hasRoomForDevices: Bool {
        snapshot.connections.hasRoom(
            devices: context.connections.devices.value, relayEnds: context.cluster?.links.relayEndCount ?? 0)
    }

    /// Returns whether there is room; the new connection is already in the process's counts, but not yet among the loop's
    /// streams.
    private func isRoom(for kind: ConnectionKind, _ count: SharedCount) -> Bool {
        let allowed = snapshot.connections
        switch kind {
        case .sender:
            return count.value <= allowed.senders && senders.count + senderHandshakes.count < allowed.sendersPerLoop
        case .device:
            guard hasRoomForDevices, context.connections.handshakes.value <= limits.connectionsBeforeHello else {
                return false
            }
            guard allowed.devicesPerLoop < .max else { return true }
            let others = publicRoom.count + adminRoom.count + senders.count + senderHandshakes.count
            return loop.servingStreamCount + welcomes.waitingCount - others < allowed.devicesPerLoop
        }
    }

    /// Starts the Hello timeout of an admitted connection.
    func beginHandshake(_ connection: some Handshaking, from peer: SocketAddress?) {
        let deadline = loop.now + UInt64(limits.helloTimeoutMilliseconds)
        let network = peer?.network ?? 0
        connection.handshakePlace =
            connection.kind == .device
            ? handshakes.append(connection, network: network, deadline: deadline)
            : senderHandshakes.append(connection, network: network, deadline: deadline)
    }

    /// Restarts the timeout after a completed step of a device's handshake.
    func renewHandshake(_ device: DeviceHandshake) {
        let deadline = loop.now + UInt64(limits.helloTimeoutMilliseconds)
        device.handshakePlace = handshakes.renew(device.handshakePlace, deadline: deadline)
    }

    func endHandshake(_ connection: some Handshaking) {
        switch connection.kind {
        case .device:
            context.connections.handshakes.leave()
            welcomes.finished()
            handshakes.remove(connection.handshakePlace)
        case .sender: senderHandshakes.remove(connection.handshakePlace)
        }
    }

    /// Subtracts a closed connection from the counts; a connection that moves to another loop stays counted.
    func endConnection(_ kind: ConnectionKind) {
        switch kind {
        case .device: context.connections.devices.leave()
        case .sender: context.connections.senders.leave()
        }
    }

    /// The time, in milliseconds, to send pending answers to a peer that has closed its sending side.
    static let halfClosedMilliseconds: UInt64 = 10_000
}

/// The listeners of one event loop, and the parts of their counters that were already logged.
struct HostListeners {
    private var all: [Listener] = []
    private(set) var publicHTTP: [Listener] = []
    private var reportedAcceptFailures: UInt64 = 0
    private var reportedHeaders: UInt64 = 0
    private var reportedProbes: UInt64 = 0

    mutating func add(_ listener: Listener, isPublicHTTP: Bool = false) {
        all.append(listener)
        if isPublicHTTP { publicHTTP.append(listener) }
    }

    /// Logs and counts failed accepts, refused PROXY headers and health checks of load balancers.
    ///
    /// It is called once a second, so that peers cannot flood the log.
    mutating func report(to host: EventLoopHost) {
        let failures = all.reduce(0) { $0 + $1.exhaustedCount }
        if failures > reportedAcceptFailures {
            host.log.write(
                .error, .acceptFailed,
                [.loop: LogValue(host.index), .count: LogValue(failures - reportedAcceptFailures)])
            reportedAcceptFailures = failures
        }
        let probes = all.reduce(0) { $0 + $1.probeCount }
        host.metrics.count(.balancerProbes, Int(probes - reportedProbes))
        reportedProbes = probes
        let headers = all.reduce(0) { $0 + $1.refusedHeaderCount }
        guard headers > reportedHeaders else { return }
        host.metrics.count(.proxyHeadersRefused, Int(headers - reportedHeaders))
        let reason = all.max { $0.refusedHeaderAt < $1.refusedHeaderAt }?.lastRefusedHeader ?? ""
        host.log.write(
            .warning, .proxyHeaderRefused,
            [.loop: LogValue(host.index), .count: LogValue(headers - reportedHeaders), .reason: .text(reason)])
        reportedHeaders = headers
    }
}
