import TestKit
import Testing
import Wire

@testable import Delivery
@testable import Directory

/// A token identifies one app on one phone, so only the device that registered it last owns it.
@Suite("Owners of tokens") struct TokenOwnerTests {
    private static let token = "c0ffee" + String(repeating: "a", count: 58)

    private func tokens(_ carrier: Carrier, _ phone: Phone) -> [String] {
        (carrier.harness.status(phone)?.tokens ?? []).map(\.token)
    }

    private func owner(_ carrier: Carrier, _ token: String = token, kind: TokenKind = .alert) -> [DeviceID] {
        let name = testTokenName(app: DeliveryHarness.app, channel: .apns, kind: kind, token: token)
        return carrier.entries(name).map(\.cid)
    }

    /// Performs the shard's effects as the gateway does.
    private func follow(_ carrier: Carrier) {
        while !carrier.harness.tokenNews.isEmpty {
            let news = carrier.harness.tokenNews.removeFirst()
            _ = carrier.run(.tokens(news))
        }
    }

    private func rows(_ carrier: Carrier) -> Int {
        var count = 0
        carrier.harness.store.loadAll(table: .alias) { _ in count += 1 }
        return count
    }

    @Test("a token that another device registers is removed from the first, also across a restart")
    func moves() throws {
        let carrier = Carrier()
        let first = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        #expect(owner(carrier) == [first.cid])
        carrier.harness.disconnect(first)
        carrier.harness.store.cool()
        carrier.harness.crash()
        carrier.harness.advance(1_000)
        let second = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        #expect(tokens(carrier, first).isEmpty && tokens(carrier, second) == [String(Self.token.prefix(8))])
        #expect(owner(carrier) == [second.cid])
        let status = try #require(carrier.harness.status(first))
        #expect(status.hasLostToken == true)
        #expect(carrier.harness.publish(first).fallbackReason == .noToken)
        #expect(carrier.harness.publish(second).fallback == .due)
        #expect(carrier.harness.lease().map(\.cid) == [second.cid])
        carrier.harness.crash()
        #expect(carrier.harness.status(first)?.hasLostToken == true)
    }

    @Test("a job that was due when its token moved ends without an alert, with the reason")
    func dueJob() throws {
        let carrier = Carrier()
        let first = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        carrier.harness.disconnect(first)
        let outcome = carrier.harness.publish(first, strategy: .vendorOnly)
        carrier.harness.advance(1)
        _ = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        #expect(carrier.harness.lease().isEmpty)
        let trace = try #require(carrier.harness.trace(outcome.message))
        #expect(trace.finalState == .failed && trace.finalReason == "tokenMoved")
    }

    @Test("a job that was leased when its token moved does not change")
    func leasedJob() throws {
        let carrier = Carrier()
        let first = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        carrier.harness.disconnect(first)
        _ = carrier.harness.publish(first)
        let job = try #require(carrier.harness.lease().first)
        carrier.harness.advance(1)
        _ = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        carrier.harness.settle(job, .accepted)
        #expect(carrier.harness.verdicts.last?.map(\.verdict) == [.recorded])
    }

    @Test(
        "every kind of token has one owner, in any case and environment, separately per app"
    )
    func kinds() {
        for kind: VendorToken.Kind in VendorToken.Kind.allCases {
            let carrier = Carrier()
            let first = carrier.harness.register(), other = carrier.harness.register(app: DeliveryHarness.otherApp)
            let named = VendorToken(kind: kind, token: "abcd12", activity: kind == .liveActivity ? "ride" : "")
            carrier.harness.update(first) { $0.tokens = [named] }
            carrier.harness.update(other) { $0.tokens = [named] }
            follow(carrier)
            carrier.harness.advance(1)
            let second = carrier.harness.register()
            carrier.harness.update(second) {
                var same = named
                (same.token, same.environment) = ("ABCD12", .sandbox)
                $0.tokens = [same]
            }
            follow(carrier)
            #expect(tokens(carrier, first).isEmpty && tokens(carrier, second) == ["ABCD12"], "\(kind)")
            #expect(carrier.harness.status(other, app: DeliveryHarness.otherApp)?.tokens.count == 1, "\(kind)")
        }
    }

    @Test("a first device that reconnects with the token owns it again, without its quarantine")
    func back() throws {
        let carrier = Carrier()
        var first = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        _ = carrier.harness.publish(first)
        carrier.harness.settle(try #require(carrier.harness.lease().first), .badToken)
        carrier.harness.advance(1)
        let second = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        #expect(carrier.harness.publish(second).fallback == .due)
        carrier.harness.advance(1)
        carrier.harness.connect(&first, state: .background) { $0.tokens = [VendorToken(token: Self.token)] }
        follow(carrier)
        #expect(tokens(carrier, second).isEmpty && owner(carrier) == [first.cid])
        #expect(carrier.harness.status(first)?.hasLostToken == false)
    }

    @Test("a Hello does not claim a token that is known to be the device's own")
    func claimedOnce() {
        let carrier = Carrier()
        var phone = carrier.harness.register(token: Self.token)
        #expect(carrier.harness.tokenNews.count == 1)
        follow(carrier)
        for _ in 0..<2 {
            carrier.harness.connect(&phone) { $0.tokens = [VendorToken(token: Self.token)] }
            #expect(carrier.harness.tokenNews.isEmpty)
            carrier.harness.crash()
        }
        carrier.harness.connect(&phone)
        carrier.harness.update(phone) { $0.tokens = [VendorToken(token: Self.token)] }
        #expect(carrier.harness.tokenNews.count == 1, "the vendor gave it again")
    }

    @Test("a claim that a crash interrupts after any of its steps is completed without a Hello", arguments: 0...4)
    func interrupted(stepCount: Int) {
        var random = Seeded(state: 1)
        let carrier = Carrier()
        let first = carrier.harness.register(state: .background, token: Self.token)
        follow(carrier)
        carrier.harness.disconnect(first)
        carrier.harness.advance(1)
        let second = carrier.harness.register(state: .background, token: Self.token)
        for news in carrier.harness.tokenNews { carrier.begin(.tokens(news)) }
        for _ in 0..<stepCount {
            carrier.sendOne(&random)
            carrier.takeOne(&random)
        }
        carrier.crash()
        carrier.harness.tokenNews = []
        carrier.harness.advance(2_000)
        follow(carrier)
        #expect(tokens(carrier, first).isEmpty && tokens(carrier, second).count == 1)
        #expect(owner(carrier) == [second.cid])
        #expect(carrier.harness.publish(first).fallbackReason == .noToken)
        // A confirmed claim has no alarm.
        for _ in 0..<5 {
            carrier.harness.store.cool()
            carrier.harness.advance(3_600_000)
        }
        #expect(carrier.harness.tokenNews.isEmpty && carrier.harness.store.violations.isEmpty)
    }

    @Test("a claim that is never confirmed is repeated at growing intervals")
    func unconfirmed() {
        let carrier = Carrier()
        var phone = carrier.harness.register(token: Self.token)
        carrier.harness.connect(&phone)
        carrier.harness.disconnect(phone)
        var counts: [Int] = []
        for _ in 0..<2 {
            carrier.harness.tokenNews = []
            for _ in 0..<300 {
                carrier.harness.store.cool()
                carrier.harness.advance(60_000)
            }
            counts.append(carrier.harness.tokenNews.count)
        }
        #expect((6...14).contains(counts[0]) && (4...6).contains(counts[1]), "in two times five hours: \(counts)")
        #expect(tokens(carrier, phone).count == 1 && carrier.harness.store.violations.isEmpty)
    }

    @Test("a connected device that claims a token is established only after a day")
    func connectedClaim() {
        let carrier = Carrier()
        let phone = carrier.harness.register(token: Self.token)
        carrier.harness.store.cool()
        carrier.harness.advance(2_000)
        carrier.harness.disconnect(phone)
        carrier.harness.store.cool()
        carrier.harness.advance(carrier.harness.limits.sessionlessDeviceLifetime + 120_000)
        #expect(carrier.harness.status(phone) == nil)
    }

    @Test("rows are removed with their tokens: by replacement, removal, move or deletion of the device")
    func rowsGo() {
        let carrier = Carrier()
        let phone = carrier.harness.register(token: "aa")
        follow(carrier)
        carrier.harness.update(phone) { $0.tokens = [VendorToken(token: "bb"), VendorToken(kind: .voip, token: "cc")] }
        follow(carrier)
        #expect(owner(carrier, "aa").isEmpty && owner(carrier, "bb") == [phone.cid] && rows(carrier) == 2)
        carrier.harness.advance(1)
        let other = carrier.harness.register(token: "bb")
        follow(carrier)
        #expect(owner(carrier, "bb") == [other.cid] && rows(carrier) == 2)
        carrier.harness.update(other) { $0.tokens = [VendorToken(token: "")] }
        follow(carrier)
        #expect(owner(carrier, "bb").isEmpty && rows(carrier) == 1)
        // Neither device reconnected within a day.
        carrier.harness.disconnect(phone)
        carrier.harness.disconnect(other)
        carrier.harness.store.cool()
        carrier.harness.advance(carrier.harness.limits.sessionlessDeviceLifetime + 120_000)
        carrier.harness.flush()
        follow(carrier)
        #expect(carrier.harness.status(phone) == nil && rows(carrier) == 0)
    }

    @Test("a claim older than the owner's loses, and a deleted device owns no token")
    func order() {
        let carrier = Carrier()
        let first = carrier.harness.register(token: Self.token)
        carrier.harness.advance(1)
        let second = carrier.harness.register(token: Self.token)
        // The later claim arrives first.
        let news = carrier.harness.tokenNews
        carrier.harness.tokenNews = []
        for item in news.reversed() { _ = carrier.run(.tokens(item)) }
        #expect(owner(carrier) == [second.cid])
        #expect(tokens(carrier, first).isEmpty && tokens(carrier, second).count == 1)
        let ghost = AliasEntry(cid: DeviceID(high: 1, low: 99), bucket: Bucket(1), stamp: 1)
        let name = testTokenName(app: DeliveryHarness.app, channel: .apns, kind: .alert, token: "dd")
        #expect(carrier.harness.ask(.takeToken(name, ghost, lost: nil), name.bucket) == .tokenTaken)
        carrier.harness.update(second) { $0.tokens = [VendorToken(token: "dd")] }
        follow(carrier)
        #expect(owner(carrier, "dd") == [second.cid])
    }

    // Goal: no two devices keep a token after each has sent another Hello, for any crash and any order of steps.
    //
    // Method: devices that register few tokens, with steps in random order, crashes and cold rows.
    @Test("with any interleaving and any crash a token belongs to one device", arguments: 0..<40)
    func interleavings(seed: UInt64) {
        var random = Seeded(state: seed &* 0xA51D &+ 3)
        let carrier = Carrier()
        var phones = (0..<4).map { _ in carrier.harness.register() }
        let texts = ["aa", "bb"]
        func hello(_ index: Int) {
            carrier.harness.advance(1)
            let text = texts.randomElement(using: &random)!
            carrier.harness.connect(&phones[index]) { $0.tokens = [VendorToken(token: text)] }
        }
        for _ in 0..<160 {
            for news in carrier.harness.tokenNews { carrier.begin(.tokens(news)) }
            carrier.harness.tokenNews = []
            switch Int.random(in: 0..<40, using: &random) {
            case 0..<6: hello(phones.indices.randomElement(using: &random)!)
            case 6: carrier.harness.store.cool { _ in Bool.random(using: &random) }
            case 7 where Bool.random(using: &random): carrier.crash()
            case 8..<22: carrier.sendOne(&random)
            default: carrier.takeOne(&random)
            }
        }
        carrier.crash()
        carrier.harness.tokenNews = []
        for index in phones.indices {
            hello(index)
            follow(carrier)
        }
        for text in texts {
            let holders = phones.filter { tokens(carrier, $0).contains(text) }.map(\.cid)
            #expect(holders.count <= 1, "seed \(seed), \(text)")
            #expect(holders.isEmpty || owner(carrier, text) == holders, "seed \(seed), \(text)")
        }
    }
}
