internal import Glibc
package import TextForms

/// The `longwire` command: finds the subcommand, parses its arguments and runs it.
package enum CommandLineTool {
    package static let version = "0.1.0"

    static let commands: [CommandSyntax] =
        [
            ConnectCommand.syntax, PushCommand.syntax, RevokeCommand.syntax, TraceCommand.trace, DeviceCommand.list,
            DeviceCommand.show, DeviceCommand.disconnect, DeviceCommand.unblacklist, DeviceCommand.device,
            AppCommand.list, AppCommand.show, AppCommand.create, AppCommand.set, AppCommand.rotate, AppCommand.enable,
            AppCommand.disable, AppCommand.delete,
            QueueCommand.peek, QueueCommand.purge, QueueCommand.replay, HandoffCommand.lease, HandoffCommand.settle,
            FollowCommand.upstream, FollowCommand.events, TopCommand.syntax, DoctorCommand.syntax, ContextCommand.list,
            ContextCommand.use, DrainCommand.drain, ClusterCommand.status, ClusterCommand.drain, ClusterCommand.move,
            HealthCommand.health,
            CommandSyntax(name: "version", summary: "Prints the version.") { _, context in
                context.write("longwire \(version)")
                return .done
            },
        ] + StoreCommands.all

    /// Prepares the process, before anything is opened.
    ///
    /// Ignores SIGPIPE, so that a closed pipe is a write error. Opens the null device for closed standard descriptors:
    /// otherwise a connection could get descriptor 1 and receive the program's output.
    package static func prepareProcess() {
        signal(SIGPIPE, SIG_IGN)
        for descriptor: CInt in 0...2 where fcntl(descriptor, F_GETFD) < 0 {
            // Descriptor 1 is opened read-only, so that writing to it fails.
            let opened = open("/dev/null", descriptor == 1 ? O_RDONLY : O_RDWR)
            if opened >= 0, opened != descriptor {
                dup2(opened, descriptor)
                close(opened)
            }
        }
    }

    /// Runs one command line, without the program's name; prints errors and returns the exit code.
    package static func run(_ arguments: [String]) -> ExitCode { run(arguments, in: .process) }

    static func run(_ arguments: [String], in context: CommandContext) -> ExitCode {
        do {
            return try dispatch(arguments, context)
        } catch let failure as CommandFailure {
            context.complain("longwire: \(failure.message)")
            return failure.code
        } catch {
            context.complain("longwire: \(error)")
            return .refused
        }
    }

    private static func dispatch(_ arguments: [String], _ context: CommandContext) throws -> ExitCode {
        guard let first = arguments.first else {
            context.complain(overview)
            return .usage
        }
        switch first {
        case "-h", "--help":
            context.write(overview)
            return .done
        case "--version": return try dispatch(["version"], context)
        case "help":
            guard arguments.count > 1 else { return try dispatch(["--help"], context) }
            return try dispatch(Array(arguments.dropFirst()) + ["--help"], context)
        default: break
        }
        let family = commands.filter { $0.name.hasPrefix(first + " ") }
        if let second = arguments.dropFirst().first {
            // Checked before the options are parsed, so that a misspelled command is reported instead of an extra argument.
            let words = family.map { String($0.name.dropFirst(first.count + 1).prefix { $0 != " " }) }
            if let near = Suggestion.nearest(to: second, among: words) {
                throw CommandFailure.usage(
                    "there is no command \(first) \(second); did you mean longwire \(first) \(near)?")
            }
        }
        for command in commands {
            let words = command.name.split(separator: " ").map(String.init)
            guard arguments.starts(with: words) else { continue }
            let parsed = try command.parse(Array(arguments.dropFirst(words.count)))
            if parsed.wantsHelp {
                context.write(command.help)
                return .done
            }
            return try command.run(parsed, context)
        }
        guard !family.isEmpty else {
            let names = commands.flatMap { [$0.name, String($0.name.prefix { $0 != " " })] } + ["bench"]
            let near = Suggestion.hint(for: first, among: names)
            throw CommandFailure.usage("there is no command \(first)\(near)\nTry: longwire --help")
        }
        if arguments.dropFirst().first == "--help" || arguments.dropFirst().first == "-h" {
            context.write(family.map(\.help).joined(separator: "\n\n"))
            return .done
        }
        throw CommandFailure.usage("say which: \(family.map { "longwire \($0.name)" }.joined(separator: ", "))")
    }

    private static var overview: String {
        let bench = "Loads a gateway and reports what it did; it has separate options (--help)."
        let rows = commands.map { ($0.name, $0.summary) } + [("bench", bench)]
        let width = 2 + (rows.map(\.0.count).max() ?? 0)
        let list = rows.map { name, summary in "  \(HelpText.pad(name, width))\(summary)" }
        return
            (["Talks to a Longwire gateway: as a device, as a publisher, as a sender service.", ""]
            + ["Usage: longwire COMMAND [options]", "", "Commands:"] + list + [
                "", "longwire COMMAND --help explains one command.", "",
                "Sources of credentials, the first found wins: options; the environment (LONGWIRE_APP_ID,",
                "LONGWIRE_APP_KEY, LONGWIRE_APP_SECRET, LONGWIRE_MASTER_SECRET, LONGWIRE_ADMIN_TOKEN, LONGWIRE_DEVICE,",
                "LONGWIRE_HTTP, LONGWIRE_ADMIN, LONGWIRE_CA, LONGWIRE_CERT, LONGWIRE_KEY); the context in use (longwire",
                "context list; --context or LONGWIRE_CONTEXT names another, which counts before the environment); demo.json",
                "in the gateway's data folder (--data, LONGWIRE_DATA, else ./longwire-data), which a gateway without a",
                "configuration writes.",
                "",
                "Exit codes: 0 done, 1 refused by the gateway, 64 wrong usage, 69 no answer, 74 standard output cannot be",
                "written, 141 its reader has left.",
            ]).joined(separator: "\n")
    }
}
