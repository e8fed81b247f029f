package import TextForms

package struct LongwiredArguments: Equatable, Sendable {
    package enum Action: Equatable, Sendable { case run, check, help, version }

    package var action = Action.run
    /// The configuration file; `nil` for the defaults.
    package var configurationFile: String?
    /// Whether to accept a wall clock that is more than an hour ahead of the gateway time.
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

    /// Parses a command line.
    ///
    /// - Parameter arguments: The arguments without the program's name.
    /// - Throws: `CommandFailure` for an unknown argument.
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
        Exit codes: 0 clean stop, 64 usage, 65 clients refuse a certificate (--check; a start continues), 70 internal,
        74 store, 78 configuration.
        """
}
