#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// A queue of the app's calls for the client's thread, and the pipe that wakes the thread.
final class ClientMailbox: Sendable {
    /// The queued calls, or `nil` once the mailbox is closed.
    private let commands = Guarded<[ClientCommand]?>([])
    let readDescriptor: CInt
    private let writeDescriptor: CInt

    init() throws(LongwireClientError) {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else {
            throw LongwireClientError(code: .systemResource, message: "no pipe: \(System.describe(errno))")
        }
        (readDescriptor, writeDescriptor) = (ends[0], ends[1])
        System.makeNonBlocking(readDescriptor)
        System.makeNonBlocking(writeDescriptor)
    }

    deinit {
        close(readDescriptor)
        close(writeDescriptor)
    }

    /// Returns false when the mailbox is closed or holds `Limits.commandCount` calls, most likely because a handler does not
    /// return.
    func post(_ command: ClientCommand) -> Bool {
        let isTaken = commands.withValue { list in
            guard let count = list?.count, count < Limits.commandCount || command.alwaysFindsRoom else { return false }
            list?.append(command)
            return true
        }
        if isTaken { wake() }
        return isTaken
    }

    /// Wakes the client's thread; callable from any thread.
    func wake() {
        var byte: UInt8 = 1
        // If the pipe is full, the thread wakes anyway.
        _ = write(writeDescriptor, &byte, 1)
    }

    func take() -> [ClientCommand] {
        var bytes = [UInt8](repeating: 0, count: 256)
        while read(readDescriptor, &bytes, bytes.count) == bytes.count {}
        return commands.withValue { list in
            defer { if list != nil { list = [] } }
            return list ?? []
        }
    }

    /// Closes the mailbox and returns the calls that the client's thread did not take.
    func shut() -> [ClientCommand] {
        commands.withValue { list in
            defer { list = nil }
            return list ?? []
        }
    }
}

extension ClientCommand {
    /// Whether the call outlives a session, in the state store (`ClientState.keep`).
    var isKept: Bool {
        switch self {
        case .opened, .tapped, .tapsTaken, .report, .finish, .send, .token: true
        default: false
        }
    }

    /// Whether the call is exempt from the limit; at most one stop and one verdict are queued.
    fileprivate var alwaysFindsRoom: Bool {
        switch self {
        case .stop, .finish: true
        default: false
        }
    }
}
