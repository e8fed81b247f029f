internal import Configuration
internal import Cryptography
internal import EventLoops
internal import Glibc
internal import Platform
internal import TextForms

/// The program `longwire-sender`.
public enum LongwireSenderMain {
    /// Runs until a signal ends it.
    ///
    /// - Parameter arguments: the command line without the program's name.
    /// - Returns: the exit code (docs/use/APNs.md).
    public static func run(_ arguments: [String]) -> Int32 {
        StandardDescriptors.fill()
        let terminal = StartingTerminal()
        signal(SIGPIPE, SIG_IGN)
        // Blocked before any thread exists, so that all threads inherit the mask. `sigtimedwait` receives the signals.
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let parsed: SenderArguments
        do throws(CommandFailure) {
            parsed = try SenderArguments(arguments)
        } catch {
            return fail(error.description, 64)
        }
        do {
            switch parsed.action {
            case .help: return tell(SenderArguments.helpText)
            case .version: return tell("longwire-sender \(versionText)")
            case .check: return try check(parsed)
            case .doctor: return try doctor(parsed)
            case .fake: return try fake(parsed, terminal, &signals)
            case .channel, .broadcast: return try channel(parsed)
            case .run: return try send(parsed, terminal, &signals)
            }
        } catch let error as CommandFailure {
            return fail(error.description, 64)
        } catch let error as ConfigurationError {
            return fail(error.description, 78)
        } catch let error as TLSFailure {
            return fail(error.description, 78)
        } catch let error as ListenFailure {
            return fail(error.description, 78)
        } catch {
            return fail("\(error)", 70)
        }
    }

    private static let versionText = "0.1.0"

    private static func configuration(_ parsed: SenderArguments) throws(ConfigurationError) -> SenderConfiguration {
        try SenderConfiguration.load(parsed.configurationFile ?? "")
    }

    private static func check(_ parsed: SenderArguments) throws -> Int32 {
        let configuration = try configuration(parsed)
        let opened = try configuration.openCredentials()
        let certificates = configuration.certificates(opened, try configuration.openListeners())
        let found = configuration.findings(of: certificates, ownEnds: true)
        // Only `--check` fails on these; a start logs them as warnings (docs/use/Operations.md, "TLS").
        guard found.refused.isEmpty else { return fail(found.refused.joined(separator: "\n"), 65) }
        let warnings = configuration.warnings + found.unwise
        return tell((warnings.map { "warning: \($0)" } + ["The configuration is valid."]).joined(separator: "\n"))
    }

    private static func doctor(_ parsed: SenderArguments) throws -> Int32 {
        let configuration = try configuration(parsed)
        guard parsed.topic != nil || configuration.credentials.isEmpty else {
            throw CommandFailure.usage(
                "--topic is missing, the bundle id of the app, because the configuration has a credential of Apple")
        }
        var doctor = Doctor(
            configuration, topic: parsed.topic ?? "", token: parsed.token, environment: parsed.environment,
            tell: { _ = tell($0) })
        return doctor.run() ? 0 : 1
    }

    private static func channel(_ parsed: SenderArguments) throws -> Int32 {
        let (text, isDone) = try ChannelCommand(try configuration(parsed), parsed).run()
        let code = tell(text)
        return isDone ? code : 1
    }

    private static func send(
        _ parsed: SenderArguments, _ terminal: StartingTerminal, _ signals: inout sigset_t
    ) throws -> Int32 {
        let configuration = try configuration(parsed)
        let log = SenderLog { event, text in write(event, text) }
        let program = try SenderProgram(configuration, log: log)
        try program.start()
        log.write("started", "version \(versionText)")
        greet("longwire-sender \(versionText) sends for \(configuration.link.url).", program.addresses)
        let manager = ServiceManager()
        let status = "Sending for \(configuration.link.url)"
        manager.tellReady(status)
        loop: while true {
            var second = timespec(tv_sec: 1, tv_nsec: 0)
            switch sigtimedwait(&signals, nil, &second) {
            case SIGTERM, SIGINT: break loop
            case SIGHUP where terminal.hasClosed:
                log.write("terminalClosed", "the terminal that it was started from closed")
                break loop
            case SIGHUP:
                manager.tellReloading()
                program.reload()
                manager.tellReady(status)
            default: break
            }
            program.tend()
            if program.pulse.isBeating() { manager.tellAlive() }
        }
        log.write("stopping", "no more jobs are taken")
        // The time that `stop` may take: `stopMilliseconds`, its fixed waits, and the end of its threads.
        manager.tellStopping(withinMilliseconds: configuration.stopMilliseconds + 14_000)
        program.stop()
        log.write("stopped", "clean")
        return 0
    }

    private static func fake(
        _ parsed: SenderArguments, _ terminal: StartingTerminal, _ signals: inout sigset_t
    ) throws -> Int32 {
        let program = try FakeProgram(parsed.fake)
        try program.loop.start()
        greet("Fakes of Apple and of all other vendors are ready.", program.addresses)
        _ = tell(program.advice.joined(separator: "\n"))
        while true {
            let number = sigwaitinfo(&signals, nil)
            if number == SIGTERM || number == SIGINT || number == SIGHUP && terminal.hasClosed { break }
        }
        program.loop.stop()
        program.loop.join()
        return 0
    }

    private static func greet(_ text: String, _ lines: [(name: String, address: String)]) {
        let rest = lines.map { "  \($0.name)\(String(repeating: " ", count: max(1, 14 - $0.name.count)))\($0.address)" }
        _ = tell(([text] + rest).joined(separator: "\n"))
    }

    private static let isForJournal = ServiceManager.isJournal(STDERR_FILENO)

    private static func write(_ event: String, _ text: String) {
        let time = CivilTime(millisecondsSince1970: Int64(SystemClock.wallMilliseconds)).timestamp
        let level = SenderLog.level(of: event)
        let line =
            (isForJournal ? "<\(level.priority)>" : "")
            + "{\"time\":\"\(time)\",\"level\":\"\(level.name)\",\"event\":\(JSONString.quoted(event)),"
            + "\"detail\":\(JSONString.quoted(text, escaping: .terminal))}\n"
        _ = BoundedWriter.write(line, to: STDERR_FILENO, atMostMilliseconds: 1_000)
    }

    private static func tell(_ text: String) -> Int32 {
        switch BoundedWriter.write(TerminalText.unpainted(text) + "\n", to: STDOUT_FILENO, atMostMilliseconds: 1_000) {
        case .done: 0
        // The reader closed the pipe, as `head` does.
        case .failed(let error) where error.isBrokenPipe: 141
        case .timedOut, .failed: 74
        }
    }

    private static func fail(_ text: String, _ code: Int32) -> Int32 {
        // Errors may contain text from gateways, Apple and proxies, so control characters are escaped.
        let line = (text.hasPrefix("longwire-sender") ? "" : "longwire-sender: ") + TerminalText.unpainted(text) + "\n"
        _ = BoundedWriter.write(line, to: STDERR_FILENO, atMostMilliseconds: 1_000)
        return code
    }
}
