internal import EventLoops

/// Another thread's handle on a host: work can be sent to it, nothing can be touched from here.
///
/// Sound to send because the only use of the host is inside what runs on its own thread.
final class HostHandle: @unchecked Sendable {
    private let host: EventLoopHost
    private let loop: EventLoop

    init(_ host: EventLoopHost) { (self.host, loop) = (host, host.loop) }

    /// Passes a connection to a loop with a descriptor table of its own; `false` when its queue is full.
    func pass(_ adopted: AdoptedConnection) -> Bool {
        loop.pass(adopted.connection, with: AdoptedConnection.Cargo(isSecure: adopted.isSecure, hello: adopted.hello))
    }

    func submit(_ work: @escaping @Sendable (EventLoopHost) -> Void) {
        loop.submit { work(self.host) }
    }
}
