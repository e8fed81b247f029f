internal import Glibc
internal import TextForms

/// The CPU and memory of another process and of the kernel, from /proc.
struct ProcessMeter: Sendable {
    var processID: Int32

    /// - Throws: a usage failure when the process cannot be inspected.
    init(_ processID: Int32) throws(CommandFailure) {
        self.processID = processID
        guard cpu() != nil else {
            throw CommandFailure.usage("--server-pid \(processID): there is no such process to look at")
        }
    }

    /// Returns user and system time in nanoseconds, or `nil` if the process has ended.
    func cpu() -> Int64? {
        var clock = clockid_t()
        var time = timespec()
        // The process's CPU clock is exact if the kernel provides it. /proc counts in ticks of ten milliseconds.
        if clock_getcpuclockid(processID, &clock) == 0, clock_gettime(clock, &time) == 0 {
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
        guard let text = Self.text("/proc/\(processID)/stat") else { return nil }
        return Self.cpuTicks(stat: text).map { $0 * 1_000_000_000 / Int64(sysconf(CInt(_SC_CLK_TCK))) }
    }

    struct Memory: Sendable, Equatable {
        /// Bytes.
        var resident = 0
        var proportional = 0
    }

    func memory() -> Memory? {
        guard let text = Self.text("/proc/\(processID)/smaps_rollup"),
            let resident = Self.kilobytes(of: "Rss:", in: text), let proportional = Self.kilobytes(of: "Pss:", in: text)
        else { return nil }
        return Memory(resident: resident << 10, proportional: proportional << 10)
    }

    static func coreCount() -> Int { max(1, Int(sysconf(CInt(_SC_NPROCESSORS_ONLN)))) }

    struct Machine: Sendable, Equatable {
        /// Clock ticks since boot, of all processes and cores.
        var total: Int64 = 0
        var idle: Int64 = 0

        /// Returns the cores in use since an earlier sample, or `nil` for too short a time.
        func coresUsed(since earlier: Machine, of cores: Double) -> Double? {
            guard total - earlier.total > 10 else { return nil }
            return (1 - Double(idle - earlier.idle) / Double(total - earlier.total)) * cores
        }
    }

    static func machine() -> Machine {
        text("/proc/stat").flatMap(machine(stat:)) ?? Machine()
    }

    static func machine(stat text: String) -> Machine? {
        guard let line = text.split(separator: "\n").first, line.hasPrefix("cpu ") else { return nil }
        // user nice system idle iowait irq softirq steal. Guest time is included in user.
        let fields = line.split(separator: " ").dropFirst().prefix(8).compactMap { Int64($0) }
        guard fields.count >= 5 else { return nil }
        return Machine(total: fields.reduce(0, +), idle: fields[3] + fields[4])
    }

    struct Kernel: Sendable, Equatable {
        /// Bytes of all kernel slabs: sockets, files, poll entries.
        var slab = 0
        /// Bytes in the buffers of TCP sockets.
        var tcp = 0
    }

    static func kernel() -> Kernel {
        var result = Kernel()
        if let text = text("/proc/meminfo") { result.slab = (kilobytes(of: "Slab:", in: text) ?? 0) << 10 }
        if let text = text("/proc/net/sockstat"), let pages = tcpPages(sockstat: text) {
            result.tcp = pages * Int(sysconf(CInt(_SC_PAGESIZE)))
        }
        return result
    }

    static func cpuTicks(stat: String) -> Int64? {
        // The command's name is in parentheses and may contain blanks and parentheses.
        guard let end = stat.lastIndex(of: ")") else { return nil }
        let fields = stat[stat.index(after: end)...].split(separator: " ")
        guard fields.count > 12, let user = Int64(fields[11]), let system = Int64(fields[12]) else { return nil }
        return user + system
    }

    static func kilobytes(of name: String, in text: String) -> Int? {
        for line in text.split(separator: "\n") where line.hasPrefix(name) {
            return line.split(separator: " ").dropFirst().first.flatMap { Int($0) }
        }
        return nil
    }

    static func tcpPages(sockstat text: String) -> Int? {
        for line in text.split(separator: "\n") where line.hasPrefix("TCP:") {
            let words = line.split(separator: " ")
            guard let name = words.firstIndex(of: "mem"), name + 1 < words.count else { return nil }
            return Int(words[name + 1])
        }
        return nil
    }

    private static func text(_ path: String) -> String? {
        guard let bytes = (try? TextFile.read(path, limit: 1 << 20)) ?? nil else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }
}
