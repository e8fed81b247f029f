internal import Glibc
internal import Platform

/// Finds the gateway's process when it runs on this machine, so that nobody has to name it.
enum ServerFinder {
    /// Looks at the data folder's lock file, then for the process that listens on the devices' port.
    ///
    /// `nil` when it is elsewhere, is this very process, or belongs to a user whose processes are not ours to look at.
    static func find(dataFolder: String, _ endpoint: Endpoint) -> ProcessMeter? {
        guard endpoint.isLoopback else { return nil }
        let listener = self.listener(port: endpoint.port)
        // The folder may be that of another gateway than the one at this address: its process must have the listener too,
        // unless nobody's descriptors may be looked at.
        for candidate in [holder(of: dataFolder + "/lock"), listener] {
            guard let process = candidate, process != getpid() else { continue }
            if let listener, listener != process { continue }
            if let meter = try? ProcessMeter(process) { return meter }
        }
        return nil
    }

    /// The process that a lock file names.
    static func holder(of path: String) -> pid_t? {
        guard let bytes = (try? TextFile.read(path, limit: 4_096)) ?? nil else { return nil }
        let digits = bytes.prefix { $0 >= 48 && $0 <= 57 }
        guard let number = pid_t(String(decoding: digits, as: UTF8.self)), number > 0 else { return nil }
        return number
    }

    /// The process that listens on a port of this machine.
    static func listener(port: UInt16) -> pid_t? {
        // The kernel hands the table out in pieces while it changes, and may pass over a line: nothing found is looked
        // for again.
        for _ in 0..<4 {
            if let process = listenerAtOnce(port) { return process }
        }
        return nil
    }

    private static func listenerAtOnce(_ port: UInt16) -> pid_t? {
        // The listeners come first, before what may be millions of connections.
        let isEnough = { (lines: ArraySlice<UInt8>) in
            lines.split(separator: UInt8(ascii: "\n")).contains(where: isConnection)
        }
        guard let table = (try? TextFile.read("/proc/net/tcp", limit: 16 << 20, until: isEnough)) ?? nil else {
            return nil
        }
        let wanted = Set(inodes(listeningOn: port, in: table).map { "socket:[\($0)]" })
        guard !wanted.isEmpty else { return nil }
        for process in numbers(in: "/proc") {
            // A loop may keep its descriptors to itself, so each thread's table is looked at when the first has none.
            if holds(wanted, "/proc/\(process)/fd") { return process }
            for thread in numbers(in: "/proc/\(process)/task") where thread != process {
                if holds(wanted, "/proc/\(process)/task/\(thread)/fd") { return process }
            }
        }
        return nil
    }

    /// The sockets in state LISTEN on `port`, by their inodes, as /proc/net/tcp lists them.
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

    /// A whole line of /proc/net/tcp about anything but a listener; the headline, whose state is “st”, is none.
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
