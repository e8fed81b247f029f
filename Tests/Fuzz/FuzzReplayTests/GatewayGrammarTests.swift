import FuzzTargets
import Testing

/// A call that the gateway serves and the fuzzer never makes would be one that nobody fuzzes.
@Suite("The gateway fuzzer's grammar")
struct GatewayGrammarTests {
    @Test("there is a production for each call of both doors, and for no other")
    func everyCall() {
        #expect(GatewayGrammar.known.open.sorted() == GatewayGrammar.served.open.sorted())
        #expect(GatewayGrammar.known.admin.sorted() == GatewayGrammar.served.admin.sorted())
    }
}
