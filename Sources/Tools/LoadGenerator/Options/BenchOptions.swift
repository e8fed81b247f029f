internal import TextForms

struct BenchOptions {
    let mode: Mode
    let wantsHelp: Bool
    let words: ParsedArguments

    let processID: Int32?
    /// The requested threads, or `nil` for as few as the limit of open files allows.
    let requestedThreads: Int?
    let handshakes: Int
    let timeout: Double
    let requirements: [Requirement]

    let connections: Int
    let hold: Double
    let heartbeat: Int
    let devices: Int
    /// All devices of a broadcast, connected or not.
    let registered: Int
    let duration: Double
    let warmup: Double
    /// Seconds.
    let drain: Double
    let payloadByteCount: Int
    let inFlight: Int
    /// Messages per second, or `nil` for as many as `inFlight` allows.
    let rate: Double?
    let senders: Int
    let pipeline: Int
    let messages: Int
    /// Messages per request; with 1 the request is `push/single/cid`.
    let batch: Int
    let leaseCount: Int

    var isConnected: Bool { words.has("connected") }
    var isWebSocket: Bool { words.has("websocket") }
    var isQuiet: Bool { words.has("quiet") }
    var dataFolder: String { words.text("data") ?? "longwire-data" }
    /// The file for the JSON report; `-` stands for standard output, instead of the table.
    var jsonFile: String? { words.text("json") }
    var isJSONPrinted: Bool { jsonFile == "-" }

    /// Parses the arguments after `longwire bench`, without access to any file.
    ///
    /// - Throws: a usage failure that names the argument and the allowed values.
    init(parsing arguments: [String]) throws(CommandFailure) {
        let words = try ParsedArguments(arguments, of: "longwire bench", Self.all)
        (self.words, wantsHelp) = (words, words.wantsHelp)
        let known = Mode.allCases.map(\.rawValue)
        guard let name = words.operands.first ?? (wantsHelp ? known[0] : nil) else {
            throw words.usage("which mode? One of \(known.joined(separator: ", "))")
        }
        guard let mode = Mode(rawValue: name) else {
            let near = Suggestion.hint(for: name, among: known)
            throw words.usage("there is no mode “\(name)”\(near); the modes are \(known.joined(separator: ", "))")
        }
        self.mode = mode
        if words.operands.count > 1 { throw words.usage("unexpected argument “\(words.operands[1])”") }
        try words.refuseRepeats(but: "require")
        for (option, modes) in Self.load where words.has(option.name) && !modes.contains(mode) {
            let names = modes.map(\.rawValue).joined(separator: ", ")
            throw words.usage("--\(option.name) belongs to the mode \(names), not to \(mode.rawValue)")
        }
        func number(_ name: String, _ range: ClosedRange<Int64>) throws(CommandFailure) -> Int? {
            try words.number(name, in: range).map { Int($0) }
        }
        func seconds(_ name: String, _ normal: Double) throws(CommandFailure) -> Double {
            try words.decimal(name, in: 0...Limits.longestSeconds) ?? normal
        }
        let process = words.has("pid") ? "pid" : "server-pid"
        processID = try number(process, 1...Int64(Int32.max)).map { Int32($0) }
        requestedThreads = try number("threads", 1...Int64(Limits.threadCount))
        handshakes = try number("handshakes", 1...20_000) ?? (mode == .storm ? 1_000 : 256)
        timeout = try seconds("timeout", 120)
        connections = try number("connections", 1...1_000_000) ?? (mode == .http ? 32 : mode == .handoff ? 8 : 1_000)
        hold = try seconds("hold", 10)
        heartbeat = try number("heartbeat", 30...1_800) ?? 300
        devices = try number("devices", 1...1_000_000) ?? 1_000
        registered = try number("registered", 1...1_000_000) ?? devices
        duration = try seconds("duration", 10)
        warmup = try seconds("warmup", 2)
        drain = try seconds("drain", mode == .live || mode == .http || mode == .broadcast ? 10 : 60)
        let payload = Int64(Limits.smallestPayloadByteCount)...Int64(Limits.payloadByteCount)
        payloadByteCount = try number("payload", payload) ?? 256
        inFlight = try number("in-flight", 1...Int64(Limits.outstandingCount)) ?? 1_000
        rate = try words.decimal("rate", in: 1...10_000_000)
        senders = try number("senders", 1...4) ?? 2
        pipeline = try number("pipeline", 1...Int64(Limits.pipelineDepth)) ?? 1
        messages = try number("messages", 0...1_000) ?? (mode == .storm || mode == .broadcast ? 5 : 20)
        batch = try number("batch", 1...200) ?? 1
        leaseCount = try number("lease", 1...500) ?? 500
        var requirements: [Requirement] = []
        for text in words.all("require") { requirements.append(try Requirement(parsing: text, mode: mode)) }
        self.requirements = requirements
        guard rate == nil || !words.has("in-flight") else {
            throw words.usage("--rate and --in-flight exclude each other: a fixed rate, or as fast as it goes")
        }
        guard messages > 0 || mode == .storm else {
            throw words.usage("--messages 0: only a storm can do without any")
        }
        guard registered >= devices else {
            throw words.usage("--registered counts all devices, so it is at least --devices, \(devices)")
        }
        guard warmup < Limits.longestSeconds - duration else {
            throw words.usage("--warmup and --duration are too long")
        }
    }
}

// The option tables, which also make the `--help` text.
extension BenchOptions {
    /// All options; the last one, `--pid`, is an old name of `--server-pid`.
    static var all: [CommandOption] { gateway + load.map(\.option) + run + [.value("pid", "PID", "")] }

    static let gateway: [CommandOption] = [
        .value("data", "DIR", "the gateway's data folder, whose demo.json has the rest (longwire-data)"),
        .value("device-address", "HOST:PORT", "the listener for devices (127.0.0.1:7000)"),
        .value(
            "senders-address", "ADDRESS", "the listener for senders, tls://HOST:PORT with TLS (127.0.0.1:7001)"),
        .value("http-address", "ADDRESS", "the push API, https://HOST:PORT with TLS (127.0.0.1:7080)"),
        .value("admin-address", "ADDRESS", "the admin listener, https://HOST:PORT with TLS (127.0.0.1:7081)"),
        .flag("tls", "devices connect with TLS; the port is that of device.tls.listen"),
        .value("ca", "FILE", "PEM certificates to trust instead of the system's"),
        .value("cert", "FILE", "PEM certificate to show to a listener that asks for one"),
        .value("key", "FILE", "the certificate's PEM key (in the file of --cert)"),
        .value("app-id", "ID", "the app"),
        .value("app-key", "KEY", "its key; the modes http and broadcast need it"),
        .value("app-secret", "SECRET", "its secret for registering devices"),
        .value("master-secret", "SECRET", "its secret for publishing"),
        .value("admin-token", "TOKEN", "a credential that may handoff; better in LONGWIRE_ADMIN_TOKEN"),
        .value("devices-file", "FILE", "registered devices, kept for later runs (DIR/bench-devices)"),
        .value("server-pid", "PID", "the gateway's process, for its CPU and memory (on this machine: found)"),
    ]

    static let load: [(option: CommandOption, modes: [Mode])] = [
        (
            .value("connections", "N", "how many connections (idle 1,000; http 32; handoff 8)"),
            [.idle, .http, .handoff]
        ),
        (.value("hold", "S", "how long to hold them (10)"), [.idle]),
        (.value("heartbeat", "S", "the heartbeat to ask for, in seconds (300)"), [.idle]),
        (.value("devices", "N", "how many devices (1,000)"), Mode.allCases.filter { $0 != .idle }),
        (.flag("websocket", "devices speak through a WebSocket"), Mode.allCases.filter { $0 != .handoff }),
        (
            .value("registered", "N", "registered devices in all, absent ones among them (--devices)"), [.broadcast]
        ),
        (.value("duration", "S", "how long to measure (10)"), [.live, .http]),
        (.value("warmup", "S", "how long to run before measuring (2)"), [.live, .http]),
        (
            .value("payload", "BYTES", "payload of a message, 8 to 16,384 (256)"),
            [.live, .offline, .storm, .broadcast, .handoff]
        ),
        (
            .value("in-flight", "K", "messages not yet finished at any time (1,000)"),
            [.live, .offline, .storm, .handoff]
        ),
        (.value("rate", "R", "messages a second at a fixed pace, instead of --in-flight"), [.live]),
        (
            .value("senders", "C", "connections on the senders' listener, 1 to 4 (2)"),
            [.live, .offline, .storm, .handoff]
        ),
        (
            .value("drain", "S", "longest wait for what is under way (10; some modes 60)"),
            Mode.allCases.filter { $0 != .idle }
        ),
        (.value("pipeline", "P", "requests outstanding on a connection (1)"), [.http]),
        (.flag("connected", "hold the devices connected, acking; without it they are absent"), [.http]),
        (.value("batch", "N", "messages in a request; above 1: push/single/batch/cid (1)"), [.http]),
        (
            .value("messages", "M", "messages for each, or broadcasts (offline, handoff 20; else 5)"),
            [.offline, .storm, .broadcast, .handoff]
        ),
        (.value("lease", "N", "jobs asked for in one lease (500)"), [.handoff]),
    ]

    static let run: [CommandOption] = [
        .value("threads", "T", "threads of the generator (1, or as many as the limit of open files asks for)"),
        .value("handshakes", "H", "connections being opened at any time (256; storm 1,000)"),
        .value("timeout", "S", "longest time for connecting all, and for enqueueing (120)"),
        .value(
            "require", "CONDITION",
            "e.g. 'p99<10ms', 'loss=0', 'rate>=50000'; may be repeated; exit code 1 if one does not hold"),
        .value("json", "FILE", "write the report as one JSON object; - prints it instead of the table"),
        .flag("quiet", "no progress line"),
    ]
}
