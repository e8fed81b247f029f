package import TextForms

/// What the command line of `longwired` asks for.
package struct LongwiredArguments: Equatable, Sendable {
    package enum Action: Equatable, Sendable { case run, check, help, version }

    package var action = Action.run
    /// `nil`: the embedded defaults.
    package var configurationFile: String?
    /// Take the wall clock as it is, even when it stands more than an hour ahead of the gateway's time.
    package var acceptsClock = false

    package init() {}

    private static let options: [CommandOption] = [
        .value(
            "config", "FILE",
            "The JSON5 configuration; docs/use/Operations.md lists its keys. Without it: data in ./longwire-data, devices on "
                + "127.0.0.1:7000, senders on 127.0.0.1:7001, HTTP on 127.0.0.1:7080, admin on 127.0.0.1:7081, and a "
                + "generated demo app whose secrets are kept in ./longwire-data/demo.json.", letter: "c"),
        .flag(
            "check",
            "Read the configuration and the files it names, say what is wrong with it, and stop. Changes nothing."),
        .flag(
            "accept-clock",
            "Start at the wall clock's time even if it is more than an hour ahead of what the store remembers. Messages may "
                + "expire at once."),
        .flag("version", "The version."),
    ]

    /// Reads a command line.
    ///
    /// - Parameter arguments: without the program's name.
    /// - Throws: for what it does not know.
    package init(_ arguments: some Sequence<String>) throws(CommandFailure) {
        let words = try ParsedArguments(arguments, of: "longwired", Self.options)
        guard !words.wantsHelp else {
            action = .help
            return
        }
        try words.refuseRepeats()
        if let text = words.operands.first {
            throw words.usage("unknown argument \(text.debugDescription); a file is named by --config FILE")
        }
        (configurationFile, acceptsClock) = (words.text("config"), words.has("accept-clock"))
        guard configurationFile != "" else { throw words.usage("--config needs a value (FILE)") }
        action = words.has("version") ? .version : words.has("check") ? .check : .run
    }

    package static let helpText = """
        longwired: the Longwire gateway.

        Usage: longwired [--config FILE] [--check] [--accept-clock]
               longwired --help | --version

        \((options + [.help]).flatMap(\.lines).joined(separator: "\n"))

        Signals: SIGTERM and SIGINT stop cleanly; SIGHUP reads the configuration again; if the terminal has closed,
        it stops.
        Exit codes: 0 clean stop, 64 usage, 65 clients refuse a certificate (--check; a start goes on), 70 internal,
        74 store, 78 configuration.
        """
}
