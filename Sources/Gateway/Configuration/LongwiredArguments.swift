internal import Configuration
internal import TextForms

/// What the command line of `longwired` asks for.
package struct LongwiredArguments: Equatable, Sendable {
    package enum Action: Equatable, Sendable { case run, check, help, version }

    package var action = Action.run
    /// `nil`: the embedded defaults.
    package var configurationFile: String?
    /// Take the wall clock as it is, even when it stands more than an hour ahead of the gateway's time.
    package var acceptsClock = false

    /// A command line that cannot be understood.
    ///
    /// Exit code 64.
    package struct UsageError: Error, Equatable, CustomStringConvertible {
        package var reason: String
        package var description: String { "longwired: \(reason)\nTry `longwired --help`." }

        init(reason: String) { self.reason = reason }

        init(_ fault: ArgumentFault) {
            // Only `--config` takes a value.
            if case .needsValue(let option) = fault {
                self.init(reason: "\(option) needs a FILE")
            } else {
                self.init(reason: fault.description)
            }
        }
    }

    package init() {}

    private static let options = ["--config", "--check", "--accept-clock", "--help", "--version"]

    /// Reads a command line.
    ///
    /// - Parameter arguments: without the program's name.
    /// - Throws: `UsageError` for what it does not know.
    package init(_ arguments: some Sequence<String>) throws(UsageError) {
        var reader = ArgumentReader(arguments) { UsageError($0) }
        while let word = try reader.next() {
            switch word {
            case .option("--help"), .option("-h"): action = .help
            case .option("--version"): if action != .help { action = .version }
            case .option("--check"): if action == .run { action = .check }
            case .option("--accept-clock"): acceptsClock = true
            case .option("--config"), .option("-c"): try setFile(try reader.value())
            case .option(let text):
                let near = Suggestion.hint(for: text, among: Self.options)
                throw UsageError(reason: "unknown argument \(text.debugDescription)\(near)")
            case .operand(let text):
                throw UsageError(reason: "unknown argument \(text.debugDescription); a file is named by --config FILE")
            }
        }
    }

    private mutating func setFile(_ file: String) throws(UsageError) {
        guard configurationFile == nil else { throw UsageError(reason: "--config is given twice") }
        guard !file.isEmpty else { throw UsageError(reason: "--config needs a FILE") }
        configurationFile = file
    }

    package static let helpText = """
        longwired: the Longwire gateway.

        Usage: longwired [--config FILE] [--check] [--accept-clock]
               longwired --help | --version

          --config FILE   The JSON5 configuration; docs/Operations.md lists its keys. Without it: data in
                          ./longwire-data, devices on 127.0.0.1:7000, senders on 127.0.0.1:7001, HTTP on
                          127.0.0.1:7080, admin on 127.0.0.1:7081, and a generated demo app whose secrets are
                          kept in ./longwire-data/demo.json.
          --check         Read the configuration and the files it names, say what is wrong with it, and stop.
                          Changes nothing.
          --accept-clock  Start at the wall clock's time even if it is more than an hour ahead of what the store
                          remembers. Messages may expire at once.
          --help          This text.
          --version       The version.

        Signals: SIGTERM and SIGINT stop cleanly; SIGHUP reads the configuration again; if the terminal has closed,
        it stops.
        Exit codes: 0 clean stop, 64 usage, 65 clients refuse a certificate (--check; a start goes on), 70 internal,
        74 store, 78 configuration.
        """
}

/// How `longwired` ends (sysexits.h).
package enum ExitCode: Int32, Sendable, CaseIterable {
    case success = 0
    /// The command line.
    case usage = 64
    /// Of `--check`: clients refuse a certificate, and nothing else is wrong; a start goes on with it.
    case certificate = 65
    /// A fault of ours.
    case `internal` = 70
    /// The store: damaged, of a newer version, in use by another process, or a disk that fails.
    case store = 74
    /// The configuration, or an address that cannot be bound.
    case configuration = 78
    /// The reader of standard output has left: what a shell says of a program that SIGPIPE ended.
    case readerLeft = 141
}
