internal import Glibc

/// The terminal that a program was started from: when it closes, the program should not stay behind on its ports.
package struct StartingTerminal: Sendable {
    private let isThere: Bool
    private let ignoresHangUp: Bool

    /// Looks at the process's controlling terminal; to be called once, before SIGHUP is given a meaning.
    package init() {
        // nohup(1) starts a program so; it wants to outlive its terminal.
        let before = signal(SIGHUP, SIG_DFL)
        ignoresHangUp = unsafeBitCast(before, to: Int.self) == 1
        isThere = Self.isOpen
    }

    /// A SIGHUP now means that the terminal closed, and asks for a stop; else it asks for a reload.
    package var hasClosed: Bool { isThere && !ignoresHangUp && !Self.isOpen }

    private static var isOpen: Bool {
        let descriptor = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }
}

extension StandardDescriptors {
    /// Standard output and standard error are both pipes or sockets whose reader has left.
    ///
    /// Nobody sees the program any more: an SSH session without a terminal ended, for one.
    package static var haveLostReaders: Bool { [1, 2].allSatisfy { hasLostReader($0) } }

    private static func hasLostReader(_ descriptor: CInt) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0, [S_IFIFO, S_IFSOCK].contains(status.st_mode & S_IFMT) else {
            return false
        }
        var look = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&look, 1, 0) > 0 && CInt(look.revents) & (POLLERR | POLLHUP) != 0
    }
}
