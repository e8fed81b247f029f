internal import CommandLineTool
internal import Glibc
internal import LoadGenerator
internal import StoreCopying

@main
struct Longwire {
    static func main() {
        CommandLineTool.prepareProcess()
        let arguments = Array(CommandLine.arguments.dropFirst())
        // The load generator has a parser and exit codes of its own.
        if arguments.first == "bench" {
            exit(LoadGenerator.run(arguments: Array(arguments.dropFirst()), version: CommandLineTool.version))
        }
        exit(CommandLineTool.run(arguments, with: StoreCommands.all).rawValue)
    }
}
