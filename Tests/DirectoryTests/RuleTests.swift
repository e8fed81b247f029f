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

    @Test("calls are counted by app, kind, minute and day; a refused one does not count")
    func quotas() {
        var counts = CallCounts()
        let quota = CallQuota(perMinute: 2, perDay: 3)
        let (app, other) = (AppKey(1), AppKey(2))
        let day: Int64 = 20_000 * 86_400_000
        func charge(_ app: AppKey, _ call: CountedCall, _ time: Int64) -> QuotaVerdict {
            counts.charge(app, call, quota, now: day + time)
        }
        #expect(charge(app, .tagChange, 0) == .granted)
        #expect(charge(app, .tagChange, 59_999) == .granted)
        #expect(charge(app, .tagChange, 59_999) == .minuteExceeded)
        #expect(charge(app, .tagQuery, 59_999) == .granted)
        #expect(charge(other, .tagChange, 59_999) == .granted)
        #expect(charge(app, .tagChange, 60_000) == .granted)
        #expect(charge(app, .tagChange, 120_000) == .dayExceeded)
        #expect(charge(app, .tagChange, 86_400_000) == .granted)
    }

    @Test("a quota of 0 refuses nothing")
    func unlimited() {
        var counts = CallCounts()
        for _ in 0..<1_000 {
            #expect(counts.charge(AppKey(1), .tagQuery, CallQuota(perMinute: 0, perDay: 0), now: 5) == .granted)
        }
    }
}
