import Directory
import Testing
import Wire

@Suite("Name rules and quotas") struct RuleTests {
    @Test("an alias has letters, digits, _ and Chinese characters", arguments: ["a", "A_9", "王小明", "user_1", "０々"])
    func alias(text: String) {
        // Full-width digits and iteration marks are not allowed.
        #expect(NameRules.isAlias(text) == (text != "０々"))
    }

    @Test("others are not aliases", arguments: ["", " ", "a b", "a-b", "a.b", "a,b", "é", "a\n", "😀", "\u{FFFD}"])
    func noAlias(text: String) { #expect(!NameRules.isAlias(text)) }

    @Test(
        "a tag has no white space and no invisible characters",
        arguments: ["", " ", "a b", "a\tb", "\u{3000}", "\u{7F}", "\u{FFFD}"])
    func noTag(text: String) { #expect(!NameRules.isTag(text)) }

    @Test("all other readable texts are tags", arguments: ["vip", "a-b+c*d.e_f", "广州", "é", "a,b", "😀", "a/b"])
    func tag(text: String) { #expect(NameRules.isTag(text)) }
}
