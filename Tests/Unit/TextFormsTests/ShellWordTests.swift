import Foundation
import Testing
import TextForms

@Suite("Words for a shell") struct ShellWordTests {
    @Test(
        "a word is quoted if a shell would interpret it",
        arguments: [
            (".build/release/longwire", ".build/release/longwire"), ("/srv/a b", "'/srv/a b'"), ("", "''"),
            ("it's", #"'it'\''s'"#), ("$HOME", "'$HOME'"), ("~/x", "'~/x'"), ("数据", "'数据'"), ("a\nb", "'a\nb'"),
        ])
    func quoted(text: String, word: String) {
        #expect(ShellWord.quoted(text) == word)
    }

    @Test(
        "a shell reads the quoted word as the text",
        arguments: ["plain", "a b", "it's", "''", "$(id) `id` \\ \" *", ""])
    func isReadBack(text: String) throws {
        let shell = Process()
        let output = Pipe()
        shell.executableURL = URL(fileURLWithPath: "/bin/sh")
        shell.arguments = ["-c", "printf %s " + ShellWord.quoted(text)]
        shell.standardOutput = output
        try shell.run()
        let read = output.fileHandleForReading.readDataToEndOfFile()
        shell.waitUntilExit()
        #expect(String(decoding: read, as: UTF8.self) == text)
    }
}
