internal import APNs
internal import Configuration
internal import TextForms

struct SenderArguments: Equatable {
    enum Action: Equatable { case run, check, doctor, fake, channel(ChannelVerb), broadcast, help, version }
    enum ChannelVerb: String, Equatable { case create, list, show, delete }

    var action = Action.run
    var configurationFile: String?
    /// The topic and the optional token of `doctor`.
    var topic: String?
    var token: String?
    var environment: Environment?
    var channels = ChannelOptions()
    var fake = Fake()

    struct ChannelOptions: Equatable {
        var appID = ""
        var channelID = ""
        var storage = ChannelStorage.none
        var expiration: Int64 = 0
        var priority = 10
        var body: String?
        var bodyFile: String?
    }

    struct Fake: Equatable {
        var production = "127.0.0.1:2197"
        var sandbox = "127.0.0.1:2198"
        var productionChannels = "127.0.0.1:2196"
        var sandboxChannels = "127.0.0.1:2195"
        var vendors = "127.0.0.1:2194"
        var page = "127.0.0.1:2199"
        /// The gateway in the sender's configuration that the fake writes.
        var gateway = "http://127.0.0.1:7081"
        /// Whether the fake may listen on addresses that other machines can reach.
        var isOpen = false
        var folder = "longwire-fake-apns"
        var script: String?
        var record: String?
        var keyFile: String?
        var keyID = "FAKEKEY001"
        var teamID = "FAKETEAM01"
    }

    // MARK: Accepted options

    private static let service: [CommandOption] = [
        .value("config", "FILE", "The JSON5 configuration; docs/use/APNs.md lists its keys.", letter: "c"),
        .flag("check", "Read the configuration, the keys and the certificates, say what is wrong, and stop."),
        .flag("version", "The version."),
    ]
    private static let doctor: [CommandOption] = [
        .value("topic", "BUNDLE-ID", "The app's bundle id."),
        .value("environment", "ENV", "production or sandbox only."),
        .value("token", "HEX", "A device's token."),
    ]
    private static let channels: [CommandOption] = [
        .value("topic", "BUNDLE-ID", "The app's bundle id."),
        .value("environment", "ENV", "production (the default) or sandbox."),
        .value("app", "ID", "The app whose credential is used; by default that of all other apps."),
        .value(
            "storage", "WORD", "create: none, or last: Apple keeps the last notification for devices that are offline."),
        .value("channel", "ID", "show, delete, broadcast: the channel's id."),
        .value("body", "JSON", "broadcast: the notification."),
        .value("body-file", "FILE", "broadcast: reads the notification from a file."),
        .value("priority", "N", "broadcast: 10 (the default), 5 or 1."),
        .value("expiration", "S", "broadcast: Unix seconds; 0 (the default): Apple stores nothing."),
    ]
    private static let scriptedApple: [CommandOption] = [
        .value("production", "ADDR", "Where the production service listens (127.0.0.1:2197)."),
        .value("sandbox", "ADDR", "Where the sandbox service listens (127.0.0.1:2198)."),
        .value("production-channels", "ADDR", "Where production's channels are managed (127.0.0.1:2196)."),
        .value("sandbox-channels", "ADDR", "Where the sandbox's channels are managed (127.0.0.1:2195)."),
        .value("vendors", "ADDR", "Where the services of all other vendors listen (127.0.0.1:2194)."),
        .value("page", "ADDR", "Where the web page with the phones is (127.0.0.1:2199)."),
        .flag("any-address", "Allow addresses that other machines reach; without it only loopback ones are taken."),
        .value("folder", "DIR", "Its keys, made when they are not there, and sender.json5 (longwire-fake-apns)."),
        .value("gateway", "URL", "The gateway that sender.json5 names (http://127.0.0.1:7081)."),
        .value("script", "FILE", "A script of its answers: JSON5, docs/use/APNs.md and docs/use/Vendors.md."),
        .value("record", "FILE", "One JSON line a request is added there."),
        .value("key", "FILE", "The provider key it knows, made when it is not there (DIR/AuthKey.p8)."),
        .value("key-id", "ID", "The key's id (FAKEKEY001)."),
        .value("team-id", "ID", "The team's id (FAKETEAM01)."),
    ]

    private static func command(
        _ words: [String]
    ) throws(CommandFailure) -> (action: Action, wordCount: Int, options: [CommandOption]) {
        func of(_ options: [CommandOption], _ names: String...) -> [CommandOption] {
            [service[0]] + options.filter { names.contains($0.name) }
        }
        switch words.first {
        case "doctor": return (.doctor, 1, [service[0]] + doctor)
        case "fake": return (.fake, 1, scriptedApple)
        case "broadcast": return (.broadcast, 1, [service[0]] + channels.filter { $0.name != "storage" })
        case "channel":
            guard words.count > 1, let verb = ChannelVerb(rawValue: words[1]) else {
                throw .usage("channel is followed by create, list, show or delete\nTry: longwire-sender --help")
            }
            let own = verb == .create ? "storage" : verb == .list ? "" : "channel"
            return (.channel(verb), 2, of(channels, "topic", "environment", "app", own))
        default: return (.run, 0, service)
        }
    }

    // MARK: Reading

    /// - Throws: a usage failure that names the word.
    init(_ arguments: [String]) throws(CommandFailure) {
        let (command, wordCount, options) = try Self.command(arguments.prefix { !$0.hasPrefix("-") })
        let words = try ParsedArguments(arguments.dropFirst(wordCount), of: "longwire-sender", options)
        guard !words.wantsHelp, !words.has("version") else {
            action = words.wantsHelp ? .help : .version
            return
        }
        try words.expectOperands([])
        try words.refuseRepeats()
        action = command == .run && words.has("check") ? .check : command
        configurationFile = words.text("config")
        if action == .fake {
            try readFake(words)
            return
        }
        guard configurationFile != nil else { throw words.usage("--config FILE is missing") }
        topic = words.text("topic")
        // `doctor` needs the topic only for credentials of Apple.
        guard topic != nil || command == .run || command == .doctor else {
            throw words.usage("--topic is missing, the bundle id of the app")
        }
        token = words.text("token")
        environment = try words.parse("environment", "production or sandbox") { Environment(rawValue: $0) }
        channels.appID = words.text("app") ?? channels.appID
        channels.channelID = words.text("channel") ?? channels.channelID
        channels.storage = try words.parse("storage", "none or last") { ChannelStorage(name: $0) } ?? channels.storage
        channels.expiration = try words.number("expiration", in: 0...Int64.max) ?? channels.expiration
        channels.priority = try words.number("priority", in: 0...Int64.max).map { Int($0) } ?? channels.priority
        (channels.body, channels.bodyFile) = (words.text("body"), words.text("body-file"))
        if action == .broadcast, (channels.body == nil) == (channels.bodyFile == nil) {
            throw words.usage("broadcast needs --body JSON or --body-file FILE")
        }
    }

    private mutating func readFake(_ words: ParsedArguments) throws(CommandFailure) {
        let texts: [(name: String, path: WritableKeyPath<Fake, String>)] = [
            ("production", \.production), ("sandbox", \.sandbox), ("page", \.page),
            ("production-channels", \.productionChannels), ("sandbox-channels", \.sandboxChannels),
            ("vendors", \.vendors), ("folder", \.folder), ("gateway", \.gateway), ("key-id", \.keyID),
            ("team-id", \.teamID),
        ]
        for (name, path) in texts { fake[keyPath: path] = words.text(name) ?? fake[keyPath: path] }
        (fake.script, fake.record, fake.keyFile) = (words.text("script"), words.text("record"), words.text("key"))
        fake.isOpen = words.has("any-address")
        // Refuses addresses that other machines can reach, unless the user allows them: the fake shows all pushes to every
        // caller.
        for (name, path) in texts.prefix(6) {
            let text = fake[keyPath: path]
            guard let address = ListenAddress(text) else {
                throw words.usage("--\(name) cannot be \(text.debugDescription): HOST:PORT with a numeric host")
            }
            if fake.isOpen || address.isLoopback { continue }
            throw words.usage(
                "--\(name) \(text) is reachable by other machines, which could read all pushes and change the script; listen "
                    + "on 127.0.0.1, or add --any-address")
        }
    }

    private static func lines(_ options: [CommandOption]) -> String {
        options.flatMap(\.lines).joined(separator: "\n")
    }

    static let helpText = """
        longwire-sender: sends Longwire's handoff jobs to the vendors' push services.

        Usage: longwire-sender --config FILE [--check]
               longwire-sender doctor --config FILE [--topic BUNDLE-ID] [--environment ENV] [--token HEX]
               longwire-sender channel create|list|show|delete --config FILE --topic BUNDLE-ID [options]
               longwire-sender broadcast --config FILE --topic BUNDLE-ID --channel ID --body JSON [options]
               longwire-sender fake [options]

        \(lines(service))

        doctor tests each credential with its vendor and reports problems. With a credential of Apple it needs --topic: it
        sends one request to a token that does not exist, or a silent one to the token given.
        \(lines(doctor))

        channel and broadcast speak to Apple about Live Activities' channels, and print JSON.
        \(lines(channels))

        fake plays Apple and all other vendors for tests and trials, without any account. It writes DIR/sender.json5,
        the configuration for a longwire-sender of all its vendors.
        \(lines(scriptedApple))

        Signals: SIGTERM and SIGINT stop cleanly; SIGHUP reads keys, certificates and
        credentials again; if the terminal has closed, it stops.
        Exit codes: 0 clean stop, 64 usage, 65 a certificate is refused (--check; a start continues), 70 internal,
        78 configuration; doctor, channel, broadcast: 1 when something is wrong.
        """
}
