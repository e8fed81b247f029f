import FuzzTargets
import Testing

/// A route that the gateway serves but the grammar lacks would never be fuzzed.
@Suite("The gateway fuzzer's grammar covers every route")
struct GatewayGrammarTests {
    @Test("the grammar has one production for each call of both listeners, and no others")
    func everyCall() {
        #expect(calls(GatewayGrammar.known.open) == calls(GatewayGrammar.served.open))
        #expect(calls(GatewayGrammar.known.admin) == calls(GatewayGrammar.served.admin))
    }

    /// Excludes HEAD, which the API handles as GET.
    private func calls(_ calls: [String]) -> [String] { calls.filter { !$0.hasPrefix("HEAD ") }.sorted() }
}
