internal import CLibevent
internal import Glibc
internal import Platform

/// A load balancer's connection until its PROXY header is complete; bytes after the header are not read.
final class BalancedArrival {
    enum Outcome {
        /// The connection with the client's address, or with the balancer's own if the header has none.
        case arrived(CInt, SocketAddress)
        /// The balancer closed the connection without sending a byte, as health checks do.
        case probed
        /// The balancer closed the connection during its header.
        case left
        case late
        case refused(ProxyHeader.Fault)
    }

    let balancer: SocketAddress
    private let descriptor: CInt
    private let done: (BalancedArrival, Outcome) -> Void
    private var event: UnsafeMutablePointer<event>?
    private var awaitedByteCount = 0
    private var hasBegun = false

    /// Takes a non-blocking socket; `done` is called once on the loop, unless `drop` is called before.
    init?(
        _ descriptor: CInt, from balancer: SocketAddress, on loop: EventLoop,
        done: @escaping (BalancedArrival, Outcome) -> Void
    ) {
        (self.descriptor, self.balancer, self.done) = (descriptor, balancer, done)
        event = event_new(
            loop.base, descriptor, Int16(EV_READ | EV_PERSIST),
            { _, what, context in
                guard let context else { preconditionFailure("libevent lost the context pointer") }
                Unmanaged<BalancedArrival>.fromOpaque(context).takeUnretainedValue().ready(what)
            }, Unmanaged.passUnretained(self).toOpaque())
        // The protocol requires the header in one piece. If it arrives in parts, the timeout applies to each part.
        var time = timeval(
            tv_sec: Limits.proxyHeaderMilliseconds / 1_000, tv_usec: Limits.proxyHeaderMilliseconds % 1_000 * 1_000)
        guard let event, event_add(event, &time) == 0 else {
            if let event { event_free(event) }
            Glibc.close(descriptor)
            return nil
        }
        wake(atBytes: ProxyHeader.leastByteCount)
    }

    /// Closes the connection without calling `done`.
    func drop() {
        guard forget() else { return }
        Glibc.close(descriptor)
    }

    private func forget() -> Bool {
        guard let event else { return false }
        event_free(event)
        self.event = nil
        return true
    }

    /// Sets SO_RCVLOWAT, so that a partial header does not wake the loop.
    private func wake(atBytes byteCount: Int) {
        awaitedByteCount = byteCount
        var count = CInt(byteCount)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &count, socklen_t(MemoryLayout<CInt>.size))
    }

    private func ready(_ what: Int16) {
        guard what & Int16(EV_READ) != 0 else { return end(.late) }
        withUnsafeTemporaryAllocation(byteCount: Limits.proxyHeaderByteCount, alignment: 1) { room in
            let count = recv(descriptor, room.baseAddress, room.count, CInt(MSG_PEEK | MSG_DONTWAIT))
            guard count > 0 else {
                if count < 0, errno == EAGAIN || errno == EINTR { return }
                return end(hasBegun ? .left : .probed)
            }
            hasBegun = true
            switch ProxyHeader(UnsafeRawBufferPointer(rebasing: room[..<count])) {
            case .incomplete(let byteCount):
                // The loop was woken with fewer bytes than requested, so no more will arrive.
                guard byteCount > awaitedByteCount else { return end(.left) }
                wake(atBytes: byteCount)
            case .complete(let byteCount, let client):
                guard recv(descriptor, room.baseAddress, byteCount, CInt(MSG_DONTWAIT)) == byteCount else {
                    return end(.left)
                }
                wake(atBytes: 1)
                end(.arrived(descriptor, client ?? balancer))
            case .refused(let fault): end(.refused(fault))
            }
        }
    }

    private func end(_ outcome: Outcome) {
        guard forget() else { return }
        if case .arrived = outcome {} else { Glibc.close(descriptor) }
        done(self, outcome)
    }
}
