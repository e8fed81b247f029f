internal import Glibc

/// The terminal that started the program; when the terminal closes, the program should stop and release its ports.
package struct StartingTerminal: Sendable {
    private let isThere: Bool
    private let ignoresHangUp: Bool

    /// Detects the controlling terminal; must be called once, before a SIGHUP handler is installed.
    package init() {
        // nohup(1) ignores SIGHUP so that the program outlives its terminal.
        let before = signal(SIGHUP, SIG_DFL)
        ignoresHangUp = unsafeBitCast(before, to: Int.self) == 1
        isThere = Self.isOpen
    }

    /// Whether a SIGHUP now means that the terminal closed, which requests a stop; otherwise it requests a reload.
    package var hasClosed: Bool { isThere && !ignoresHangUp && !Self.isOpen }

    private static var isOpen: Bool {
        let descriptor = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }
}

extension StandardDescriptors {
    /// Whether standard output and error are both pipes or sockets without a reader, as after the end of an SSH session.
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
