internal import EventLoops

/// A handle for sending work to a host from any thread; sound to send because only the host's own thread accesses it.
final class HostHandle: @unchecked Sendable {
    private let host: EventLoopHost
    private let loop: EventLoop

    init(_ host: EventLoopHost) { (self.host, loop) = (host, host.loop) }

    /// Passes a connection to a loop with its own descriptor table; returns false if the loop's queue is full.
    func pass(_ adopted: AdoptedConnection) -> Bool {
        loop.pass(adopted.connection, with: AdoptedConnection.Cargo(isSecure: adopted.isSecure, hello: adopted.hello))
    }

    func submit(_ work: @escaping @Sendable (EventLoopHost) -> Void) {
        loop.submit { work(self.host) }
    }
}
