#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// The app's calls on their way to the client's thread, and the pipe that wakes it.
final class ClientMailbox: Sendable {
    /// `nil`: closed.
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

    /// False when it is closed, or too many calls wait already: a handler that does not return, most likely.
    func post(_ command: ClientCommand) -> Bool {
        let isTaken = commands.withValue { list in
            guard let count = list?.count, count < Limits.commandCount || command.alwaysFindsRoom else { return false }
            list?.append(command)
            return true
        }
        if isTaken { wake() }
        return isTaken
    }

    /// Makes the client's thread look around, from any thread.
    func wake() {
        var byte: UInt8 = 1
        // A full pipe wakes as well as one more byte would.
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

    /// Takes no more calls; those that came too late for the client's thread.
    func shut() -> [ClientCommand] {
        commands.withValue { list in
            defer { list = nil }
            return list ?? []
        }
    }
}

extension ClientCommand {
    /// Outlives a session, in the state store (`ClientState.keep`).
    var isKept: Bool {
        switch self {
        case .opened, .report, .finish, .send: true
        default: false
        }
    }

    /// A stop, and a verdict: of these no more than one waits.
    fileprivate var alwaysFindsRoom: Bool {
        switch self {
        case .stop, .finish: true
        default: false
        }
    }
}
