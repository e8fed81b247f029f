internal import EventLoops

/// Another thread's handle on a loop: work can be sent to it, nothing can be touched from here.
///
/// Sound to send because the only use of the loop's object is inside what runs on its own thread.
final class GatewayMember: @unchecked Sendable {
    private let member: GatewayLoop
    private let loop: EventLoop

    init(_ member: GatewayLoop) { (self.member, self.loop) = (member, member.loop) }

    /// Sends a connection along, to a loop with a descriptor table of its own; `false` when that is too far behind.
    func pass(_ adopted: AdoptedConnection) -> Bool {
        loop.pass(adopted.connection, with: AdoptedConnection.Cargo(isSecure: adopted.isSecure, hello: adopted.hello))
    }

    func submit(_ work: @escaping @Sendable (GatewayLoop) -> Void) {
        loop.submit { work(self.member) }
    }
}
