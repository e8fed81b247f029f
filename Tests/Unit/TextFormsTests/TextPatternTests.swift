import TextForms
import Testing

@Suite("Text pattern")
struct TextPatternTests {
    @Test("a pattern is found where the text contains it")
    func agrees() {
        // All texts of up to six letters over two letters, so that every overlap of a pattern with itself occurs.
        let texts = (0..<127).map { String(String($0 + 1, radix: 2).dropFirst()) }
        for pattern in texts where pattern.utf8.count < 5 {
            let search = TextPattern(pattern)
            for text in texts {
                let expected = pattern.isEmpty || text.contains(pattern)
                #expect(search.isIn(text.utf8) == expected, "\(pattern) in \(text)")
            }
        }
        #expect(TextPattern("机").isIn("手机".utf8) && !TextPattern("机器").isIn("手机".utf8))
    }
}
