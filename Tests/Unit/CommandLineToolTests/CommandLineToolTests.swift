import Foundation
import LongwireClient
import Testing
import TextForms
import Wire

@testable import CommandLineTool

/// Runs the tool with a given environment and a recorded terminal.
private final class Terminal: @unchecked Sendable {
    // `@unchecked Sendable` is sound because every access holds the lock.
    private let lock = NSLock()
    private var output: [String] = []
    private var errors: [String] = []

    func run(_ words: String..., environment: [String: String] = [:], input: String = "") -> ExitCode {
        var environment = environment
        environment["LONGWIRE_DATA"] = environment["LONGWIRE_DATA"] ?? "/nonexistent"
        let context = CommandContext(
            environment: environment, readInput: { Array(input.utf8) },
            write: { line in self.lock.withLock { self.output.append(line) } },
            complain: { line in self.lock.withLock { self.errors.append(line) } })
        return CommandLineTool.run(words, in: context)
    }

    var text: String { lock.withLock { output.joined(separator: "\n") } }
    var complaints: String { lock.withLock { errors.joined(separator: "\n") } }
}

@Suite("Command line")
struct CommandLineToolTests {
    @Test("help lists every command and every option")
    func help() {
        let overview = Terminal()
        #expect(overview.run("--help") == .done)
        for command in CommandLineTool.commands {
            #expect(overview.text.contains(command.name))
            for words in [command.name + " --help", "help " + command.name] {
                let terminal = Terminal()
                let list = words.split(separator: " ").map(String.init)
                #expect(CommandLineTool.run(list, in: terminal.context) == .done)
                for option in command.options { #expect(terminal.text.contains("--\(option.name)")) }
                #expect(terminal.text.split(separator: "\n").allSatisfy { $0.count <= 100 })
            }
        }
    }

    @Test(
        "an invalid command line exits with 64 and names the error",
        arguments: [
            ([], "Usage"), (["dance"], "dance"), (["handoff"], "handoff lease"), (["push"], "--cid"),
            (["push", "--cid"], "--cid needs a value"), (["push", "--cid", "c", "--color", "red"], "--color"),
            (["push", "--cid", "c", "--payload", "x", "--ttl", "soon"], "--ttl is soon"),
            (["push", "--cid", "c", "--payload", "x", "--strategy", "9"], "1 to 4"),
            (["push", "--cid", "c", "--payload", "x", "--json=yes"], "takes no value"),
            (["push", "--cid", "c", "--payload", "x"], "LONGWIRE_APP_ID"),
            (["push", "--cid", "c", "--payload", "x", "--request-id", "short"], "10 to 32"),
            (["trace"], "ID is missing"), (["trace", "--cid", "xyz"], "32 lower-case hex digits"),
            (["trace", "--cid", "--task", "x"], "exclude each other"), (["trcae"], "did you mean trace"),
            (["device", "lst"], "did you mean longwire device list"),
            (["device", "lst", "demo"], "did you mean longwire device list"),
            (["push", "--payloda", "x"], "did you mean --payload"),
            (["push", "--cid", "c", "--all", "--payload", "x"], "only one of"),
            (["queue", "purge"], "--cid is missing"),
            (["context", "use", "x"], "has no context x"),
            (["push", "--all", "--payload", "x", "--context", "x"], "has no context x"),
            (["trace", "a", "b"], "one word too many"), (["connect", "--app", "a", "--state", "asleep"], "foreground"),
            (["connect", "--app", "a", "--topic", "t"], "--token"),
            (["connect", "--app", "a", "--token", "aa", "--channel", "post"], "apns"),
            (["connect", "--app", "a", "--activity-token", "ride"], "NAME=HEX"),
            (["connect", "--app", "a", "--opened", "12", "--state-file", "none"], "--opened"),
            (["connect", "--app", "a", "--state-file", "none"], "appSecret"),
            (["connect", "--data", "/nonexistent"], "demo.json"),
            (["handoff", "settle", "--outcome", "lost"], "badToken"),
        ] as [([String], String)])
    func usage(words: [String], complaint: String) {
        let terminal = Terminal()
        #expect(CommandLineTool.run(words, in: terminal.context) == .usage)
        #expect(terminal.complaints.contains(complaint), "\(terminal.complaints)")
        #expect(terminal.text.isEmpty)
    }

    @Test("an unreachable gateway exits with 69")
    func unreachable() {
        let terminal = Terminal()
        // Port 1 of loopback has no listener.
        let code = terminal.run(
            "push", "--cid", "c", "--payload", "x", "--http", "127.0.0.1:1", "--app", "a", "--app-key", "k",
            "--master-secret", "s")
        #expect(code == .unreachable)
        #expect(terminal.complaints.contains("127.0.0.1:1"))
        let device = Terminal()
        #expect(
            device.run(
                "connect", "--host", "127.0.0.1", "--port", "1", "--app", "a", "--app-secret", "s", "--state-file",
                "none", "--no-reconnect") == .unreachable)
    }

    @Test("a push contains exactly the given options")
    func pushBody() throws {
        let terminal = Terminal()
        func body(_ words: String...) throws -> String {
            try PushCommand.body(PushCommand.syntax.parse(words), terminal.context).text
        }
        #expect(
            try body("--cid", "c1", "--payload", "a\"b", "--request-id", "0123456789")
                == #"{"request_id":"0123456789","audience":{"cid":["c1"]},"push_message":{"transmission":"a\"b"}}"#)
        #expect(
            try body(
                "--cid=c1", "--payload=x", "--request-id=0123456789", "--ttl=-1", "--strategy=4", "--collapse-key=k",
                "--alert-title=T", "--alert-body=B", "--badge=+1")
                == #"{"request_id":"0123456789","audience":{"cid":["c1"]},"#
                + #""settings":{"ttl":-1,"strategy":{"default":4},"collapse_key":"k"},"#
                + #""push_message":{"transmission":"x"},"push_channel":{"ios":"#
                + #"{"aps":{"alert":{"title":"T","body":"B"}},"auto_badge":"+1"}}}"#)
    }

    @Test("a device has the tokens of the options, each of its kind")
    func tokens() throws {
        let words = [
            "--app", "a", "--app-secret", "s", "--host", "h", "--port", "1", "--token", "aa", "--voip-token", "bb",
            "--start-token", "cc", "--activity-token", "ride=dd", "--activity-token", "meal=e=e", "--environment",
            "sandbox", "--topic", "t", "--channel", "apns",
        ]
        let tokens = try ConnectCommand.configuration(ConnectCommand.syntax.parse(words), Terminal().context).tokens
        #expect(tokens.allSatisfy { $0.channel == .apns && $0.environment == .sandbox && $0.topic == "t" })
        #expect(tokens.map(\.kind) == [.alert, .voip, .liveActivityStart, .liveActivity, .liveActivity])
        #expect(tokens.map(\.token) == ["aa", "bb", "cc", "dd", "e=e"])
        #expect(tokens.map(\.activity) == ["", "", "", "ride", "meal"])
    }

    @Test("options override the environment, and the environment overrides the demo app's file")
    func credentials() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let demo = #"{"appId":"fromFile","appSecret":"s","deviceAddress":"0.0.0.0:7123"}"#
        try Data(demo.utf8).write(to: folder.appendingPathComponent("demo.json"))
        var context = Terminal().context
        context.environment = ["LONGWIRE_DATA": folder.path]
        func configuration(_ words: String...) throws -> (String, String, UInt16) {
            let configuration = try ConnectCommand.configuration(ConnectCommand.syntax.parse(words), context)
            return (configuration.appID, configuration.host, configuration.port)
        }
        #expect(try configuration() == ("fromFile", "127.0.0.1", 7_123))
        context.environment["LONGWIRE_APP_ID"] = "fromEnvironment"
        #expect(try configuration().0 == "fromEnvironment")
        #expect(try configuration("--app", "fromOption", "--port", "7200") == ("fromOption", "127.0.0.1", 7_200))
    }

    @Test("text in JSON lines is escaped so that a line stays a line")
    func quoting() throws {
        for text in ["plain", "a\"b\\c", "tab\tline\nreturn\r\u{0}\u{1F}\u{7F}\u{2028}", "漢字 🙂"] {
            let line = (["t": text] as JSONText).text
            #expect(!line.contains("\n") && !line.contains("\u{2028}"))
            let read = try JSONDecoder().decode([String: String].self, from: Data(line.utf8))
            #expect(read == ["t": text])
        }
    }
}

extension Terminal {
    fileprivate var context: CommandContext {
        CommandContext(
            environment: ["LONGWIRE_DATA": "/nonexistent"], readInput: { [] },
            write: { line in self.lock.withLock { self.output.append(line) } },
            complain: { line in self.lock.withLock { self.errors.append(line) } })
    }
}

@Suite("Commands with readable output")
struct CommandsForPeopleTests {
    @Test(
        "times are parsed in their usual forms",
        arguments: [
            ("0", 0), ("-1", -1), ("1500", 1_500), ("500ms", 500), ("90s", 90_000), ("5m", 300_000), ("5min", 300_000),
            ("2h", 7_200_000), ("3d", 259_200_000), ("h", nil), ("2x", nil), ("1.5h", nil), ("", nil),
            ("9223372036854775807d", nil),
        ] as [(String, Int64?)])
    func durations(text: String, milliseconds: Int64?) {
        #expect(Durations.milliseconds(text) == milliseconds)
    }

    @Test("a context is read from its file with its secrets, and use records it there")
    func contexts() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("longwire-\(UUID().uuidString)")
        let home = folder.appendingPathComponent("longwire")
        try FileManager.default.createDirectory(at: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let file = home.appendingPathComponent("config.json5")
        let text =
            "{ /* mine */ contexts: {prod: {adminAddress: 'https://h:1', adminTokenFile: 't', appId: 'shop'}, test: {}} }"
        try Data(text.utf8).write(to: file)
        try Data("secret\n".utf8).write(to: home.appendingPathComponent("t"))
        let environment = ["XDG_CONFIG_HOME": folder.path, "NO_COLOR": "1"]
        let terminal = Terminal()
        #expect(terminal.run("context", "use", "prod", environment: environment) == .done)
        #expect(terminal.run("context", "list", "--text", environment: environment) == .done)
        #expect(terminal.text.contains("* prod  https://h:1") && terminal.text.contains("  test"))
        #expect(try Data(contentsOf: file) == Data(text.utf8), "the person's file stays")
        var context = Terminal().context
        context.environment = environment
        func credentials(_ words: String...) throws -> Credentials {
            try Credentials(TraceCommand.trace.parse(["x"] + words), context)
        }
        #expect(try credentials().adminToken() == "secret" && credentials().appID() == "shop")
        #expect(try credentials().adminBase().absoluteString == "https://h:1")
        context.environment["LONGWIRE_APP_ID"] = "other"
        #expect(try credentials().appID() == "other" && credentials("--context", "prod").appID() == "shop")
        #expect(try credentials("--context", "prod", "--app", "third").appID() == "third")
        try Data("{contexts: {prod: {admintoken: 'x'}}}".utf8).write(to: file)
        let wrong = Terminal()
        #expect(wrong.run("context", "list", environment: environment) == .usage)
        #expect(wrong.complaints.contains("did you mean adminToken"), "\(wrong.complaints)")
    }

    @Test("a page of metrics is parsed with its labels")
    func metrics() {
        let page = MetricsText(
            """
            # HELP a help
            a{app="x \\"y\\", z",state="b"} 2
            a{app="c",state="b"} 3.5
            c 7
            broken
            """)
        #expect(page.samples.count == 3 && page.samples[0].labels == ["app": "x \"y\", z", "state": "b"])
        #expect(page.sum("a") == 5.5 && page.sum("c") == 7 && page.values("a", by: "state").map(\.1) == [5.5])
    }

    private func commits(_ buckets: [(String, Int)]) -> DoctorCommand.Finding? {
        let name = "longwire_store_group_commit_seconds"
        let lines = buckets.map { "\(name)_bucket{le=\"\($0.0)\"} \($0.1)" } + ["\(name)_count \(buckets.last?.1 ?? 0)"]
        return DoctorCommand.commits(MetricsText(lines.joined(separator: "\n"))).first
    }

    @Test("the doctor judges commits by their majority, and ignores a few")
    func commitTimes() throws {
        #expect(commits([("+Inf", 0)]) == nil)
        // A new cluster: some commits waited for their replicas.
        let few = try #require(commits([("0.001", 40), ("8.4", 50), ("+Inf", 60)]))
        #expect(few.verdict == .ok && few.found.contains("60") && few.found.contains("too few"))
        let idle = try #require(commits([("0.001", 190), ("8.4", 200), ("+Inf", 200)]))
        #expect(idle.verdict == .ok && idle.found == "nine of ten of 200 took below 1.0 ms")
        let slow = try #require(commits([("0.001", 100), ("0.131", 200), ("+Inf", 200)]))
        #expect(slow.verdict == .problem && slow.found.contains("131.0 ms") && !slow.advice.isEmpty)
        #expect(commits([("0.001", 1), ("+Inf", 200)])?.verdict == .problem)
    }

    @Test("a trace's sentences explain the wait, without colors where they are off")
    func sentences() throws {
        let display = Display(try TraceCommand.trace.parse(["x", "--text"]), Terminal().context)
        let trace: [String: Any] = [
            "msgId": "m", "taskId": "t", "appId": "a", "cid": "c", "state": "pending", "acceptedAt": 1_000,
            "expiresAt": 9_000,
            "fallback": "none", "fallbackReason": "noToken", "alert": "none", "offline": true,
            "steps": [["event": "accepted", "time": 1_000], ["event": "unheardOf", "time": 1_500]],
        ]
        let words = TraceWords(Fields(trace), device: Fields(["connected": false]), display)
        let text = words.lines.joined(separator: "\n")
        #expect(text.contains("not connected") && text.contains("noToken") && text.contains("unheardOf"))
        #expect(!text.contains("\u{1B}"))
        func waiting(_ alert: String, _ events: [String], device: [String: Any] = [:]) -> String {
            var trace = trace
            (trace["alert"], trace["steps"]) = (alert, events.map { ["event": $0, "time": 1_000] })
            return TraceWords(Fields(trace), device: Fields(device), display).lines.last ?? ""
        }
        #expect(waiting("leased", ["jobDue", "leased"]).contains("A sender service has its job."))
        #expect(waiting("due", ["jobDue", "leased", "leaseLapsed"]).contains("gave no result"))
        #expect(waiting("due", ["jobDue"]).contains("is one running?"))
        #expect(waiting("refused", ["jobDue", "leased", "vendorRejected"]).contains("refused its alert"))
        #expect(waiting("armed", ["accepted"], device: ["appDisabled": true]).contains("The app is disabled"))
        var unserved = trace
        (unserved["alert"], unserved["steps"]) = (
            "due",
            [["event": "leased", "time": 1_000], ["event": "unsent", "time": 1_000, "detail": "noCredential"]]
        )
        let back = TraceWords(Fields(unserved), device: nil, display).summary.last ?? ""
        #expect(back.contains("gave its job back unsent: no credential of the sender service serves the app"))
        #expect(waiting("due", ["leased", "unsent", "leased", "vendorRetry"]).contains("waits for another attempt"))
        var ended = trace
        (ended["state"], ended["reason"]) = ("revoked", "purged")
        #expect(TraceWords(Fields(ended), device: nil, display).lines.last?.contains("an operator purged") == true)
    }

    @Test func anAppsQuotasAreShownAsTheGatewayNamesThem() throws {
        let display = Display(try TraceCommand.trace.parse(["x", "--text"]), Terminal().context)
        let page: [String: Any] = [
            "appId": "demo", "state": "enabled",
            "quotas": [
                "devices": ["limit": 10, "share": 8, "used": 3, "refused": 0],
                "quotaOfTomorrow": ["limit": 5, "used": 5, "refused": 2],
            ],
        ]
        let lines = AppCommand.lines(Fields(page), display)
        #expect(lines.contains { $0.contains("quota devices ") && $0.contains("3 of 8 at this gateway, 10 in all") })
        #expect(lines.contains { $0.contains("quota quotaOfTomorrow ") && $0.contains("5 of 5, 2 refused") })
    }
}
