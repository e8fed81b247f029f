import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Vendors of other platforms")
struct VendorTests {
    private static let others = VendorChannel.vendors.filter { $0 != .apns }

    private func token(_ channel: VendorChannel, _ text: String) -> VendorToken {
        VendorToken(channel: channel, kind: .alert, token: text)
    }

    /// A disconnected device with these tokens, in an app with an order of vendors.
    private func away(
        _ tokens: [VendorToken], order: [VendorChannel] = []
    ) -> (harness: DeliveryHarness, phone: Phone) {
        let harness = DeliveryHarness { $0.vendorOrder = order }
        harness.furtherContents = [.fcm, .harmony]
        let phone = harness.register()
        harness.update(phone) { $0.tokens = tokens }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        return (harness, phone)
    }

    @Test("a job is leased in the channel of the device's token alone", arguments: others)
    func ownChannel(_ channel: VendorChannel) throws {
        let (harness, phone) = away([token(channel, "t")])
        let outcome = harness.publish(phone)
        #expect(outcome.fallback == .due)
        for other in VendorChannel.allCases where other != channel {
            #expect(harness.lease(channel: other).isEmpty)
        }
        let job = try #require(harness.lease(channel: channel).first)
        #expect(job.channel == channel && job.token == "t" && job.attempt == 1)
        harness.settle(job, .accepted)
        #expect(harness.trace(outcome.message)?.channel == channel)
    }

    @Test("a job of each channel survives a restart", arguments: others)
    func restart(_ channel: VendorChannel) throws {
        let (harness, phone) = away([token(channel, "t")])
        let outcome = harness.publish(phone)
        harness.crash()
        harness.letTimePass(1)
        harness.advance(1)
        #expect(harness.lease().isEmpty)
        #expect(harness.lease(channel: channel).map(\.message) == [outcome.message])
    }

    @Test("a device without a token of a content's platform gets no job")
    func noToken() {
        let (harness, phone) = away([token(.harmony, "t")])
        harness.furtherContents = [.fcm]
        #expect(harness.publish(phone).fallbackReason == .noToken)
    }

    @Test("with tokens of several vendors the app's order decides, else the order of registration")
    func order() throws {
        let both = [token(.fcm, "f"), token(.hms, "h")]
        let (plain, first) = away(both)
        _ = plain.publish(first)
        #expect(plain.lease(channel: .hms).isEmpty)
        #expect(plain.lease(channel: .fcm).map(\.token) == ["f"])
        let (ordered, second) = away(both, order: [.hms, .fcm])
        _ = ordered.publish(second)
        #expect(ordered.lease(channel: .fcm).isEmpty)
        #expect(ordered.lease(channel: .hms).map(\.token) == ["h"])
    }

    @Test("a bad token moves the job to the next vendor at once, with its attempts")
    func badToken() throws {
        let (harness, phone) = away([token(.fcm, "f"), token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .badToken, reason: "UNREGISTERED")
        #expect(harness.lease(channel: .fcm).isEmpty)
        let second = try #require(harness.lease(channel: .hms).first)
        #expect(second.message == outcome.message && second.token == "h" && second.attempt == 2)
        harness.settle(second, .badToken)
        #expect(harness.lease(channel: .hms).isEmpty && harness.lease(channel: .fcm).isEmpty)
        #expect(harness.publish(phone).fallbackReason == .noToken)
    }

    @Test("a due job follows the device to a vendor that it registers")
    func newVendor() throws {
        var (harness, phone) = away([token(.fcm, "f")])
        let outcome = harness.publish(phone)
        harness.connect(&phone, state: .background) { $0.tokens = [self.token(.fcm, ""), self.token(.hms, "h")] }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        harness.advance(1)
        #expect(harness.lease(channel: .fcm).isEmpty)
        #expect(harness.lease(channel: .hms).map(\.message) == [outcome.message])
    }

    @Test("a job on disk is leased by the vendor of the device's present token")
    func movedOnDisk() throws {
        var (harness, phone) = away([token(.fcm, "f")])
        let outcome = harness.publish(phone)
        harness.connect(&phone, state: .background) { $0.tokens = [self.token(.fcm, ""), self.token(.vivo, "v")] }
        harness.disconnect(phone)
        harness.crash()
        harness.letTimePass(1)
        harness.advance(1)
        // No sender of the old vendor has to ask first.
        #expect(harness.lease(channel: .vivo).map(\.message) == [outcome.message])
        #expect(harness.lease(channel: .fcm).isEmpty)
    }

    @Test("a job that a bad token moved is due for the next vendor after a restart, too")
    func badTokenOnDisk() throws {
        let (harness, phone) = away([token(.fcm, "f"), token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .badToken, reason: "UNREGISTERED")
        harness.crash()
        harness.letTimePass(1)
        harness.advance(60_000)
        #expect(harness.lease(channel: .hms).map(\.message) == [outcome.message])
    }

    @Test("a change of the app's order moves its due jobs, also those of devices on disk", arguments: [false, true])
    func newOrder(isOnDisk: Bool) throws {
        let (harness, phone) = away([token(.fcm, "f"), token(.hms, "h")])
        let outcome = harness.publish(phone)
        if isOnDisk {
            harness.crash()
            harness.letTimePass(1)
        }
        harness.apps[0].vendorOrder = [.hms, .fcm]
        harness.shard.reload(apps: harness.apps)
        harness.letTimePass(5)
        harness.advance(5)
        #expect(harness.lease(channel: .hms).map(\.message) == [outcome.message])
        #expect(harness.lease(channel: .fcm).isEmpty)
    }

    @Test("a day's figures are counted by vendor, each message once, also across a restart")
    func days() throws {
        let harness = DeliveryHarness()
        harness.furtherContents = [.fcm, .harmony]
        let day = UInt32(harness.now / 86_400_000)
        func figures() throws -> TaskTotals {
            try #require(harness.ask(DayQuery(DeliveryHarness.app, day: day))).messages
        }
        var messages: [VendorChannel: MessageID] = [:]
        for channel in [.apns, .fcm, .hms, .harmony] as [VendorChannel] {
            let phone = channel == .apns ? harness.register(token: "aa") : harness.register()
            if channel != .apns { harness.update(phone) { $0.tokens = [self.token(channel, "t-\(channel)")] } }
            harness.disconnect(phone)
            harness.letTimePass(5_000)
            // One of them ends with the vendor's acceptance, the others stay.
            let outcome = harness.publish(phone, strategy: channel == .hms ? .vendorOnly : .liveElseVendor)
            messages[channel] = outcome.message
            harness.settle(try #require(harness.lease(channel: channel).first), .accepted)
        }
        for (channel, message) in messages where channel != .fcm {
            for kind in [.delivered, .delivered, .clicked, .clicked] as [VendorReceipt.Kind] {
                let receipt = VendorReceipt(message: message, kind: kind, token: "", at: 0)
                _ = harness.ask(TakeReceipts(receipts: [receipt], apps: nil))
            }
        }
        var handed = TaskTotals.Channel()
        handed.sent = 1
        var clicked = handed
        (clicked.received, clicked.shown, clicked.clicked) = (1, 1, 1)
        let expected: [VendorChannel: TaskTotals.Channel] = [
            .apns: clicked, .fcm: handed, .hms: clicked, .harmony: clicked,
        ]
        for isAfterCrash in [false, true] {
            if isAfterCrash { harness.crash() }
            let found = try figures()
            #expect(found.byVendor == expected)
            #expect(found.vendor.sent == 4 && found.vendor.shown == 3 && found.vendor.clicked == 3)
        }
        // A new count adds to the rows of before.
        let phone = harness.register()
        harness.update(phone) { $0.tokens = [self.token(.hms, "another")] }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        _ = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .hms).first), .accepted)
        #expect(try figures().byVendor[.hms]?.sent == 2)
        // The day's rows leave memory; their sum stays.
        harness.letTimePass(2 * 86_400_000)
        harness.advance(1)
        #expect(try figures().byVendor[.hms]?.sent == 2 && figures().byVendor[.apns] == clicked)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("the trace of a pending message names the vendor that has it now")
    func pendingTrace() throws {
        let (harness, phone) = away([token(.fcm, "f"), token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .badToken, reason: "UNREGISTERED")
        harness.settle(try #require(harness.lease(channel: .hms).first), .accepted)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        #expect(harness.trace(outcome.message)?.channel == .hms)
    }

    @Test("a broadcast for the connection only has jobs for the vendors whose strategy allows them")
    func broadcastStrategy() throws {
        let broadcasts = BroadcastHarness()
        let harness = broadcasts.harness
        let base = broadcasts.record(strategy: .liveOnly, vendor: false)
        var content = base.content
        content.add(
            MessageContent.Vendor(
                channel: .fcm, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none, messageIDOffset: -1,
                badgeOffset: -1), body: Array("{}".utf8), collapseID: [])
        content.vendorStrategies[.fcm] = .liveElseVendor
        #expect(content.fallbackReason() == .applies)
        var record = TaskRecord(
            id: base.id, app: base.app, state: .open, createdAt: base.createdAt, validUntil: base.validUntil,
            content: content)
        record.broadcast = base.broadcast
        let phone = harness.register()
        harness.update(phone) { $0.tokens = [self.token(.fcm, "f")] }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        broadcasts.ask(CreateTask(record, key: .none, digest: 0))
        for _ in 0..<20 {
            harness.advance(1_000)
            broadcasts.runScans()
        }
        #expect(harness.lease(channel: .fcm).count == 1)
    }

    @Test("the tokens of a device have a bound over their sum")
    func tokenBytes() throws {
        let harness = DeliveryHarness()
        let phone = harness.register()
        for (index, channel) in VendorChannel.vendors.enumerated() where channel != .apns {
            harness.update(phone) {
                $0.tokens = [self.token(channel, String(repeating: "\(index)", count: 1_000))]
            }
        }
        let tokens = try #require(harness.status(phone)?.tokens)
        #expect(tokens.count == 8 && tokens.last?.channel == VendorChannel.vendors.last)
    }

    @Test("the strategy of the token's vendor counts; devices without a token use the message's")
    func strategies() throws {
        let (harness, phone) = away([token(.xiaomi, "x")])
        harness.vendorStrategies[.xiaomi] = .liveOnly
        harness.vendorStrategies[.apns] = .vendorOnly
        #expect(harness.publish(phone).fallbackReason == .strategy)
        harness.vendorStrategies[.xiaomi] = .vendorOnly
        let only = harness.publish(phone)
        let job = try #require(harness.lease(channel: .xiaomi).first)
        harness.settle(job, .accepted)
        #expect(harness.finalState(only.message) == .handedOff)
        let other = harness.register()
        #expect(harness.publish(other, strategy: .liveOnly).code == .accepted)
    }

    @Test("only tokens of Apple are equal in either case")
    func tokenNames() throws {
        let (harness, phone) = away([token(.fcm, "Ab")])
        harness.order = []
        var second = harness.register()
        harness.connect(&second, state: .background) { $0.tokens = [self.token(.fcm, "aB")] }
        #expect(harness.status(phone)?.tokens.map(\.token) == ["Ab"])
        #expect(harness.status(second)?.tokens.map(\.token) == ["aB"])
    }

    private func take(
        _ harness: DeliveryHarness, _ message: MessageID, _ kind: VendorReceipt.Kind, token: String = "",
        at: GatewayTime = 0, apps: Set<AppKey>? = nil
    ) -> ResultVerdict.Verdict? {
        let receipt = VendorReceipt(message: message, kind: kind, token: token, at: at)
        return harness.ask(TakeReceipts(receipts: [receipt], apps: apps))?.first?.verdict
    }

    private func events(_ harness: DeliveryHarness, _ message: MessageID) -> [TraceEvent] {
        harness.trace(message)?.steps.map(\.event) ?? []
    }

    @Test("a receipt of delivery is a step of the message once, also after a restart, and the message stays pending")
    func delivered() throws {
        let (harness, phone) = away([token(.vivo, "v")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .vivo).first), .accepted)
        for _ in 0..<2 {
            #expect(take(harness, outcome.message, .delivered) == .recorded)
            harness.crash()
        }
        #expect(events(harness, outcome.message).filter { $0 == .shown }.count == 1)
        #expect(harness.trace(outcome.message)?.finalState == nil)
    }

    @Test("a receipt of a click ends a message whose alert carried all of it")
    func clicked() throws {
        let (harness, phone) = away([token(.oppo, "o")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .oppo).first), .accepted)
        #expect(take(harness, outcome.message, .clicked) == .recorded)
        #expect(harness.finalState(outcome.message) == .opened)
        #expect(take(harness, outcome.message, .clicked) == .recorded)
        let part = harness.publish(phone, carriesAll: false)
        harness.settle(try #require(harness.lease(channel: .oppo).first), .accepted)
        #expect(take(harness, part.message, .clicked) == .recorded)
        #expect(harness.trace(part.message)?.finalState == nil, "the rest of it is still delivered")
    }

    @Test("a receipt for a message that the vendor took over is recorded, too")
    func handedOff() throws {
        let (harness, phone) = away([token(.honor, "o")])
        let outcome = harness.publish(phone, strategy: .vendorOnly)
        harness.settle(try #require(harness.lease(channel: .honor).first), .accepted)
        #expect(harness.finalState(outcome.message) == .handedOff)
        #expect(take(harness, outcome.message, .delivered) == .recorded)
        #expect(events(harness, outcome.message).contains(.shown))
    }

    @Test("a receipt of an uninstalled app quarantines its token, unless it was registered again since")
    func uninstalled() throws {
        var (harness, phone) = away([token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .hms).first), .accepted)
        #expect(take(harness, outcome.message, .badToken, token: "other") == .recorded)
        #expect(harness.publish(phone).fallback == .due)
        let vendorTime = harness.now
        harness.advance(1_000)
        harness.connect(&phone, state: .background)
        harness.update(phone) { $0.tokens = [self.token(.hms, "h")] }
        harness.disconnect(phone)
        #expect(take(harness, outcome.message, .badToken, token: "h", at: vendorTime) == .recorded)
        #expect(harness.publish(phone).fallback == .due)
        #expect(take(harness, outcome.message, .badToken, token: "h", at: harness.now) == .recorded)
        #expect(harness.publish(phone).fallbackReason == .noToken)
    }

    @Test("a receipt for a message that no sender leased is unknown", arguments: VendorReceipt.Kind.allCases)
    func neverLeased(kind: VendorReceipt.Kind) throws {
        var (harness, phone) = away([token(.hms, "h")])
        let outcome = harness.publish(phone)
        #expect(take(harness, outcome.message, kind, token: "h") == .unknownJob)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        harness.connect(&phone)
        harness.acknowledge(phone, 1)
        #expect(harness.finalState(outcome.message) == .deliveredOffline)
        #expect(take(harness, outcome.message, kind, token: "h") == .unknownJob)
        #expect(harness.status(phone)?.tokens.contains { $0.isQuarantined } == false)
    }

    @Test("a receipt of the vendor that had the message before another of its platform counts")
    func formerVendor() throws {
        let (harness, phone) = away([token(.fcm, "f"), token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .badToken, reason: "UNREGISTERED")
        harness.settle(try #require(harness.lease(channel: .hms).first), .accepted)
        for (channel, verdict) in [(.fcm, .recorded), (.harmony, .unknownJob)]
            as [(VendorChannel, ResultVerdict.Verdict)]
        {
            let receipt = VendorReceipt(message: outcome.message, channel: channel, kind: .delivered, token: "", at: 0)
            #expect(harness.ask(TakeReceipts(receipts: [receipt], apps: nil))?.first?.verdict == verdict)
        }
    }

    @Test("many receipts in one call get their verdicts in order, at a constant depth of calls")
    func manyReceipts() throws {
        let (harness, phone) = away([token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .hms).first), .accepted)
        let receipts = (0..<500).map { index in
            let id = index % 2 == 0 ? outcome.message : MessageID(high: outcome.message.high, low: UInt64(index))
            return VendorReceipt(message: id, kind: .delivered, token: "", at: 0)
        }
        let verdicts = try #require(harness.ask(TakeReceipts(receipts: receipts, apps: nil)))
        #expect(verdicts.map(\.job) == receipts.map(\.message))
        #expect(verdicts.count { $0.verdict == .recorded } == receipts.count / 2)
        #expect(verdicts.count { $0.verdict == .unknownJob } == receipts.count / 2)
        #expect(events(harness, outcome.message).count { $0 == .shown } == 1)
    }

    @Test("a receipt for another app's message, or for none, is unknown")
    func foreign() throws {
        let (harness, phone) = away([token(.hms, "h")])
        let outcome = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .hms).first), .accepted)
        #expect(take(harness, outcome.message, .clicked, apps: [AppKey(77)]) == .unknownJob)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        let other = MessageID(high: outcome.message.high, low: outcome.message.low &+ 1)
        #expect(take(harness, other, .clicked) == .unknownJob)
    }

    @Test("each channel and kind has its own bit")
    func bits() {
        var seen = TokenSet(rawValue: 0)
        for channel in VendorChannel.allCases {
            for kind in TokenKind.allCases where channel == .apns || kind == .alert {
                #expect(seen.isDisjoint(with: TokenSet(channel, kind)))
                seen.insert(TokenSet(channel, kind))
            }
        }
        for platform in VendorPlatform.allCases {
            let members = VendorChannel.allCases.filter { $0.platform == platform }
            let expected = members.reduce(into: TokenSet(rawValue: 0)) { $0.insert(TokenSet($1, .alert)) }
            #expect(TokenSet(platform, .alert) == expected)
        }
    }

    @Test("strategies by vendor are stored in one word, which invalid numbers do not enter")
    func words() {
        var strategies = VendorStrategies()
        for channel in VendorChannel.allCases { strategies[channel] = .vendorElseLive }
        strategies[.fcm] = nil
        let read = VendorStrategies(word: strategies.word)
        #expect(read == strategies && read?[.webPush] == .vendorElseLive && read?[.fcm] == nil)
        #expect(VendorStrategies(word: 7) == nil)
    }
}
