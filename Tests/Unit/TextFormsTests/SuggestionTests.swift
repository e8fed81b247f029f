import TextForms
import Testing

@Suite("Suggestions")
struct SuggestionTests {
    @Test("a typing error has a suggestion, another word has none")
    func suggestions() {
        let words = ["trace", "push", "device", "queue"]
        for (typed, meant) in [
            ("trcae", "trace"), ("psh", "push"), ("deivce", "device"), ("queue", nil), ("dance", nil),
            ("Queue", "queue"),
        ] {
            #expect(Suggestion.nearest(to: typed, among: words) == meant)
            #expect(Suggestion.hint(for: typed, among: words) == (meant.map { "; did you mean \($0)?" } ?? ""))
        }
    }
}
