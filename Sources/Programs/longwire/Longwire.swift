internal import CommandLineTool
internal import Glibc
internal import LoadGenerator
internal import TextForms

@main
struct Longwire {
    static func main() {
        CommandLineTool.prepareProcess()
        let arguments = Array(CommandLine.arguments.dropFirst())
        if arguments.first == "bench" {
            exit(LoadGenerator.run(arguments: Array(arguments.dropFirst()), version: CommandLineTool.version).rawValue)
        }
        exit(CommandLineTool.run(arguments).rawValue)
    }
}
