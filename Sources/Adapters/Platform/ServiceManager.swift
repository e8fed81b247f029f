internal import Glibc

/// The service manager that started this process, if it requests reports (systemd's notification protocol, sd_notify(3)).
///
/// Each message is a datagram to the socket named in NOTIFY_SOCKET. Nothing is sent without this variable, and sending never
/// blocks.
package struct ServiceManager: Sendable {
    /// The maximum length of a socket path in the kernel.
    private static let pathByteCount = 107

    /// The socket's path; a leading 0 marks an abstract name.
    private let path: [UInt8]
    /// The manager's watchdog timeout: it ends the process unless `tellAlive` is called within this time.
    package let watchdogMicroseconds: UInt64?

    package init() {
        self.init(
            socket: Self.variable("NOTIFY_SOCKET"), watchdog: Self.variable("WATCHDOG_USEC"),
            watched: Self.variable("WATCHDOG_PID"))
    }

    /// Creates a manager from the values of NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    package init(socket: String?, watchdog: String? = nil, watched: String? = nil) {
        var path = Array((socket ?? "").utf8)
        let isAbstract = path.first == UInt8(ascii: "@")
        if path.count > Self.pathByteCount || !isAbstract && path.first != UInt8(ascii: "/") { path = [] }
        if isAbstract, !path.isEmpty { path[0] = 0 }
        self.path = path
        // The variables are inherited and may be addressed to a parent process.
        let isMeant = watched.map { $0 == "\(getpid())" } ?? true
        watchdogMicroseconds =
            path.isEmpty || !isMeant ? nil : watchdog.flatMap { UInt64($0) }.flatMap { $0 > 0 ? $0 : nil }
    }

    private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

    /// Returns whether a descriptor writes to systemd's journal, by the device and inode in `JOURNAL_STREAM` (systemd.exec(5)).
    package static func isJournal(_ descriptor: CInt) -> Bool {
        guard let stream = variable("JOURNAL_STREAM") else { return false }
        var status = stat()
        return fstat(descriptor, &status) == 0 && stream == "\(status.st_dev):\(status.st_ino)"
    }

    /// Reports that the process is ready.
    package func tellReady(_ status: String) { tell("READY=1\nSTATUS=\(status)") }

    /// Reports that the start waits for something, and extends the manager's start timeout.
    package func tellWaiting(_ status: String, atMostMilliseconds milliseconds: UInt64) {
        // A status is one line.
        let line = status.split(whereSeparator: \.isNewline).joined(separator: "; ")
        tell("STATUS=\(line)\nEXTEND_TIMEOUT_USEC=\(milliseconds * 1_000)")
    }

    /// Reports that the process reloads its configuration, until `tellReady` is called.
    package func tellReloading() {
        tell("RELOADING=1\nMONOTONIC_USEC=\(SystemClock.monotonicNanoseconds / 1_000)")
    }

    package func tellStopping(withinMilliseconds milliseconds: UInt64) {
        let microseconds = milliseconds * 1_000
        let watchdog = watchdogMicroseconds.map { "\nWATCHDOG_USEC=\(max($0, microseconds))" } ?? ""
        tell("STOPPING=1\nSTATUS=Stopping\nEXTEND_TIMEOUT_USEC=\(microseconds)\(watchdog)")
    }

    package func tellAlive() { if watchdogMicroseconds != nil { tell("WATCHDOG=1") } }

    private func tell(_ text: String) {
        guard !path.isEmpty else { return }
        let descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let length = socklen_t(MemoryLayout.offset(of: \sockaddr_un.sun_path)! + path.count)
        let bytes = Array(text.utf8)
        withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                _ = sendto(
                    descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL) | CInt(MSG_DONTWAIT), address,
                    length)
            }
        }
    }
}
