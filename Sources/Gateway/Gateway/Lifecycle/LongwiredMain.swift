internal import Configuration
internal import Cryptography
internal import EventLoops
internal import Glibc
internal import MessageStore
internal import Platform
internal import TextForms

package enum LongwiredMain {
    /// Runs until a signal stops the gateway.
    ///
    /// - Parameter arguments: The arguments without the program's name.
    /// - Returns: The exit code (docs/use/Errors.md, "Exit codes of `longwired`").
    package static func run(_ arguments: [String]) -> Int32 {
        StandardDescriptors.fill()
        let terminal = StartingTerminal()
        // A peer that closes early must cause a write error instead of killing the process. SIGTERM, SIGINT and SIGHUP are
        // blocked here, before any thread exists, so that all threads inherit the mask. `serve` waits for these signals.
        signal(SIGPIPE, SIG_IGN)
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)

        Allocator.giveLargePiecesBack()

        let parsed: LongwiredArguments
        do throws(CommandFailure) {
            parsed = try LongwiredArguments(arguments)
        } catch {
            return fail(error.description, .usage)
        }
        switch parsed.action {
        case .help:
            return tell(LongwiredArguments.helpText)
        case .version:
            return tell("longwired \(Version.text)")
        case .check, .run: break
        }

        do {
            return try serve(parsed, terminal, &signals)
        } catch {
            return fail(error.description, .configuration)
        }
    }

    private static func serve(
        _ parsed: LongwiredArguments, _ terminal: StartingTerminal, _ signals: inout sigset_t
    ) throws(ConfigurationError) -> Int32 {
        var configuration = try ConfigurationFile.load(parsed.configurationFile)
        if parsed.action == .check {
            var (problems, warnings): ([String], [String]) = ([], configuration.warnings)
            var refused: [String] = []
            do throws(TLSFailure) {
                let seconds = configuration.limits.certificateWarningDays * 86_400
                let found = try ListenerCertificates(configuration).findings(endingWithin: seconds)
                refused = found.refused
                warnings += found.unwise
            } catch {
                problems = [error.description]
            }
            if let problem = StoreSetup.problem(ofFolder: configuration.storePath) { problems.append(problem) }
            guard (problems + refused).isEmpty else {
                // Only `--check` fails for a certificate that clients refuse. A start accepts it (docs/use/Operations.md, "TLS").
                return fail(
                    (refused + problems).joined(separator: "\nlongwired: "),
                    problems.isEmpty ? .certificate : .configuration)
            }
            return tell(
                (warnings.map { "warning: \($0)" } + ["The configuration is valid."]).joined(
                    separator: "\n"))
        }
        var random = SystemRandomNumberGenerator()
        let generated = try GeneratedCredentials.complete(&configuration, random: &random)
        let log: Log
        do {
            log = try Log(format: configuration.logging.format, level: configuration.logging.level)
        } catch {
            return fail("the log's thread cannot be started: \(error)", .internal)
        }
        defer { log.close() }
        for warning in configuration.warnings { log.write(.warning, .configurationWarning, [.detail: .text(warning)]) }
        let gateway: Gateway
        do {
            gateway = try Gateway(configuration, generated: generated, log: log, acceptsClock: parsed.acceptsClock)
            try gateway.start()
        } catch is StartInterrupted {
            log.write(.info, .stopped)
            return ExitCode.done.rawValue
        } catch {
            let code = exitCode(of: error)
            log.write(.error, .fatal, [.error: .text("\(error)"), .exitCode: LogValue(code.rawValue)])
            log.flush()
            return fail("\(error)", code)
        }
        log.write(
            .info, .started, [.version: .text(Version.text), .loops: LogValue(gateway.configuration.loopCount)])
        // With the format JSON, every line of the output must be JSON, so no greeting is printed.
        if configuration.logging.format == .text { greet(gateway, generated) }
        let manager = ServiceManager()
        serve(gateway, terminal, manager, log, &signals)
        drain(gateway, manager, &signals)
        gateway.stop()
        return ExitCode.done.rawValue
    }

    private static func exitCode(of error: any Error) -> ExitCode {
        switch error {
        case is StoreError: .failedOutput
        case is ListenFailure, is TLSFailure, is DescriptorShortage, is ClusterFailure: .configuration
        default: .internal
        }
    }

    /// Handles signals and calls `tend` about once a second, until the gateway must stop.
    private static func serve(
        _ gateway: Gateway, _ terminal: StartingTerminal, _ manager: ServiceManager, _ log: Log,
        _ signals: inout sigset_t
    ) {
        let addresses = gateway.addresses
        let status = "Serving: devices \(addresses.device), HTTP \(addresses.http), admin \(addresses.admin)"
        // Without a configuration file the gateway is a trial run, which ends when its terminal closes.
        let isTrial = gateway.configuration.file == nil
        manager.tellReady(status)
        while true {
            var second = timespec(tv_sec: 1, tv_nsec: 0)
            switch sigtimedwait(&signals, nil, &second) {
            case SIGTERM, SIGINT: return
            case SIGHUP where terminal.hasClosed:
                log.write(.info, .terminalClosed)
                return
            case SIGHUP:
                manager.tellReloading()
                gateway.reload()
                manager.tellReady(status)
            default:
                gateway.tend()
                if isTrial, StandardDescriptors.haveLostReaders { return }
            }
            if gateway.pulse.isBeating() { manager.tellAlive() }
        }
    }

    /// Continues to serve while `/readyz` reports not ready, for load balancers to notice; a second signal ends the wait.
    private static func drain(_ gateway: Gateway, _ manager: ServiceManager, _ signals: inout sigset_t) {
        manager.tellStopping(withinMilliseconds: UInt64(gateway.longestStopMilliseconds))
        let end = gateway.beginDrain()
        while ClockReader.monotonic() < end {
            var moment = timespec(tv_sec: 0, tv_nsec: 100_000_000)
            switch sigtimedwait(&signals, nil, &moment) {
            case SIGTERM, SIGINT: return
            default: gateway.tend()
            }
        }
    }

    /// Prints the addresses and the demo app; secrets are never written to the log.
    private static func greet(_ gateway: Gateway, _ generated: GeneratedCredentials) {
        let addresses = gateway.addresses
        var lines = ["Longwire \(Version.text) is ready."]
        func add(_ name: String, _ value: String) {
            if !value.isEmpty {
                lines.append("  \(name)\(String(repeating: " ", count: max(1, 16 - name.count)))\(value)")
            }
        }
        add("devices", addresses.device)
        add("devices (TLS)", addresses.deviceTLS)
        add("senders", addresses.senders)
        add("senders (TLS)", addresses.sendersTLS)
        add("push API", addresses.http.isEmpty ? "" : "http://\(addresses.http)/v2/{appId}")
        add("push API (TLS)", addresses.httpTLS.isEmpty ? "" : "https://\(addresses.httpTLS)/v2/{appId}")
        add("admin API", addresses.admin.isEmpty ? "" : "http://\(addresses.admin)")
        add("admin API (TLS)", addresses.adminTLS.isEmpty ? "" : "https://\(addresses.adminTLS)")
        let console =
            addresses.admin.isEmpty ? "https://\(addresses.adminTLS)/console" : "http://\(addresses.admin)/console"
        if generated.demo != nil, let token = generated.adminToken, isatty(STDOUT_FILENO) == 1 {
            add("console", "\(console)#/enter/\(gateway.makeSignInCode(for: token))")
            add("", "this link signs in once, within 15 minutes")
        } else {
            add("console", console)
        }
        add("data", gateway.configuration.storePath)
        if let demo = generated.demo {
            lines.append("A demo app was generated; its secrets are in \(gateway.configuration.storePath)/demo.json:")
            add("appId", demo.appID)
            add("appKey", demo.appKey)
            lines.append("Be a device of it in another terminal, and push to the cid that it prints:")
            let (command, data) = (
                ShellWord.quoted(tool(beside: CommandLine.arguments.first ?? "")),
                ShellWord.quoted(gateway.configuration.storePath)
            )
            lines.append("  \(command) connect --data \(data)")
            lines.append("  \(command) push --data \(data) --cid CID --payload hello")
        }
        if generated.adminToken != nil && generated.demo == nil {
            lines.append(
                "No credentials are configured: a bearer token for the admin API is in "
                    + "\(gateway.configuration.storePath)/\(GeneratedCredentials.adminTokenFileName)")
        }
        // A blocked standard output delays the handling of signals by at most one second, the timeout of `tell`.
        _ = tell(lines.joined(separator: "\n"))
    }

    /// Returns the command to run the `longwire` that lies beside this program.
    private static func tool(beside program: String) -> String {
        guard let slash = program.lastIndex(of: "/") else { return "longwire" }
        return program[...slash] + "longwire"
    }

    /// Prints to standard output with a timeout of one second; returns the exit code.
    private static func tell(_ text: String) -> Int32 {
        switch BoundedWriter.write(text + "\n", to: STDOUT_FILENO, atMostMilliseconds: 1_000) {
        case .done: ExitCode.done.rawValue
        // The reader closed the pipe, as `head` does.
        case .failed(let error) where error.isBrokenPipe: ExitCode.readerLeft.rawValue
        case .timedOut: fail("standard output is blocked: its reader does not read", .failedOutput)
        case .failed(let error): fail("standard output cannot be written: \(error)", .failedOutput)
        }
    }

    private static func fail(_ text: String, _ code: ExitCode) -> Int32 {
        // Error texts may contain replies of Redis servers, so terminal control characters are removed.
        let line = (text.hasPrefix("longwired") ? "" : "longwired: ") + TerminalText.unpainted(text) + "\n"
        _ = BoundedWriter.write(line, to: STDERR_FILENO, atMostMilliseconds: 1_000)
        return code.rawValue
    }
}
