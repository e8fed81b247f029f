internal import Glibc
internal import Platform

/// The search for the gateway's process on this machine, so that its process id need not be given.
enum ServerFinder {
    /// Finds the process in the data folder's lock file, or as the listener on the devices' port.
    ///
    /// Returns `nil` if the gateway runs elsewhere, is this process, or belongs to a user whose processes cannot be inspected.
    static func find(dataFolder: String, _ endpoint: Endpoint) -> ProcessMeter? {
        guard endpoint.isLoopback else { return nil }
        let listener = self.listener(port: endpoint.port)
        // The folder may belong to another gateway, so its process must also own the listener, if the listener's process is
        // visible.
        for candidate in [holder(of: dataFolder + "/lock"), listener] {
            guard let process = candidate, process != getpid() else { continue }
            if let listener, listener != process { continue }
            if let meter = try? ProcessMeter(process) { return meter }
        }
        return nil
    }

    static func holder(of path: String) -> pid_t? {
        guard let bytes = (try? TextFile.read(path, limit: 4_096)) ?? nil else { return nil }
        let digits = bytes.prefix { $0 >= 48 && $0 <= 57 }
        guard let number = pid_t(String(decoding: digits, as: UTF8.self)), number > 0 else { return nil }
        return number
    }

    static func listener(port: UInt16) -> pid_t? {
        // The kernel returns the table in pieces while it changes and may omit a line, so a failed search is repeated.
        for _ in 0..<4 {
            if let process = listenerAtOnce(port) { return process }
        }
        return nil
    }

    private static func listenerAtOnce(_ port: UInt16) -> pid_t? {
        // The listeners come first, before possibly millions of connections, so reading stops at the first connection.
        let isEnough = { (lines: ArraySlice<UInt8>) in
            lines.split(separator: UInt8(ascii: "\n")).contains(where: isConnection)
        }
        guard let table = (try? TextFile.read("/proc/net/tcp", limit: 16 << 20, until: isEnough)) ?? nil else {
            return nil
        }
        let wanted = Set(inodes(listeningOn: port, in: table).map { "socket:[\($0)]" })
        guard !wanted.isEmpty else { return nil }
        for process in numbers(in: "/proc") {
            // A loop may have a private descriptor table, so the tables of all threads are searched.
            if holds(wanted, "/proc/\(process)/fd") { return process }
            for thread in numbers(in: "/proc/\(process)/task") where thread != process {
                if holds(wanted, "/proc/\(process)/task/\(thread)/fd") { return process }
            }
        }
        return nil
    }

    /// Returns the inodes of the sockets in state LISTEN on `port`, from /proc/net/tcp.
    static func inodes(listeningOn port: UInt16, in table: [UInt8]) -> [String] {
        var found: [String] = []
        for line in table.split(separator: UInt8(ascii: "\n")).dropFirst() {
            let fields = line.split(separator: UInt8(ascii: " "))
            guard fields.count > 9, fields[3].elementsEqual("0A".utf8) else { continue }
            let address = fields[1].split(separator: UInt8(ascii: ":"))
            guard address.count == 2, UInt16(String(decoding: address[1], as: UTF8.self), radix: 16) == port else {
                continue
            }
            found.append(String(decoding: fields[9], as: UTF8.self))
        }
        return found
    }

    /// Returns whether a line of /proc/net/tcp describes a socket other than a listener.
    ///
    /// The heading is excluded by its state field, “st”.
    private static func isConnection(_ line: ArraySlice<UInt8>) -> Bool {
        let fields = line.split(separator: UInt8(ascii: " "))
        return fields.count > 9 && fields[3].first == UInt8(ascii: "0") && !fields[3].elementsEqual("0A".utf8)
    }

    private static func holds(_ wanted: Set<String>, _ folder: String) -> Bool {
        var buffer = [CChar](repeating: 0, count: 64)
        for number in numbers(in: folder) {
            let count = readlink("\(folder)/\(number)", &buffer, buffer.count)
            guard count > 0 else { continue }
            if wanted.contains(String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)) {
                return true
            }
        }
        return false
    }

    private static func numbers(in folder: String) -> [pid_t] {
        ((try? FileSystem.list(folder)) ?? []).compactMap { pid_t($0) }
    }
}
