import Testing
import TextForms

@testable import Gateway

@Suite("Command line of longwired")
struct LongwiredArgumentsTests {
    @Test("valid arguments are parsed")
    func understood() throws {
        #expect(try LongwiredArguments([]).action == .run)
        let check = try LongwiredArguments(["--check", "--config", "f"])
        #expect(check.action == .check)
        #expect(check.configurationFile == "f")
        #expect(try LongwiredArguments(["--config=f"]).configurationFile == "f")
        #expect(try LongwiredArguments(["--check", "--help"]).action == .help)
        #expect(try LongwiredArguments(["--version"]).action == .version)
        #expect(try LongwiredArguments(["--accept-clock"]).acceptsClock)
    }

    @Test(
        "an unknown argument is a usage error",
        arguments: [
            ["x"], ["--confg", "f"], ["--config"], ["--config="], ["-c", "a", "-c", "b"], ["-c=a"], ["--check=1"],
            ["--help="],
        ])
    func notUnderstood(arguments: [String]) {
        #expect(throws: CommandFailure.self) { try LongwiredArguments(arguments) }
    }

    @Test("a usage error suggests a similar option")
    func meant() {
        let slip = #expect(throws: CommandFailure.self) { try LongwiredArguments(["--confg", "f"]) }
        #expect(slip?.message == "unknown option --confg; did you mean --config?\nTry: longwired --help")
        let bare = #expect(throws: CommandFailure.self) { try LongwiredArguments(["file.json5"]) }
        #expect(bare?.message.contains("a file is named by --config FILE") == true)
    }

    @Test("the help names every option")
    func help() {
        for option in ["--config", "--check", "--accept-clock", "--help", "--version"] {
            #expect(LongwiredArguments.helpText.contains(option))
        }
    }
}
