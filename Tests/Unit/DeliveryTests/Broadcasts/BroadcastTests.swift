import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Broadcasts")
struct BroadcastTests {
    private let world = BroadcastHarness()
    private var harness: DeliveryHarness { world.harness }

    @Test("a broadcast reaches all reachable devices once, in stream 1, and their acks settle it")
    func reachesEverybody() {
        let phones = (0..<5).map { _ in harness.register() }
        let record = world.send("hello")
        let delivered = harness.takeDelivered()
        #expect(delivered.count == 5 && delivered.allSatisfy { $0.stream == 1 && $0.sequence == 1 && !$0.isOffline })
        #expect(Set(delivered.map(\.session)) == Set(phones.map(\.session)))
        #expect(Set(delivered.map(\.message)).count == 5 && delivered.allSatisfy { $0.payload == "hello" })
        #expect(world.totals(record).accepted == 5 && world.totals(record).pending == 5)
        for phone in phones { world.acknowledge(phone, 1) }
        let totals = world.totals(record)
        #expect(totals[.delivered] == 5 && totals.pending == 0 && totals.live.sent == 5 && totals.live.received == 5)
        world.enumerate()
        #expect(harness.takeDelivered().isEmpty && world.totals(record).accepted == 5)
        #expect(world.imbalance([record]) == nil)
    }

    @Test("a broadcast is announced to the loops when it is durable, and a Deliver waits for its own ledger row")
    func durable() {
        _ = harness.register()
        let record = world.record()
        harness.shard.ask(
            CreateTask(record, key: .none, digest: 0), origin: Origin(route: 3, request: 1),
            now: harness.now)
        harness.drain()
        #expect(harness.launched.isEmpty && harness.answers[1] == nil)
        harness.store.sync()
        harness.drain()
        #expect(harness.launched.count == 1 && harness.delivered.isEmpty, "the ledger row is not synced yet")
        harness.flush()
        #expect(harness.delivered.count == 1)
    }

    @Test("an offline device gets the broadcast once, with the offline flag, when it reconnects")
    func away() {
        var phone = harness.register()
        harness.disconnect(phone)
        let record = world.send()
        world.advance(60_000)
        #expect(harness.takeDelivered().isEmpty)
        harness.connect(&phone)
        let delivered = harness.takeDelivered()
        #expect(delivered.count == 1 && delivered[0].stream == 1)
        world.acknowledge(phone, 1)
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 1)] }
        #expect(harness.takeDelivered().isEmpty)
        #expect(world.totals(record).ended == 1 && world.imbalance([record]) == nil)
    }

    @Test("a device that registers later does not get it, because its cursor is the head")
    func later() {
        let record = world.send()
        let phone = harness.register()
        #expect(harness.takeDelivered().isEmpty)
        let second = world.send("second")
        let delivered = harness.takeDelivered()
        #expect(delivered.map(\.sequence) == [2] && delivered.map(\.session) == [phone.session])
        world.advance(7_300_000)
        #expect(world.totals(record).accepted == 0 && world.totals(second).accepted == 1)
    }

    @Test("broadcasts are delivered in the order of their numbers, within the window, after single pushes")
    func order() {
        let phone = harness.register()
        for number in 0..<40 { world.send("b\(number)") }
        var sequences = harness.takeDelivered().map(\.sequence)
        #expect(sequences == Array(1...32))
        world.acknowledge(phone, 5)
        sequences = harness.takeDelivered().map(\.sequence)
        #expect(sequences == Array(33...37))
        _ = harness.publish(phone, "single")
        world.acknowledge(phone, 6)
        let next = harness.takeDelivered()
        #expect(next.map(\.stream) == [0], "single pushes go first")
        world.acknowledge(phone, 37)
        #expect(harness.takeDelivered().map(\.sequence) == [38, 39, 40])
        world.acknowledge(phone, 40)
        harness.acknowledge(phone, 1)
        #expect(harness.status(phone)?.inFlightCount == 0)
    }

    @Test("an ack above the log's head closes the session; one with ranges settles those numbers")
    func acks() {
        let phone = harness.register(), liar = harness.register()
        let records = (0..<3).map { world.send("b\($0)") }
        world.acknowledge(phone, 0, ranges: [SequenceRange(first: 2, last: 3)])
        #expect(world.totals(records[0])[.delivered] == 0)
        #expect(world.totals(records[1])[.delivered] == 1 && world.totals(records[2])[.delivered] == 1)
        world.acknowledge(liar, 4)
        #expect(harness.closes.map(\.code) == [.badAck])
    }

    @Test("a client's rejection ends its message as failed")
    func rejected() {
        let phone = harness.register()
        let record = world.send()
        harness.shard.reject(phone.session, stream: 1, sequence: 1, reason: "poison", now: harness.now)
        harness.flush()
        #expect(world.totals(record)[.failed] == 1)
        #expect(world.totals(record).failures == ["rejectedByClient: poison": 1])
    }

    @Test("a position replaces a lost ack, also after a restart", arguments: [false, true])
    func lostAck(crashes: Bool) {
        var phone = harness.register()
        let record = world.send()
        _ = harness.takeDelivered()
        if crashes { harness.crash() } else { harness.disconnect(phone, announced: false) }
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 1)] }
        #expect(harness.takeDelivered().isEmpty)
        #expect(world.totals(record).ended == 1 && world.imbalance([record]) == nil)
    }

    @Test(
        "messages in flight when the session ended are sent again in the next, also after a restart",
        arguments: [false, true])
    func again(crashes: Bool) {
        var phone = harness.register()
        let records = [world.send("one"), world.send("two")]
        world.acknowledge(phone, 1)
        _ = harness.takeDelivered()
        if crashes { harness.crash() } else { harness.disconnect(phone, announced: false) }
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 1)] }
        #expect(harness.takeDelivered().map(\.payload) == ["two"])
        world.acknowledge(phone, 2)
        #expect(records.allSatisfy { world.totals($0).ended == 1 })
        #expect(world.imbalance(records) == nil)
    }

    @Test("a position above the head indicates a restored store: the epoch changes and no message is settled")
    func restoredStore() {
        var phone = harness.register()
        world.send()
        _ = harness.takeDelivered()
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 1, sequence: 9)] }
        #expect(harness.welcomes.last?.welcome.queueEpoch == 8)
        #expect(harness.takeDelivered().map(\.sequence) == [1])
    }

    // MARK: Tags

    @Test("the shard evaluates tags once and skips devices that do not match")
    func tags() {
        let both = harness.register(), one = harness.register(), none = harness.register()
        world.setTags(both, ["a", "b"])
        world.setTags(one, ["a"])
        let narrow = world.send("narrow", to: BroadcastHarness.tags(["a", "b"]))
        let not = world.send("not", to: BroadcastHarness.tags(["a"], .none))
        let all = world.send("all")
        let delivered = harness.takeDelivered()
        func payloads(_ phone: Phone) -> [String] { delivered.filter { $0.session == phone.session }.map(\.payload) }
        #expect(payloads(both) == ["narrow", "all"] && payloads(one) == ["all"] && payloads(none) == ["not", "all"])
        // A later change of tags does not change the decision.
        world.setTags(none, ["a", "b"])
        world.acknowledge(none, 3)
        world.advance(7_300_000)
        #expect(world.totals(narrow).accepted == 1 && world.totals(not).accepted == 1)
        #expect(world.totals(all).accepted == 3 && world.imbalance([narrow, not, all]) == nil)
    }

    @Test("the enumerator and the end of a broadcast also evaluate tags")
    func tagsOfAbsent() {
        let tagged = harness.register(token: "t"), other = harness.register(token: "t")
        world.setTags(tagged, ["a"])
        harness.disconnect(tagged)
        harness.disconnect(other)
        let record = world.send(to: BroadcastHarness.tags(["a"]))
        world.enumerate()
        #expect(harness.lease().map(\.cid) == [tagged.cid])
        let second = world.send(to: BroadcastHarness.tags(["a"]), vendor: false)
        world.advance(7_300_000)
        #expect(world.totals(second)[.expired] == 1 && world.totals(second).accepted == 1)
        #expect(world.totals(record).accepted == 1)
    }

    // MARK: Devices that must not be reached

    @Test("blacklisted devices are skipped, and those with push mode off wait until it is on")
    func silenced() {
        let black = harness.register(token: "t")
        var silent = harness.register(token: "t")
        _ = harness.ask(.setBlacklisted(black.cid, true), black.bucket)
        harness.update(silent) { $0.pushModeOff = true }
        let record = world.send()
        #expect(harness.takeDelivered().isEmpty)
        world.enumerate()
        #expect(harness.lease().isEmpty, "held while push mode is off")
        #expect(world.totals(record).accepted == 1)
        harness.connect(&silent)
        harness.update(silent) { $0.pushModeOff = false }
        #expect(harness.takeDelivered().map(\.session) == [silent.session])
    }

    private func blacklist(_ phone: Phone, _ isOn: Bool) {
        #expect(harness.ask(.setBlacklisted(phone.cid, isOn), phone.bucket) == .done)
    }

    @Test(
        "a broadcast sent while a device is blacklisted never reaches it", arguments: 0..<4, [false, true])
    func duringBlacklist(presence: Int, isEnumerated: Bool) {
        var phone = harness.register(token: "t")
        if presence == 3 { harness.disconnect(phone) }
        blacklist(phone, true)
        let record = world.send("during")
        if isEnumerated { world.enumerate() }
        if presence == 1 { harness.connect(&phone) }
        if presence == 2 {
            harness.store.cool()
            harness.crash()
            harness.connect(&phone)
        }
        blacklist(phone, false)
        if presence == 3 {
            harness.crash()
            harness.connect(&phone)
        }
        world.enumerate()
        #expect(harness.takeDelivered().isEmpty && harness.lease().isEmpty)
        let later = world.send("later")
        #expect(harness.takeDelivered().map(\.payload) == ["later"])
        #expect(world.totals(record).accepted == 0 && world.totals(later).accepted == 1)
        #expect(world.imbalance([record, later]) == nil)
    }

    @Test("a broadcast from before a device was blacklisted stays queued and arrives afterwards", arguments: 0..<4)
    func beforeBlacklist(presence: Int) {
        var phone = harness.register(state: .background, token: "t")
        if presence > 0 { harness.disconnect(phone) }
        let old = world.send("old")
        if presence == 2 {
            harness.store.cool()
            harness.crash()
        }
        blacklist(phone, true)
        let during = world.send("during")
        #expect(world.totals(old).accepted == 1 && world.totals(during).accepted == 0)
        if presence == 3 {
            harness.store.cool()
            harness.crash()
        }
        world.enumerate()
        #expect(harness.lease().isEmpty)
        if presence == 0 { harness.become(.foreground, phone) } else { harness.connect(&phone) }
        #expect(harness.takeDelivered().isEmpty)
        blacklist(phone, false)
        let delivered = harness.takeDelivered()
        #expect(delivered.map(\.payload) == ["old"] && delivered.allSatisfy(\.isOffline))
        world.acknowledge(phone, 1)
        #expect(world.totals(old)[.deliveredOffline] == 1 && world.totals(during).accepted == 0)
        #expect(world.imbalance([old, during]) == nil && harness.store.violations.isEmpty)
    }

    @Test("broadcasts that wait for the window when their device is blacklisted arrive afterwards")
    func windowAtBlacklist() {
        let phone = harness.register()
        for number in 1...40 { world.send("b\(number)") }
        #expect(harness.takeDelivered().count == 32)
        blacklist(phone, true)
        world.send("during")
        blacklist(phone, false)
        world.acknowledge(phone, 32)
        world.send("later")
        #expect(harness.takeDelivered().map(\.sequence) == Array(33...40) + [42])
    }

    @Test("a background device gets an alert after the deadline, and later the message with the offline flag")
    func background() {
        let phone = harness.register(state: .background, token: "t")
        let record = world.send()
        #expect(harness.takeDelivered().isEmpty)
        world.enumerate()
        let jobs = harness.lease()
        #expect(jobs.map(\.task) == [record.id])
        harness.settle(jobs[0], .accepted)
        harness.become(.foreground, phone)
        let delivered = harness.takeDelivered()
        #expect(delivered.count == 1 && delivered[0].isOffline && delivered[0].alertedAt > 0)
        world.acknowledge(phone, 1)
        let totals = world.totals(record)
        #expect(totals[.deliveredOffline] == 1 && totals.vendor.sent == 1 && totals.live.received == 1)
        #expect(world.message(record, phone)?.finalState == .deliveredOffline)
    }

    @Test("a missed ack creates a job at the deadline, and a late ack cancels it")
    func missedAck() {
        let phone = harness.register(token: "t")
        let record = world.send()
        world.advance(10_001)
        #expect(harness.statistics.missedAckDeadlines == 1 && harness.hasDueJobs)
        world.acknowledge(phone, 1)
        #expect(!harness.hasDueJobs && world.totals(record)[.deliveredOffline] == 1)
        #expect(harness.rowCount(.job) == 0)
    }

    @Test("a device that disconnects without an ack is alerted at once")
    func leaves() {
        let phone = harness.register(token: "t")
        let record = world.send()
        harness.disconnect(phone)
        #expect(harness.lease().map(\.task) == [record.id])
    }

    @Test("a message opened from the notification ends as opened and is not sent again")
    func opened() {
        var phone = harness.register(token: "t")
        harness.disconnect(phone)
        let record = world.send()
        world.enumerate()
        let job = harness.lease()[0]
        harness.settle(job, .accepted)
        harness.connect(&phone) { $0.opened = [job.message] }
        #expect(harness.takeDelivered().isEmpty)
        let totals = world.totals(record)
        #expect(totals[.opened] == 1 && totals.vendor.clicked == 1 && world.imbalance([record]) == nil)
    }

    @Test("at expiry alerted messages end as handedOff and others as expired, one final state per device")
    func expiry() {
        let alerted = harness.register(token: "t"), silent = harness.register(), unacked = harness.register()
        harness.disconnect(alerted)
        harness.disconnect(silent)
        let record = world.send(timeToLive: 60_000)
        world.enumerate()
        harness.settle(harness.lease()[0], .accepted)
        harness.disconnect(unacked)
        world.advance(60_000)
        let totals = world.totals(record)
        #expect(totals[.handedOff] == 1 && totals[.expired] == 2 && totals.pending == 0)
        #expect(world.imbalance([record]) == nil)
        #expect(harness.rowCount(.broadcast) == 1, "only the head is left")
        #expect(harness.statistics.liveBroadcasts == 0)
        guard case .found(let ended)? = world.ask(LoadTask(record.id, record.app)) else { return }
        #expect(ended.state == .ended)
    }

    // MARK: Time to live and strategies

    @Test("TTL 0 reaches only devices connected within a deadline, then expires without alerts")
    func zero() {
        let here = harness.register(token: "t"), away = harness.register(token: "t")
        harness.disconnect(away)
        let record = world.send(timeToLive: 0)
        #expect(harness.takeDelivered().map(\.session) == [here.session])
        world.advance(10_200)
        world.advance(100)
        #expect(!harness.hasDueJobs)
        let totals = world.totals(record)
        #expect(totals[.expired] == totals.accepted && totals.accepted == 2)
    }

    @Test("TTL −1 alerts an unreached device once, for a minute, without offline storage")
    func minusOne() {
        let here = harness.register(token: "t")
        var away = harness.register(token: "t")
        harness.disconnect(away)
        let record = world.send(timeToLive: -1)
        world.acknowledge(here, 1)
        _ = harness.takeDelivered()
        world.enumerate()
        let jobs = harness.lease()
        #expect(jobs.map(\.cid) == [away.cid] && jobs[0].expiration == 0)
        harness.settle(jobs[0], .accepted)
        harness.connect(&away)
        #expect(harness.takeDelivered().isEmpty)
        world.advance(70_000)
        let totals = world.totals(record)
        #expect(totals[.delivered] == 1 && totals[.handedOff] == 1 && totals.pending == 0)
    }

    @Test("strategy 3 uses no vendor")
    func liveOnly() {
        let phone = harness.register(token: "t")
        harness.disconnect(phone)
        let record = world.send(strategy: .liveOnly)
        world.enumerate()
        #expect(!harness.hasDueJobs && harness.dueTasks.isEmpty)
        world.advance(7_300_000)
        #expect(world.totals(record)[.expired] == 1)
    }

    @Test(
        "a scan sends strategies 2 and 4 to the devices that were registered",
        arguments: [Strategy.vendorOnly, .vendorElseLive])
    func dealt(strategy: Strategy) {
        let phones = (0..<3).map { _ in harness.register(token: "t") }
        _ = harness.ask(.setBlacklisted(phones[2].cid, true), phones[2].bucket)
        let record = world.send(strategy: strategy)
        #expect(harness.takeDelivered().isEmpty)
        harness.advance(10)
        #expect(harness.dueTasks.map(\.id) == [record.id])
        harness.letTimePass(5)
        let late = harness.register(token: "t")
        guard let found = world.ask(world.scan(harness.dueTasks[0], .deal))?.devices else {
            Issue.record("not scanned")
            return
        }
        #expect(Set(found) == Set(phones[..<2].map(\.cid)) && !found.contains(late.cid))
    }

    // MARK: Collapse

    @Test("a newer broadcast with the same key replaces an unsent older one on both channels")
    func collapse() {
        var phone = harness.register(token: "t")
        harness.disconnect(phone)
        let old = world.send("old", collapseKey: "k")
        world.enumerate()
        #expect(harness.hasDueJobs)
        let new = world.send("new", collapseKey: "k")
        #expect(harness.lease().isEmpty, "the old one's job gives way")
        #expect(world.totals(old)[.collapsed] == 1)
        _ = harness.takeDelivered()
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.payload) == ["new"])
        #expect(world.totals(new).accepted == 1)
    }

    private func end(_ record: TaskRecord, by state: FinalState) {
        guard state == .revoked else { return world.advance(30_000) }
        world.ask(ChangeTask(record.id, record.app, .stop))
        world.ask(SweepTask(record.id, record.app, BroadcastHarness.whole))
        world.ask(ChangeTask(record.id, record.app, .swept))
        world.advance(1_000)
    }

    @Test(
        "a replaced broadcast stays replaced when the newer one is stopped or expires",
        arguments: [FinalState.revoked, .expired], [[false, false], [true, false], [false, true], [true, true]])
    func replacedStaysReplaced(state: FinalState, isEvaluated: [Bool]) {
        var phone = harness.register(token: "t")
        harness.disconnect(phone)
        let old = world.send("old", collapseKey: "k")
        if isEvaluated[0] { world.enumerate() }
        let new = world.send("new", timeToLive: state == .expired ? 20_000 : 7_200_000, collapseKey: "k")
        if isEvaluated[1] { world.enumerate() }
        end(new, by: state)
        #expect(harness.statistics.liveBroadcasts == 1 && world.totals(new)[state] == 1)
        harness.store.cool()
        _ = harness.takeDelivered()
        harness.connect(&phone)
        #expect(harness.takeDelivered().isEmpty && harness.lease().isEmpty)
        #expect(world.totals(old)[.collapsed] == 1)
        #expect(world.imbalance([old, new]) == nil && harness.store.violations.isEmpty)
    }

    @Test(
        "a replaced broadcast in flight is not sent again after the newer one has ended", arguments: [false, true])
    func replacedInFlight(isCrash: Bool) {
        var phone = harness.register(token: "t")
        let old = world.send("old", collapseKey: "k"), new = world.send("new", collapseKey: "k")
        #expect(harness.takeDelivered().map(\.payload) == ["old", "new"])
        end(new, by: .revoked)
        if isCrash { harness.crash() } else { harness.disconnect(phone) }
        harness.connect(&phone)
        #expect(harness.takeDelivered().isEmpty && harness.lease().isEmpty)
        #expect(world.totals(old)[.collapsed] == 1 && world.totals(new)[.revoked] == 1)
        #expect(world.imbalance([old, new]) == nil && harness.store.violations.isEmpty)
    }

    @Test("a one-shot broadcast is sent again after an update within its deadline, and its ack counts")
    func oneShotAcrossUpdate() {
        let phone = harness.register(token: "t")
        let record = world.send("once", timeToLive: 0)
        harness.letTimePass(500)
        harness.become(.foreground, phone)
        #expect(harness.takeDelivered().map(\.payload) == ["once", "once"])
        world.acknowledge(phone, 1)
        #expect(world.totals(record)[.delivered] == 1)
    }

    @Test("a tap does not end a broadcast's message whose alert is incomplete", arguments: [false, true])
    func tapOfPart(carriesAll: Bool) throws {
        var phone = harness.register(state: .background, token: "t")
        let record = world.send("the rest", carriesAll: carriesAll)
        world.enumerate()
        let job = try #require(harness.lease().first)
        harness.settle(job, .accepted)
        harness.crash()
        harness.connect(&phone) { $0.opened = [job.message] }
        #expect(harness.takeDelivered().map(\.payload) == (carriesAll ? [] : ["the rest"]))
        if !carriesAll { world.acknowledge(phone, 1) }
        let totals = world.totals(record)
        #expect(totals[carriesAll ? .opened : .deliveredOffline] == 1 && totals.vendor.clicked == 1)
    }

    /// Sends a broadcast with contents for Apple and Android, of which only one carries all of the message.
    private func sendToBoth(isCarriedByApple: Bool) -> TaskRecord {
        var record = world.record("the rest", carriesAll: isCarriedByApple)
        let shape = MessageContent.Vendor(
            channel: .fcm, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none, messageIDOffset: -1,
            badgeOffset: -1)
        record.content.add(shape, body: Array(BroadcastHarness.content.utf8), collapseID: [])
        record.content.carryingPlatforms = isCarriedByApple ? [] : PlatformSet(.android)
        world.ask(CreateTask(record, key: .none, digest: 0))
        return record
    }

    private func registerAndroid(_ state: ApplicationState = .foreground) -> Phone {
        harness.register(state: state) { $0.tokens = [VendorToken(channel: .fcm, kind: .alert, token: "f")] }
    }

    @Test("a frame states what the alert of the device's own vendor carries", arguments: [false, true])
    func carriedByOwnVendor(isCarriedByApple: Bool) throws {
        let phones = [(harness.register(token: "t"), VendorChannel.apns), (registerAndroid(), .fcm)]
        _ = sendToBoth(isCarriedByApple: isCarriedByApple)
        let first = harness.takeDelivered()
        #expect(first.count == 2)
        for (phone, channel) in phones {
            let isCarried = isCarriedByApple == (channel == .apns)
            let fresh = first.filter { $0.session == phone.session }
            #expect(fresh.map(\.isCarriedByVendor) == [isCarried])
            harness.disconnect(phone)
            harness.settle(try #require(harness.lease(channel: channel).first), .accepted)
            var again = phone
            harness.connect(&again)
            let late = harness.takeDelivered()
            #expect(late.map(\.isCarriedByVendor) == [isCarried] && late.allSatisfy { $0.alertedAt > 0 })
        }
    }

    @Test("a tap counts for the vendor of the alert, also after its token was refused", arguments: [false, true])
    func tapAfterRefusedToken(isCarriedByApple: Bool) throws {
        var phone = registerAndroid(.background)
        let record = sendToBoth(isCarriedByApple: isCarriedByApple)
        world.enumerate()
        let job = try #require(harness.lease(channel: .fcm).first)
        harness.settle(job, .accepted)
        func take(_ kind: VendorReceipt.Kind, token: String = "") {
            let receipt = VendorReceipt(message: job.message, kind: kind, token: token, at: 0)
            #expect(harness.ask(TakeReceipts(receipts: [receipt], apps: nil))?.first?.verdict == .recorded)
        }
        take(.badToken, token: "f")
        harness.disconnect(phone)
        harness.connect(&phone, state: .background)
        take(.clicked)
        harness.become(.foreground, phone)
        let delivered = harness.takeDelivered()
        #expect(delivered.map(\.payload) == (isCarriedByApple ? ["the rest"] : []))
        #expect(delivered.allSatisfy { !$0.isCarriedByVendor })
        #expect(world.totals(record)[.opened] == (isCarriedByApple ? 0 : 1))
    }

    @Test("an older broadcast in flight stays, and its ack counts")
    func collapseInFlight() {
        let busy = harness.register()
        let old = world.send("old", collapseKey: "k"), new = world.send("new", collapseKey: "k")
        #expect(harness.takeDelivered().map(\.payload) == ["old", "new"])
        world.acknowledge(busy, 2)
        #expect(world.totals(old)[.delivered] == 1 && world.totals(new)[.delivered] == 1)
    }

    @Test("an older broadcast whose ack may be in transit stays after an update", arguments: [false, true])
    func collapseAfterUpdate(isAcked: Bool) {
        let phone = harness.register(token: "t")
        let old = world.send("old", collapseKey: "k")
        #expect(harness.takeDelivered().map(\.payload) == ["old"])
        harness.become(.background, phone)
        let new = world.send("new", collapseKey: "k")
        world.enumerate()
        #expect(harness.lease().map(\.task) == [new.id] && world.totals(old).pending == 1)
        harness.become(.foreground, phone)
        #expect(harness.takeDelivered().map(\.payload) == ["new"], "the replaced one is not sent again")
        if isAcked { world.acknowledge(phone, 1) } else { harness.disconnect(phone) }
        #expect(world.totals(old)[isAcked ? .deliveredOffline : .collapsed] == 1)
        #expect(world.totals(new).pending == 1 && world.imbalance([old, new]) == nil)
    }

    @Test("a lease leaves a replaced broadcast to the ack of a suspect session", arguments: [false, true])
    func replacedWhileSuspect(isAcked: Bool) {
        let phone = harness.register(token: "t")
        let old = world.send("old", collapseKey: "k")
        #expect(harness.takeDelivered().map(\.payload) == ["old"])
        world.advance(10_001)
        #expect(harness.hasDueJobs)
        let new = world.send("new", collapseKey: "k")
        #expect(harness.lease().isEmpty && !harness.hasDueJobs, "the old one's job gives way")
        #expect(world.totals(old).pending == 1)
        if isAcked { world.acknowledge(phone, 1) } else { harness.disconnect(phone) }
        #expect(world.totals(old)[isAcked ? .deliveredOffline : .collapsed] == 1)
        if isAcked { harness.shard.heard(phone.session, now: harness.now) }
        harness.flush()
        #expect(harness.takeDelivered().map(\.payload) == (isAcked ? ["new"] : []))
        #expect(world.imbalance([old, new]) == nil && harness.store.violations.isEmpty)
    }

    @Test(
        "a newer broadcast that skipped the device replaces nothing, whatever tags the device gets later",
        arguments: [false, true], [false, true])
    func skippedReplacesNothing(wasSent: Bool, crashes: Bool) {
        var phone = harness.register(token: "t")
        if !wasSent { harness.disconnect(phone) }
        let old = world.send("old", collapseKey: "k")
        if !wasSent { world.enumerate() }
        let new = world.send("new", to: BroadcastHarness.tags(["vip"]), collapseKey: "k")
        // The third one makes the shard evaluate the second for the device, also if the device is away.
        let other = world.send("other")
        if wasSent { harness.disconnect(phone) } else { world.enumerate() }
        world.setTags(phone, ["vip"])
        harness.store.cool()
        if crashes { harness.crash() }
        harness.advance(10)
        #expect(Set(harness.lease().map(\.task)) == [old.id, other.id])
        _ = harness.takeDelivered()
        harness.connect(&phone)
        #expect(harness.takeDelivered().map(\.payload) == ["old", "other"])
        world.acknowledge(phone, 3)
        #expect(world.totals(old)[.deliveredOffline] == 1 && world.totals(new).accepted == 0)
        #expect(world.imbalance([old, new, other]) == nil && harness.store.violations.isEmpty)
    }
}
