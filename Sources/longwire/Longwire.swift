internal import CommandLineTool
internal import Foundation

@main
struct Longwire {
    static func main() {
        exit(CommandLineTool.run(Array(CommandLine.arguments.dropFirst())).rawValue)
    }
}
