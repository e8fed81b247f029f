internal import APNs
internal import TextForms

/// What the command line of `longwire-apns` asks for.
struct SenderArguments: Equatable {
    enum Action: Equatable { case run, check, doctor, fake, help, version }

    var action = Action.run
    var configurationFile: String?
    /// `doctor`: the topic and, if given, the token of a test.
    var topic: String?
    var token: String?
    var environment: Environment?
    /// `fake`: where it listens and what it works with.
    var fake = Fake()

    struct Fake: Equatable {
        var production = "127.0.0.1:2197"
        var sandbox = "127.0.0.1:2198"
        var page = "127.0.0.1:2199"
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
        var isFirst = true
        while let word = try reader.next() {
            defer { isFirst = false }
            switch word {
            case .operand("doctor") where isFirst: action = .doctor
            case .operand("fake") where isFirst: action = .fake
            case .option("--help"), .option("-h"): action = .help
            case .option("--version"): action = .version
            case .option("--check") where action == .run: action = .check
            case .option("--config"), .option("-c"):
                guard configurationFile == nil else { throw UsageError(reason: "--config is given twice") }
                configurationFile = try reader.value()
            case .option(let name) where action == .doctor: try readDoctor(name, &reader)
            case .option(let name) where action == .fake: try readFake(name, &reader)
            case .option(let text), .operand(let text):
                throw UsageError(reason: "unknown argument \(text.debugDescription)")
            }
        }
        if [.run, .check, .doctor].contains(action), configurationFile == nil {
            throw UsageError(reason: "--config FILE is missing")
        }
        if action == .doctor, topic == nil {
            throw UsageError(reason: "doctor needs --topic, the bundle id of the app")
        }
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

    private mutating func readFake(_ name: String, _ reader: inout ArgumentReader<UsageError>) throws(UsageError) {
        switch name {
        case "--production": fake.production = try reader.value()
        case "--sandbox": fake.sandbox = try reader.value()
        case "--page": fake.page = try reader.value()
        case "--folder": fake.folder = try reader.value()
        case "--script": fake.script = try reader.value()
        case "--record": fake.record = try reader.value()
        case "--key": fake.keyFile = try reader.value()
        case "--key-id": fake.keyID = try reader.value()
        case "--team-id": fake.teamID = try reader.value()
        default: throw UsageError(reason: "unknown argument \(name.debugDescription)")
        }
    }

    static let helpText = """
        longwire-apns: sends Longwire's handoff jobs to Apple's push service.

        Usage: longwire-apns --config FILE [--check]
               longwire-apns doctor --config FILE --topic BUNDLE-ID [--environment ENV] [--token HEX]
               longwire-apns fake [options]

          --config FILE       The JSON5 configuration; docs/APNs.md lists its keys.
          --check             Read the configuration, the keys and the certificates, say what is wrong, and stop.
          --version           The version.

        doctor tries each credential with Apple and says what is wrong in plain words. It sends one request to a token
        that does not exist, or a silent one to the token given.
          --topic BUNDLE-ID   The app's bundle id.
          --environment ENV   production or sandbox only.
          --token HEX         A device's token.

        fake is a scripted Apple for tests and trials.
          --production ADDR   Where the production service listens (127.0.0.1:2197).
          --sandbox ADDR      Where the sandbox service listens (127.0.0.1:2198).
          --page ADDR         Where the web page with the phones is (127.0.0.1:2199).
          --folder DIR        Its certificate and key, made when they are not there (longwire-fake-apns).
          --script FILE       What it does beside Apple's own checks: JSON5, docs/APNs.md.
          --record FILE       One JSON line a request is added there.
          --key FILE          The provider key it knows, made when it is not there (DIR/AuthKey.p8).
          --key-id, --team-id Its ids (FAKEKEY001, FAKETEAM01).

        Signals: SIGTERM and SIGINT stop cleanly; SIGHUP reads keys, certificates and credentials again.
        Exit codes: 0 clean stop, 64 usage, 70 internal, 78 configuration; doctor: 1 when something is wrong.
        """
}
