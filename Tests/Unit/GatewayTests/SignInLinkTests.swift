import Configuration
import Testing

@testable import Gateway

@Suite("The console's one-time link")
struct SignInLinkTests {
    private let link = SignInLink()
    private let token = Secret("an-admin-token-of-a-trial")

    @Test("a code is exchanged once")
    func once() {
        let code = Array(link.makeCode(for: token, now: 5).utf8)
        #expect(code.count == 48)
        #expect(link.take([], now: 6) == nil && link.take(Array(code.dropLast()), now: 6) == nil)
        #expect(link.take(code, now: 6) == token)
        #expect(link.take(code, now: 7) == nil)
    }

    @Test("a code ends after 15 minutes, and with the next code")
    func ends() {
        let first = Array(link.makeCode(for: token, now: 0).utf8)
        #expect(link.take(first, now: SignInLink.validMilliseconds) == nil)
        let second = Array(link.makeCode(for: token, now: 0).utf8)
        #expect(first != second && link.take(first, now: 1) == nil)
        #expect(link.take(second, now: SignInLink.validMilliseconds - 1) == token)
    }

    @Test("without a code nothing is exchanged")
    func none() {
        #expect(link.take([], now: 0) == nil)
    }
}
