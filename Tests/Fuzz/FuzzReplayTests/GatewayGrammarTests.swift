import FuzzTargets
import Testing

/// A call that the gateway serves and the fuzzer never makes would be one that nobody fuzzes.
@Suite("The gateway fuzzer's grammar")
struct GatewayGrammarTests {
    @Test("there is a production for each call of both doors, and for no other")
    func everyCall() {
        #expect(calls(GatewayGrammar.known.open) == calls(GatewayGrammar.served.open))
        #expect(calls(GatewayGrammar.known.admin) == calls(GatewayGrammar.served.admin))
    }

    /// Without HEAD, which the API handles as GET.
    private func calls(_ calls: [String]) -> [String] { calls.filter { !$0.hasPrefix("HEAD ") }.sorted() }
}
