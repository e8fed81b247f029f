internal import CLibevent
internal import Glibc
package import Platform

/// A listening socket on one loop that accepts connections in bounded batches and backs off without free descriptors.
package final class Listener: Resident {
    package let address: SocketAddress
    package private(set) var acceptedCount: UInt64 = 0
    /// The number of failures for lack of descriptors or memory.
    package private(set) var exhaustedCount: UInt64 = 0

    /// The number of balancers' connections that ended before their PROXY header was complete.
    package private(set) var refusedHeaderCount: UInt64 = 0
    /// The balancer of the last of these connections, and the reason of its end.
    package private(set) var lastRefusedHeader = ""
    package private(set) var refusedHeaderAt: UInt64 = 0

    /// The number of balancers' connections that ended without a byte, as health checks do.
    package private(set) var probeCount: UInt64 = 0

    private let loop: EventLoop
    private let descriptor: CInt
    private let balancers: [AddressRange]
    private var arrivals: [ObjectIdentifier: BalancedArrival] = [:]
    private let connected: (DetachedConnection) -> Void
    private let door: Door?
    private let batchCount: Int
    private var event: UnsafeMutablePointer<event>?
    private var resumesAt: UInt64?
    private var isPaused = false

    /// The address limits of a listener, and the handler of refused connections.
    package struct Door {
        let addresses: AddressGuard
        /// Whether the connections use HTTP; new HTTP connections of an address are counted separately from those of devices.
        var isHTTP = false
        let refused: (DetachedConnection, AddressRefusal) -> Void

        /// - Parameters:
        ///   - addresses: the guard that all listeners of a gateway share.
        ///   - refused: called on the loop with a refused connection, which it must end.
        package init(_ addresses: AddressGuard, refused: @escaping (DetachedConnection, AddressRefusal) -> Void) {
            (self.addresses, self.refused) = (addresses, refused)
        }
    }

    /// Starts to accept; `connected` receives each connection, non-blocking and with TCP_NODELAY, on the loop.
    ///
    /// - Parameters:
    ///   - loop: the loop of the caller.
    ///   - socket: the socket, which the listener then owns.
    ///   - balancers: the addresses whose connections begin with a PROXY header that names the client. The header is removed.
    ///   - door: the address limits, or `nil` for none.
    ///   - batchCount: the maximum number of connections accepted per batch.
    ///   - connected: called on the loop.
    /// - Throws: without memory for the event.
    package init(
        on loop: EventLoop, socket: consuming ListeningSocket, balancers: [AddressRange] = [], door: Door? = nil,
        batchCount: Int = Limits.acceptBatchCount, connected: @escaping (DetachedConnection) -> Void
    ) throws(SystemError) {
        loop.preconditionInLoop()
        (self.loop, self.balancers) = (loop, balancers)
        address = socket.address
        descriptor = socket.take()
        (self.connected, self.door, self.batchCount) = (connected, door, batchCount)
        super.init()
        event = event_new(
            loop.base, descriptor, Int16(EV_READ | EV_PERSIST),
            { _, _, context in
                guard let context else { preconditionFailure("libevent lost the context pointer") }
                Unmanaged<Listener>.fromOpaque(context).takeUnretainedValue().acceptWaiting()
            }, Unmanaged.passUnretained(self).toOpaque())
        guard let event, event_add(event, nil) == 0 else {
            if let event { event_free(event) }
            Glibc.close(descriptor)
            throw SystemError(operation: "event_add", code: ENOMEM)
        }
        // The loop keeps the listener alive until it is closed, so the context pointer stays valid.
        loop.add(self)
        loop.own(descriptor)
        loop.onTick { [weak self] now in self?.resumeIfRested(now) }
    }

    /// Stops accepting; pending connections stay in the kernel until `resume()` or `close()`.
    package func pause() {
        loop.preconditionInLoop()
        isPaused = true
        if let event { event_del(event) }
    }

    package func resume() {
        loop.preconditionInLoop()
        isPaused = false
        resumesAt = nil
        if let event { event_add(event, nil) }
    }

    /// Closes the listening socket; the kernel resets the connections in its backlog.
    package func close() {
        loop.preconditionInLoop()
        guard let event else { return }
        event_free(event)
        self.event = nil
        endListening()
        dropArrivals()
        loop.remove(self)
    }

    /// Ends listening on all copies of the descriptor, which another thread's table or a child process being started may hold.
    private func endListening() {
        shutdown(descriptor, CInt(SHUT_RDWR))
        Glibc.close(descriptor)
    }

    override func loopStops() {
        guard let event else { return }
        event_free(event)
        self.event = nil
        endListening()
        dropArrivals()
    }

    private func dropArrivals() {
        for arrival in arrivals.values { arrival.drop() }
        arrivals = [:]
    }

    private func resumeIfRested(_ now: UInt64) {
        guard let time = resumesAt, now >= time else { return }
        resumesAt = nil
        if !isPaused, let event { event_add(event, nil) }
    }

    private func acceptWaiting() {
        var storage = sockaddr_storage()
        var one: CInt = 1
        var count = 0
        // Aborted connections count, too, so that a burst of resets cannot block the loop.
        while count < batchCount, !isPaused, event != nil {
            count += 1
            var size: UInt32 = 0
            let accepted = withUnsafeMutableBytes(of: &storage) {
                Sockets.accept(on: descriptor, address: $0, addressByteCount: &size)
            }
            switch accepted {
            case .connection(let connection):
                setsockopt(connection, CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
                acceptedCount += 1
                let peer = SocketAddress(&storage)
                if !balancers.isEmpty, let peer, balancers.contains(where: { $0.contains(peer) }) {
                    awaitHeader(connection, from: peer)
                } else {
                    letIn(.init(descriptor: connection), peer: peer)
                }
            case .aborted: continue
            case .none: return
            case .exhausted, .failed:
                // The event is level-triggered and would fire in every turn.
                exhaustedCount += 1
                resumesAt = loop.now + Limits.acceptPauseMilliseconds
                if let event { event_del(event) }
                return
            }
        }
    }

    private func letIn(_ content: DetachedConnection.Content, peer: SocketAddress?) {
        var content = content
        if let door, let peer {
            switch door.addresses.admit(peer, isHTTP: door.isHTTP, now: loop.now) {
            case .exempt: break
            case .counted(let network): content.counted = CountedAddress(addressGuard: door.addresses, network: network)
            case .refused(let refusal): return door.refused(DetachedConnection(content, peer: peer), refusal)
            }
        }
        connected(DetachedConnection(content, peer: peer))
    }

    // MARK: Balancers

    private func awaitHeader(_ connection: CInt, from balancer: SocketAddress) {
        guard arrivals.count < Limits.proxyHeaderCount,
            let arrival = BalancedArrival(
                connection, from: balancer, on: loop, done: { [unowned self] in arrived($0, $1) })
        else {
            if arrivals.count >= Limits.proxyHeaderCount { Glibc.close(connection) }
            return refuse(balancer, "too many connections wait for their PROXY header")
        }
        arrivals[ObjectIdentifier(arrival)] = arrival
    }

    private func arrived(_ arrival: BalancedArrival, _ outcome: BalancedArrival.Outcome) {
        arrivals[ObjectIdentifier(arrival)] = nil
        switch outcome {
        case .arrived(let descriptor, let client):
            letIn(.init(descriptor: descriptor, client: client), peer: client)
        case .probed: probeCount += 1
        case .left: refuse(arrival.balancer, "it left before its PROXY header was whole")
        case .late: refuse(arrival.balancer, "it sent no whole PROXY header in time")
        case .refused(let fault): refuse(arrival.balancer, "\(fault)")
        }
    }

    private func refuse(_ balancer: SocketAddress, _ reason: String) {
        refusedHeaderCount += 1
        refusedHeaderAt = loop.now
        lastRefusedHeader = "balancer \(balancer): \(reason)"
    }
}
