internal import Glibc
internal import TextForms

/// The conditions of a run, needed to compare its report with others.
struct RunHeader: Equatable, Sendable {
    /// The start of the run, in milliseconds since 1970.
    var startedAt: Int64
    var host: Host
    var version: String
    /// The gateway's version, or `nil` if unknown.
    var gatewayVersion: String?
    /// The arguments of `longwire`, without secrets.
    var command: [String]
    /// The listeners that the run used TLS with.
    var secureListeners: [String] = []

    struct Host: Equatable, Sendable {
        var name = ""
        var processor = ""
        var cores = 0
        var memoryByteCount: Int64 = 0
        var kernel = ""
    }

    var lines: [(name: String, value: String)] {
        let memory = Metric.rounded(Double(host.memoryByteCount) / Double(1 << 30), 1) + " GiB"
        return [
            ("date", CivilTime(millisecondsSince1970: startedAt).timestamp),
            (
                "host",
                "\(host.name): \(host.processor), \(host.cores) \(host.cores == 1 ? "core" : "cores"), \(memory), \(host.kernel)"
            ),
            ("versions", "longwire \(version), gateway \(gatewayVersion ?? "unknown (give --admin-token)")"),
            ("command", commandLine),
        ] + (secureListeners.isEmpty ? [] : [("TLS", secureListeners.joined(separator: ", "))])
    }

    var commandLine: String {
        (["longwire"] + command).map { word in
            let isPlain =
                !word.isEmpty
                && word.utf8.allSatisfy { 0x21...0x7E ~= $0 && !"'\"\\$`&|;<>()*?[]#~!{}".utf8.contains($0) }
            return isPlain
                ? word
                : "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
        }.joined(separator: " ")
    }

    var json: String {
        let host =
            "{\"name\":\(JSONString.quoted(host.name)),\"processor\":\(JSONString.quoted(host.processor)),"
            + "\"cores\":\(host.cores),\"memoryBytes\":\(host.memoryByteCount),\"kernel\":\(JSONString.quoted(host.kernel))}"
        let date = CivilTime(millisecondsSince1970: startedAt).timestamp
        return "{\"date\":\"\(date)\",\"host\":\(host),\"version\":\(JSONString.quoted(version)),"
            + "\"gatewayVersion\":\(gatewayVersion.map { JSONString.quoted($0) } ?? "null"),"
            + "\"tls\":[\(secureListeners.map { JSONString.quoted($0) }.joined(separator: ","))],"
            + "\"command\":\(JSONString.quoted(commandLine))}"
    }

    static func hidingSecrets(_ arguments: [String]) -> [String] {
        let secret: Set<String> = ["--app-secret", "--master-secret", "--admin-token"]
        var hidden: [String] = []
        for word in arguments {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if let last = hidden.last, secret.contains(last) {
                hidden.append("…")
            } else if parts.count == 2, secret.contains(String(parts[0])) {
                hidden.append("\(parts[0])=…")
            } else {
                hidden.append(word)
            }
        }
        return hidden
    }
}

extension RunHeader.Host {
    static func present() -> Self {
        var system = utsname()
        uname(&system)
        var host = Self()
        host.name = text(&system.nodename)
        host.kernel = "\(text(&system.sysname)) \(text(&system.release)) \(text(&system.machine))"
        host.cores = ProcessMeter.coreCount()
        host.memoryByteCount = Int64(sysconf(CInt(_SC_PHYS_PAGES))) * Int64(sysconf(CInt(_SC_PAGESIZE)))
        let found = (try? TextFile.read("/proc/cpuinfo", limit: 1 << 20)) ?? nil
        host.processor = processor(cpuinfo: String(decoding: found ?? [], as: UTF8.self)) ?? text(&system.machine)
        return host
    }

    /// Returns the name of the first processor in `/proc/cpuinfo`, or `nil` if it has none, as on some ARM machines.
    static func processor(cpuinfo: String) -> String? {
        for line in cpuinfo.split(separator: "\n") where line.hasPrefix("model name") || line.hasPrefix("Model") {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let words = line[line.index(after: colon)...].split(separator: " ")
            if !words.isEmpty { return words.joined(separator: " ") }
        }
        return nil
    }

    private static func text(_ field: inout some Any) -> String {
        withUnsafeBytes(of: &field) { bytes in String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) }
    }
}

/// The gateway's version, a label of its metrics; the admin listener returns the metrics to callers with a token.
enum GatewayVersion {
    static func find(_ credentials: Credentials) -> String? {
        guard !credentials.adminToken.isEmpty else { return nil }
        let request =
            "GET /metrics HTTP/1.1\r\nHost: \(credentials.admin.text)\r\nAuthorization: Bearer \(credentials.adminToken)\r\n\r\n"
        let answer = try? HTTPToken.exchange(credentials.admin, credentials.tls, Array(request.utf8), timeoutSeconds)
        return answer.flatMap { version(metrics: String(decoding: $0, as: UTF8.self)) }
    }

    /// A short timeout, because the report can do without the version.
    private static let timeoutSeconds = 5.0

    static func version(metrics: String) -> String? {
        let mark = "longwire_build_info{version=\""
        guard let line = metrics.split(separator: "\n").first(where: { $0.hasPrefix(mark) }) else { return nil }
        let rest = line.dropFirst(mark.count).prefix { $0 != "\"" }
        return rest.isEmpty || rest.count > 64 ? nil : String(rest)
    }
}
