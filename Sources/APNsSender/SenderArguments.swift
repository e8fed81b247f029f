internal import APNs
internal import Configuration
internal import TextForms

/// What the command line of `longwire-apns` asks for.
struct SenderArguments: Equatable {
    enum Action: Equatable { case run, check, doctor, fake, channel(ChannelVerb), broadcast, help, version }
    enum ChannelVerb: String, Equatable { case create, list, show, delete }

    var action = Action.run
    var configurationFile: String?
    /// `doctor`: the topic and, if given, the token of a test.
    var topic: String?
    var token: String?
    var environment: Environment?
    /// `channel` and `broadcast`.
    var desk = Desk()
    /// `fake`: where it listens and what it works with.
    var fake = Fake()

    struct Desk: Equatable {
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
        var page = "127.0.0.1:2199"
        /// It may listen on addresses of other machines, too.
        var isOpen = false
        var folder = "longwire-fake-apns"
        var script: String?
        var record: String?
        var keyFile: String?
        var keyID = "FAKEKEY001"
        var teamID = "FAKETEAM01"
    }

    struct UsageError: Error, Equatable, CustomStringConvertible {
        var reason: String
        var description: String { "longwire-apns: \(reason)\nTry `longwire-apns --help`." }
    }

    init(_ arguments: [String]) throws(UsageError) {
        var reader = ArgumentReader(arguments) { UsageError(reason: $0.description) }
        var place = 0
        while let word = try reader.next() {
            defer { place += 1 }
            let isFirst = place == 0
            switch word {
            case .operand("doctor") where isFirst: action = .doctor
            case .operand("fake") where isFirst: action = .fake
            case .operand("broadcast") where isFirst: action = .broadcast
            case .operand("channel") where isFirst:
                guard case .operand(let name) = try reader.next(), let verb = ChannelVerb(rawValue: name) else {
                    throw UsageError(reason: "channel is followed by create, list, show or delete")
                }
                action = .channel(verb)
            case .option("--help"), .option("-h"): action = .help
            case .option("--version"): action = .version
            case .option("--check") where action == .run: action = .check
            case .option("--config"), .option("-c"):
                guard configurationFile == nil else { throw UsageError(reason: "--config is given twice") }
                configurationFile = try reader.value()
            case .option(let name) where action == .doctor: try readDoctor(name, &reader)
            case .option(let name) where action == .fake: try readFake(name, &reader)
            case .option(let name) where isDesk: try readDesk(name, &reader)
            case .option(let text), .operand(let text):
                throw UsageError(reason: "unknown argument \(text.debugDescription)")
            }
        }
        if isDesk || [.run, .check, .doctor].contains(action), configurationFile == nil {
            throw UsageError(reason: "--config FILE is missing")
        }
        if isDesk, topic == nil { throw UsageError(reason: "--topic is missing, the bundle id of the app") }
        if action == .broadcast, (desk.body == nil) == (desk.bodyFile == nil) {
            throw UsageError(reason: "broadcast needs --body JSON or --body-file FILE")
        }
        if action == .doctor, topic == nil {
            throw UsageError(reason: "doctor needs --topic, the bundle id of the app")
        }
        if action == .fake { try checkFake() }
    }

    private mutating func readDoctor(_ name: String, _ reader: inout ArgumentReader<UsageError>) throws(UsageError) {
        switch name {
        case "--topic": topic = try reader.value()
        case "--token": token = try reader.value()
        case "--environment":
            let text = try reader.value()
            guard let environment = Environment(rawValue: text) else {
                throw UsageError(reason: "--environment cannot be \(text.debugDescription): production or sandbox")
            }
            self.environment = environment
        default: throw UsageError(reason: "unknown argument \(name.debugDescription)")
        }
    }

    private var isDesk: Bool {
        switch action {
        case .channel, .broadcast: true
        case .run, .check, .doctor, .fake, .help, .version: false
        }
    }

    private mutating func readDesk(_ name: String, _ reader: inout ArgumentReader<UsageError>) throws(UsageError) {
        switch (name, action) {
        case ("--topic", _), ("--environment", _): try readDoctor(name, &reader)
        case ("--app", _): desk.appID = try reader.value()
        case ("--channel", .broadcast), ("--channel", .channel(.show)), ("--channel", .channel(.delete)):
            desk.channelID = try reader.value()
        case ("--storage", .channel(.create)):
            let text = try reader.value()
            guard let storage = ChannelStorage(name: text) else {
                throw UsageError(reason: "--storage cannot be \(text.debugDescription): none or last")
            }
            desk.storage = storage
        case ("--expiration", .broadcast): desk.expiration = try number(name, &reader)
        case ("--priority", .broadcast): desk.priority = Int(clamping: try number(name, &reader))
        case ("--body", .broadcast): desk.body = try reader.value()
        case ("--body-file", .broadcast): desk.bodyFile = try reader.value()
        default: throw UsageError(reason: "unknown argument \(name.debugDescription)")
        }
    }

    private func number(_ name: String, _ reader: inout ArgumentReader<UsageError>) throws(UsageError) -> Int64 {
        let text = try reader.value()
        guard let number = Int64(text), number >= 0 else {
            throw UsageError(reason: "\(name) cannot be \(text.debugDescription): a number")
        }
        return number
    }

    private mutating func readFake(_ name: String, _ reader: inout ArgumentReader<UsageError>) throws(UsageError) {
        switch name {
        case "--production": fake.production = try reader.value()
        case "--sandbox": fake.sandbox = try reader.value()
        case "--production-channels": fake.productionChannels = try reader.value()
        case "--sandbox-channels": fake.sandboxChannels = try reader.value()
        case "--page": fake.page = try reader.value()
        case "--any-address": fake.isOpen = true
        case "--folder": fake.folder = try reader.value()
        case "--script": fake.script = try reader.value()
        case "--record": fake.record = try reader.value()
        case "--key": fake.keyFile = try reader.value()
        case "--key-id": fake.keyID = try reader.value()
        case "--team-id": fake.teamID = try reader.value()
        default: throw UsageError(reason: "unknown argument \(name.debugDescription)")
        }
    }

    /// Refuses addresses that other machines reach, unless the user allows them: the fake shows all pushes to every caller.
    private func checkFake() throws(UsageError) {
        let addresses = [
            ("production", fake.production), ("sandbox", fake.sandbox), ("page", fake.page),
            ("production-channels", fake.productionChannels), ("sandbox-channels", fake.sandboxChannels),
        ]
        for (name, text) in addresses {
            guard let address = ListenAddress(text) else {
                throw UsageError(reason: "--\(name) cannot be \(text.debugDescription): HOST:PORT with a numeric host")
            }
            if fake.isOpen || address.isLoopback { continue }
            throw UsageError(
                reason: "--\(name) \(text) is reachable by other machines, which could read all pushes and change the "
                    + "script; listen on 127.0.0.1, or add --any-address")
        }
    }

    static let helpText = """
        longwire-apns: sends Longwire's handoff jobs to Apple's push service.

        Usage: longwire-apns --config FILE [--check]
               longwire-apns doctor --config FILE --topic BUNDLE-ID [--environment ENV] [--token HEX]
               longwire-apns channel create|list|show|delete --config FILE --topic BUNDLE-ID [options]
               longwire-apns broadcast --config FILE --topic BUNDLE-ID --channel ID --body JSON [options]
               longwire-apns fake [options]

          --config FILE       The JSON5 configuration; docs/APNs.md lists its keys.
          --check             Read the configuration, the keys and the certificates, say what is wrong, and stop.
          --version           The version.

        doctor tries each credential with Apple and says what is wrong in plain words. It sends one request to a token
        that does not exist, or a silent one to the token given.
          --topic BUNDLE-ID   The app's bundle id.
          --environment ENV   production or sandbox only.
          --token HEX         A device's token.

        channel and broadcast speak to Apple about Live Activities' channels, and print JSON.
          --environment ENV   production (the default) or sandbox.
          --app ID            The app whose credential is used; by default that of all other apps.
          --storage WORD      create: none, or last: Apple keeps the last notification for devices that are offline.
          --channel ID        show, delete, broadcast: the channel's id.
          --body JSON         broadcast: the notification; --body-file FILE reads it.
          --priority N        broadcast: 10 (the default), 5 or 1.
          --expiration S      broadcast: Unix seconds; 0 (the default): Apple stores nothing.

        fake is a scripted Apple for tests and trials.
          --production ADDR   Where the production service listens (127.0.0.1:2197).
          --sandbox ADDR      Where the sandbox service listens (127.0.0.1:2198).
          --production-channels ADDR, --sandbox-channels ADDR
                              Where channels are managed (127.0.0.1:2196 and :2195).
          --page ADDR         Where the web page with the phones is (127.0.0.1:2199).
          --any-address       Allow addresses that other machines reach; without it only loopback ones are taken.
          --folder DIR        Its certificate and key, made when they are not there (longwire-fake-apns).
          --script FILE       What it does beside Apple's own checks: JSON5, docs/APNs.md.
          --record FILE       One JSON line a request is added there.
          --key FILE          The provider key it knows, made when it is not there (DIR/AuthKey.p8).
          --key-id, --team-id Its ids (FAKEKEY001, FAKETEAM01).

        Signals: SIGTERM and SIGINT stop cleanly; SIGHUP reads keys, certificates and
        credentials again; if the terminal has closed, it stops.
        Exit codes: 0 clean stop, 64 usage, 65 a certificate is refused (--check; a start goes on), 70 internal,
        78 configuration; doctor, channel, broadcast: 1 when something is wrong.
        """
}
