import Testing

@testable import TextForms

@Suite("Texts on a terminal")
struct TerminalTextTests {
    @Test(
        "a peer's text cannot control the terminal or add a line",
        arguments: [
            ("\u{1B}]0;owned\u{7}\u{1B}[2J", #"\u001b]0;owned\u0007\u001b[2J"#),
            ("a\nb\r\tc", #"a\u000ab\u000d\u0009c"#),
            ("\u{9B}31m", #"\u009b31m"#), ("\u{7F}", #"\u007f"#), ("\u{202E}gpj", #"\u202egpj"#),
            ("\u{2028}", #"\u2028"#), ("plain 中文 ✓", "plain 中文 ✓"), ("\u{1B}[31m", #"\u001b[31m"#),
        ])
    func plain(text: String, shown: String) {
        #expect(TerminalText.plain(text) == shown)
    }

    @Test("of a program without colors only line ends and tabs are kept")
    func unpainted() {
        #expect(TerminalText.unpainted("a\n\tb\u{1B}[H\u{1B}[Jc\r") == #"a\#n\#tb\u001b[H\u001b[Jc\u000d"#)
    }

    @Test("of printed text only line ends, tabs and the programs' own colors are kept")
    func lines() {
        let own = TerminalText.Sequence.allCases.map(\.text).joined(separator: "x")
        #expect(TerminalText.lines(own + "\n\ty") == own + "\n\ty")
        #expect(TerminalText.lines("\u{1B}[8mhidden\u{1B}]0;t\u{7}") == #"\u001b[8mhidden\u001b]0;t\u0007"#)
        // A line of JSON stays valid, because the escape has the same meaning there.
        #expect(TerminalText.lines("{\"a\":\"\u{9B}\u{7F}\"}") == #"{"a":"\u009b\u007f"}"#)
    }
}
