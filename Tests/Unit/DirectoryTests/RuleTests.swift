import Directory
import Testing
import Wire

@Suite("Name rules and quotas") struct RuleTests {
    @Test("an alias has letters, digits, _ and Chinese characters", arguments: ["a", "A_9", "王小明", "user_1", "０々"])
    func alias(text: String) {
        // Full-width digits and iteration marks are neither.
        #expect(NameRules.isAlias(text) == (text != "０々"))
    }

    @Test("anything else is no alias", arguments: ["", " ", "a b", "a-b", "a.b", "a,b", "é", "a\n", "😀", "\u{FFFD}"])
    func noAlias(text: String) { #expect(!NameRules.isAlias(text)) }

    @Test(
        "a tag has no white space and nothing unseen",
        arguments: ["", " ", "a b", "a\tb", "\u{3000}", "\u{7F}", "\u{FFFD}"])
    func noTag(text: String) { #expect(!NameRules.isTag(text)) }

    @Test("whatever else can be read is a tag", arguments: ["vip", "a-b+c*d.e_f", "广州", "é", "a,b", "😀", "a/b"])
    func tag(text: String) { #expect(NameRules.isTag(text)) }
}
