internal import TextForms

/// Everything a command line can say, with its defaults.
struct BenchOptions: Equatable {
    var mode = Mode.live
    var dataFolder = "longwire-data"
    var appID: String?
    var appKey: String?
    var appSecret: String?
    var masterSecret: String?
    var deviceAddress: String?
    var sendersAddress: String?
    var httpAddress: String?
    var adminAddress: String?
    var adminToken: String?
    /// Devices speak TLS.
    var isSecure = false
    var authoritiesFile: String?
    var certificateFile: String?
    var keyFile: String?
    var devicesFile: String?
    var processID: Int32?
    /// `nil`: one, or as many as the limit of open files asks for.
    var threadWish: Int?
    var handshakeWish: Int?
    var timeout = 120.0
    /// Where the JSON goes; `-` is standard output, in place of the table.
    var jsonFile: String?
    var isQuiet = false
    var wantsHelp = false
    var requirements: [Requirement] = []

    /// `nil`: the mode's own default.
    var connectionWish: Int?
    var hold = 10.0
    var heartbeat = 300
    var devices = 1_000
    /// All devices of a broadcast, connected or not; `nil`: those that are connected.
    var registeredWish: Int?
    var duration = 10.0
    var warmup = 2.0
    /// Seconds; `nil`: the mode's own default.
    var drainWish: Double?
    var payloadByteCount = 256
    var inFlight = 1_000
    /// Messages a second; `nil`: as many as `inFlight` allows.
    var rate: Double?
    var senders = 2
    var pipeline = 1
    var messageWish: Int?
    var isConnected = false
    /// Devices come through a WebSocket.
    var isWebSocket = false
    /// Messages in one request; 1: `push/single/cid`.
    var batch = 1
    var leaseCount = 500

    var connections: Int {
        switch mode {
        case .http: connectionWish ?? 32
        case .handoff: connectionWish ?? 8
        case .idle, .live, .offline, .storm, .broadcast: connectionWish ?? 1_000
        }
    }
    var handshakes: Int { handshakeWish ?? (mode == .storm ? 1_000 : 256) }
    var messages: Int { messageWish ?? (mode == .storm || mode == .broadcast ? 5 : 20) }
    var registered: Int { max(devices, registeredWish ?? 0) }
    var drain: Double { drainWish ?? (mode == .live || mode == .http || mode == .broadcast ? 10 : 60) }
    var isJSONPrinted: Bool { jsonFile == "-" }

    /// Reads what stands behind `longwire bench`.
    ///
    /// - Throws: `UsageError` naming the argument and what is allowed. Nothing is read or opened.
    init(parsing arguments: [String]) throws(UsageError) {
        var reader = ArgumentReader(arguments) { UsageError($0.description) }
        var isModeKnown = false
        var requirementTexts: [String] = []
        var seen: Set<String> = []
        while let word = try reader.next() {
            let text: String
            switch word {
            case .option("-h"), .option("--help"):
                wantsHelp = true
                continue
            case .operand(let argument):
                guard !isModeKnown else { throw UsageError("unexpected argument “\(argument)”") }
                guard let mode = Mode(rawValue: argument) else {
                    let known = Mode.allCases.map(\.rawValue).joined(separator: ", ")
                    let near = Suggestion.hint(for: argument, among: Mode.allCases.map(\.rawValue))
                    throw UsageError("there is no mode “\(argument)”\(near); the modes are \(known)")
                }
                (self.mode, isModeKnown) = (mode, true)
                continue
            case .option(let given): text = given
            }
            let name = text == "--pid" ? "--server-pid" : text
            guard let option = BenchOption.named(name) else {
                let near = Suggestion.hint(for: name, among: BenchOption.all.map(\.name))
                throw UsageError("there is no option “\(name)”\(near)")
            }
            if let modes = option.modes, isModeKnown, !modes.contains(mode) {
                let names = modes.map(\.rawValue).joined(separator: ", ")
                throw UsageError("\(name) belongs to the mode \(names), not to \(mode.rawValue)")
            }
            guard seen.insert(name).inserted || name == "--require" else { throw UsageError("\(name) is given twice") }
            let value = option.placeholder == nil ? "" : try reader.value()
            if name == "--require" { requirementTexts.append(value) } else { try option.apply(&self, value) }
        }
        guard isModeKnown || wantsHelp else {
            throw UsageError("which mode? One of \(Mode.allCases.map(\.rawValue).joined(separator: ", ")); see --help")
        }
        if wantsHelp { return }
        for name in seen.sorted() {
            if let modes = BenchOption.named(name)?.modes, !modes.contains(mode) {
                throw UsageError("\(name) does not belong to the mode \(mode.rawValue)")
            }
        }
        guard !(seen.contains("--rate") && seen.contains("--in-flight")) else {
            throw UsageError("--rate and --in-flight exclude each other: a fixed rate, or as fast as it goes")
        }
        guard messages > 0 || mode == .storm else { throw UsageError("--messages 0: only a storm can do without any") }
        guard registeredWish ?? devices >= devices else {
            throw UsageError("--registered counts all devices, so it is at least --devices, \(devices)")
        }
        guard warmup < Limits.longestSeconds - duration else {
            throw UsageError("--warmup and --duration are too long")
        }
        for text in requirementTexts { requirements.append(try Requirement(parsing: text, mode: mode)) }
    }
}
