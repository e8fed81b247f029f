#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

/// The app's calls on their way to the client's thread, and the pipe that wakes it.
final class ClientMailbox: Sendable {
    private let commands = Guarded<[ClientCommand]>([])
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

    /// False when too many calls wait already: a handler that does not return, most likely.
    func post(_ command: ClientCommand) -> Bool {
        let isTaken = commands.withValue { list in
            // A stop always finds room.
            guard list.count < Limits.commandCount || command == .stop else { return false }
            list.append(command)
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
            defer { list = [] }
            return list
        }
    }
}
