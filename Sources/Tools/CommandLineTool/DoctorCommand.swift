internal import Foundation
internal import TextForms
internal import Glibc

enum DoctorCommand {
    static let syntax = CommandSyntax(
        name: "doctor", summary: "Checks this machine and the gateway, and recommends changes with reasons.",
        options: [
            .value("store", "DIR", "The gateway's data folder, for the checks of its disk. Default: that of --data."),
            .value("certificate", "FILE", "A PEM certificate whose end is checked; may be given again."),
            .value("config", "FILE", "The gateway's configuration, checked by longwired --check beside this program."),
            .value("expect", "N", "Devices that the gateway is to hold. Default: 10000."),
        ] + Display.options + AdminClient.options,
        notes: [
            "Run it where the gateway runs, as its user. Each line begins with ok, advice, problem or skipped. Exit code 1 when "
                + "there is a problem."
        ]
    ) { arguments, context in
        let findings = try Examination(arguments, context).findings()
        let display = Display(arguments, context)
        if display.isJSON {
            let list = findings.map { finding -> JSONText in
                [
                    "what": finding.what, "verdict": finding.verdict.rawValue, "found": finding.found,
                    "advice": finding.advice,
                ]
            }
            context.write((["findings": list] as JSONText).text)
        } else {
            for finding in findings {
                let word = display.paint(HelpText.pad(finding.verdict.rawValue, 8), finding.verdict.colour)
                context.write("\(word) \(finding.what): \(finding.found)")
                if !finding.advice.isEmpty { context.write("         \(finding.advice)") }
            }
        }
        return findings.contains { $0.verdict == .problem } ? .refused : .done
    }

    /// Judges the duration of the gateway's commits since its start.
    ///
    /// Uses the 90th percentile, because a few slow commits during a start or an election do not indicate a slow disk.
    static func commits(_ metrics: MetricsText) -> [Finding] {
        let (end, count) = metrics.quantile(0.9, of: "longwire_store_group_commit_seconds")
        guard count > 0 else { return [] }
        let number = MetricsText.number(count)
        guard count >= 100 else {
            return [Finding(what: "commits", verdict: .ok, found: "\(number) since the start: too few to judge")]
        }
        let bound = end.isFinite ? String(format: "below %.1f ms", end * 1_000) : "longer than any bucket"
        return [
            Finding(
                "commits", isGood: end < 0.1, "nine of ten of \(number) took \(bound)",
                "Publishes wait for the disk, or for Redis and its replicas: find what is slow and use a faster one.")
        ]
    }

    struct Finding: Equatable {
        enum Verdict: String {
            case ok, advice, problem, skipped

            var colour: TerminalText.Sequence {
                switch self {
                case .ok: .good
                case .advice: .waiting
                case .problem: .bad
                case .skipped: .faint
                }
            }
        }
        var what: String
        var verdict: Verdict
        var found: String
        var advice = ""
    }
}

extension DoctorCommand.Finding {
    init(_ what: String, isGood: Bool, else fault: Verdict = .problem, _ found: String, _ advice: String) {
        self.init(what: what, verdict: isGood ? .ok : fault, found: found, advice: isGood ? "" : advice)
    }
}

private struct Examination {
    typealias Finding = DoctorCommand.Finding

    let arguments: ParsedArguments
    let context: CommandContext
    let credentials: Credentials
    let devices: Int64

    init(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) {
        (self.arguments, self.context) = (arguments, context)
        credentials = try Credentials(arguments, context)
        devices = try arguments.number("expect", in: 1...10_000_000) ?? 10_000
    }

    func findings() -> [Finding] {
        openFiles() + systemSettings() + gateway() + disk() + certificates() + configuration()
    }

    // MARK: The machine

    private func openFiles() -> [Finding] {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return [] }
        // A connection takes one descriptor; the store takes a few thousand.
        let wanted = UInt64(devices + 4_096)
        return [
            Finding(
                "open files", isGood: limit.rlim_max >= wanted,
                "up to \(limit.rlim_max) for this user, \(wanted) wanted for \(devices) devices",
                "Set LimitNOFILE=\(wanted) in the systemd unit: each connection is an open file.")
        ]
    }

    private func systemSettings() -> [Finding] {
        [
            setting(
                "net.core.somaxconn", least: 1_024, "the queue of new connections overflows when many devices reconnect"
            ),
            setting("net.ipv4.tcp_max_syn_backlog", least: 1_024, "a reconnect storm loses connection attempts"),
            setting("fs.file-max", least: devices + 8_192, "all processes together may open fewer files"),
            setting("fs.nr_open", least: devices + 8_192, "no process may have more open files"),
        ]
    }

    private func setting(_ name: String, least: Int64, _ why: String) -> Finding {
        let path = "/proc/sys/" + name.replacingOccurrences(of: ".", with: "/")
        let text = FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) } ?? ""
        // A value beyond Int64 means unlimited, so it is parsed as UInt64.
        guard let value = UInt64(text.trimmingCharacters(in: .whitespacesAndNewlines)) else {
            return Finding(what: name, verdict: .skipped, found: "not readable here")
        }
        return Finding(
            name, isGood: value >= UInt64(least), else: .advice, "\(value)", "sysctl -w \(name)=\(least): else \(why).")
    }

    // MARK: The gateway

    private func gateway() -> [Finding] {
        let address = (try? credentials.adminBase().absoluteString) ?? "the admin listener"
        do {
            let base = try credentials.adminBase()
            let ready = try GatewayHTTP(base: base, timeoutSeconds: 5, trust: credentials.trust)
                .send(.get, "/readyz")
            let isReady = ready.status == 200
            var found = [
                Finding(
                    "gateway", isGood: isReady, "\(address) \(isReady ? "is ready" : "is not ready")",
                    "It says: \(TerminalText.plain(String(ready.text.prefix(300))))")
            ]
            guard let client = try? AdminClient(credentials, timeoutSeconds: 5) else {
                return found + [
                    Finding(
                        what: "gateway's figures", verdict: .skipped, found: "no admin token",
                        advice: "Give --admin-token or --data to have them checked.")
                ]
            }
            let metrics = MetricsText(try client.send(.get, "/metrics").text)
            found += try health(client) + clock(metrics) + figures(metrics)
            if let cluster = try client.find("/v1/cluster") { found += members(Fields(cluster.object)) }
            return found
        } catch {
            return [
                Finding(
                    what: "gateway", verdict: .problem,
                    found: error.message.split(separator: "\n").first.map(String.init) ?? "",
                    advice: error.message.split(separator: "\n").dropFirst().joined(separator: " "))
            ]
        }
    }

    /// Returns the gateway's own findings.
    private func health(_ client: AdminClient) throws(CommandFailure) -> [Finding] {
        guard let answer = try client.find("/v1/health") else { return [] }
        let list = Fields(answer.object).list("findings")
        guard !list.isEmpty else {
            return [Finding(what: "gateway's health", verdict: .ok, found: "no problems detected")]
        }
        return list.map { finding in
            Finding(
                what: [finding.text("name"), finding.text("subject")].compactMap(\.self).joined(separator: " "),
                verdict: finding.text("severity") == "problem" ? .problem : .advice,
                found: finding.text("text") ?? "", advice: finding.text("advice") ?? "")
        }
    }

    /// Shows the clock offset without a verdict, because the gateway's own findings include the clock.
    private func clock(_ metrics: MetricsText) -> [Finding] {
        let offset = metrics.sum("longwire_clock_offset_seconds")
        return [
            Finding(
                what: "clock", verdict: .ok,
                found: String(format: "the gateway's time is %.3f s off the wall clock", offset))
        ]
    }

    private func figures(_ metrics: MetricsText) -> [Finding] {
        var found: [Finding] = []
        func hold(_ what: String, _ isGood: Bool, _ text: String, _ advice: String) {
            found.append(Finding(what, isGood: isGood, text, advice))
        }
        found += DoctorCommand.commits(metrics)
        let limits = metrics.samples.filter {
            $0.name == "longwire_connection_limit" && $0.labels["listener"] == "device"
        }
        if let limit = limits.map(\.value).min() {
            hold(
                "connection limit", limit >= Double(devices), MetricsText.number(limit) + " devices",
                "\(devices) devices are expected: raise limits.connections and LimitNOFILE.")
        }
        return found
    }

    private func members(_ cluster: Fields) -> [Finding] {
        let open = cluster.list("parts").count { $0.text("state") == "open" }
        let all = cluster.list("parts").count
        let error = cluster.text("registerError")
        return [
            Finding(
                what: "cluster \(cluster.text("name") ?? "")", verdict: error == nil ? .ok : .problem,
                found: "\(cluster.list("nodes").count) gateways, \(open) of \(all) parts served",
                advice: error.map { "The register in Redis: \($0)" } ?? "")
        ]
    }

    // MARK: The disk

    private func disk() -> [Finding] {
        guard let folder = arguments.text("store") ?? arguments.text("data") else {
            return [
                Finding(
                    what: "disk", verdict: .skipped, found: "no folder given", advice: "Give --store DIR to measure it."
                )
            ]
        }
        var free = statvfs()
        guard statvfs(folder, &free) == 0 else {
            return [Finding(what: "disk", verdict: .problem, found: "\(folder): \(String(cString: strerror(errno)))")]
        }
        let bytes = UInt64(free.f_bavail) * UInt64(free.f_frsize)
        return [
            Finding(
                "free disk", isGood: bytes >= 4 << 30, else: .advice, "\(bytes >> 20) MiB at \(folder)",
                "The journal takes 512 MiB, traces up to their budget, and queues what devices leave.")
        ] + syncSpeed(folder)
    }

    /// Writes and syncs small blocks, as group commits do.
    private func syncSpeed(_ folder: String) -> [Finding] {
        let path = folder + "/.longwire-doctor-\(getpid())"
        let file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard file >= 0 else {
            let reason = String(cString: strerror(errno))
            return [Finding(what: "disk sync", verdict: .skipped, found: "\(folder) cannot be written: \(reason)")]
        }
        defer {
            close(file)
            unlink(path)
        }
        let block = [UInt8](repeating: 7, count: 4_096)
        var times: [UInt64] = []
        for number in 0..<64 {
            let start = DispatchTime.now().uptimeNanoseconds
            guard pwrite(file, block, block.count, number * block.count) == block.count, fdatasync(file) == 0 else {
                return [Finding(what: "disk sync", verdict: .problem, found: String(cString: strerror(errno)))]
            }
            times.append(DispatchTime.now().uptimeNanoseconds &- start)
        }
        let median = Double(times.sorted()[times.count / 2]) / 1e6
        return [
            Finding(
                "disk sync", isGood: median < 10, else: .advice, String(format: "%.2f ms (median of 64)", median),
                "Each publish waits for one sync: an SSD with a write cache that survives a power cut takes below 1 ms."
            )
        ]
    }

    // MARK: Files

    private func certificates() -> [Finding] {
        arguments.all("certificate").map { path in
            let done = Program.run("openssl", ["x509", "-in", path, "-noout", "-enddate", "-checkend", "2592000"])
            guard let done else { return Finding(what: path, verdict: .skipped, found: "there is no openssl program") }
            let end = done.output.split(separator: "\n").first { $0.hasPrefix("notAfter=") }
            guard let end else {
                return Finding(what: path, verdict: .problem, found: "no PEM certificate that can be read")
            }
            return Finding(
                path, isGood: done.code == 0, "ends \(end.dropFirst(9))",
                "It ends within 30 days: renew it, then send SIGHUP to longwired.")
        }
    }

    private func configuration() -> [Finding] {
        guard let path = arguments.text("config") else { return [] }
        let beside = (CommandLine.arguments[0] as NSString).deletingLastPathComponent
        let program = beside.isEmpty ? "longwired" : beside + "/longwired"
        guard let done = Program.run(program, ["--check", "--config", path]) else {
            return [Finding(what: "configuration", verdict: .skipped, found: "there is no \(program)")]
        }
        let text = done.output.trimmingCharacters(in: .whitespacesAndNewlines)
        return [
            Finding(
                what: "configuration", verdict: done.code == 0 ? .ok : .problem,
                found: done.code == 0 ? "\(path) is valid" : text)
        ]
    }
}

private enum Program {
    /// Runs a program to its end; returns `nil` when it cannot be started.
    static func run(_ name: String, _ arguments: [String]) -> (code: Int32, output: String)? {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = [name] + arguments
        let pipe = Pipe()
        (process.standardOutput, process.standardError) = (pipe, pipe)
        process.standardInput = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return nil }
        let output = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        // env exits with 127 when the program does not exist.
        guard process.terminationStatus != 127 else { return nil }
        return (process.terminationStatus, String(decoding: output, as: UTF8.self))
    }
}
