import Structures
import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Follow-up channels")
struct FollowUpTests {
    private static let delay: Int64 = 600_000

    /// A disconnected device with these tokens; each publish has contents for APNs, FCM and SMS.
    private func away(
        _ tokens: [VendorToken] = [VendorToken(channel: .fcm, kind: .alert, token: "f")]
    ) -> (harness: DeliveryHarness, phone: Phone) {
        let harness = DeliveryHarness()
        harness.furtherContents = [.fcm, .sms]
        harness.followUpDelay = Self.delay
        let phone = harness.register()
        harness.update(phone) { $0.tokens = tokens }
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        return (harness, phone)
    }

    private func sms(_ harness: DeliveryHarness) -> [Job] { harness.lease(channel: .sms) }

    private func wait(_ harness: DeliveryHarness, _ milliseconds: Int64 = delay) {
        harness.letTimePass(milliseconds)
        harness.advance(1)
    }

    @Test("a device without a token gets the follow-up after the delay, not before")
    func noToken() throws {
        let (harness, phone) = away([])
        let outcome = harness.publish(phone)
        #expect(outcome.fallback == .due && outcome.vendor == .sms)
        wait(harness, Self.delay - 2)
        #expect(sms(harness).isEmpty)
        wait(harness, 1)
        let job = try #require(sms(harness).first)
        #expect(job.channel == .sms && job.token == "" && job.attempt == 1 && job.message == outcome.message)
        harness.settle(job, .accepted, vendorID: "s1")
        #expect(harness.trace(outcome.message)?.channel == .sms)
        // The message itself still waits for the device.
        #expect(harness.trace(outcome.message)?.finalState == nil)
    }

    @Test("a job that no vendor's sender leases in time moves to the follow-up", arguments: [false, true])
    func neverLeased(isRestarted: Bool) throws {
        let (harness, phone) = away()
        let outcome = harness.publish(phone)
        #expect(outcome.vendor == .fcm)
        if isRestarted { harness.crash() }
        wait(harness, Self.delay - 2)
        #expect(sms(harness).isEmpty)
        wait(harness, 1)
        #expect(harness.lease(channel: .fcm).isEmpty)
        let job = try #require(sms(harness).first)
        #expect(job.message == outcome.message && job.attempt == 1)
        #expect(harness.trace(outcome.message)?.steps.contains { $0.event == .followedUp } == true)
    }

    @Test(
        "the vendor's final refusal moves the job to the follow-up, which waits for its delay",
        arguments: [false, true])
    func refused(isRestarted: Bool) throws {
        let (harness, phone) = away()
        _ = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .rejected, reason: "no")
        if isRestarted { harness.crash() }
        wait(harness, Self.delay / 2)
        #expect(sms(harness).isEmpty)
        wait(harness, Self.delay / 2)
        #expect(sms(harness).count == 1)
    }

    @Test("the vendor's acceptance ends the follow-up, also a late one")
    func accepted() throws {
        let (harness, phone) = away()
        _ = harness.publish(phone)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .accepted)
        wait(harness)
        #expect(sms(harness).isEmpty)
        _ = harness.publish(phone)
        let late = try #require(harness.lease(milliseconds: 1_000, channel: .fcm).first)
        wait(harness, Self.delay)
        #expect(harness.settle(late, .accepted) == .recorded)
        #expect(sms(harness).isEmpty)
    }

    @Test("an ack before the delay ends the follow-up")
    func acked() {
        var (harness, phone) = away()
        let outcome = harness.publish(phone)
        harness.connect(&phone, state: .foreground) { _ in }
        harness.flush()
        harness.acknowledge(phone, 1)
        #expect(harness.trace(outcome.message)?.finalState == .deliveredOffline)
        harness.disconnect(phone)
        wait(harness)
        #expect(sms(harness).isEmpty)
    }

    @Test("a reachable device that does not ack gets the follow-up only after the delay")
    func overdue() {
        var (harness, phone) = away([])
        harness.connect(&phone, state: .foreground) { _ in }
        let outcome = harness.publish(phone)
        #expect(outcome.isLive)
        harness.letTimePass(20_000)
        harness.advance(1)
        #expect(sms(harness).isEmpty)
        harness.disconnect(phone)
        wait(harness, 5_000)
        #expect(sms(harness).isEmpty)
        wait(harness)
        #expect(sms(harness).map(\.message) == [outcome.message])
    }

    @Test("under strategy 2 the message ends with the follow-up's result", arguments: [true, false])
    func vendorOnly(isAccepted: Bool) throws {
        let (harness, phone) = away()
        let outcome = harness.publish(phone, strategy: .vendorOnly)
        harness.settle(try #require(harness.lease(channel: .fcm).first), .rejected, reason: "no")
        #expect(harness.trace(outcome.message)?.finalState == nil)
        wait(harness)
        harness.settle(try #require(sms(harness).first), isAccepted ? .accepted : .rejected, reason: "unknown number")
        #expect(harness.trace(outcome.message)?.finalState == (isAccepted ? .handedOff : .failed))
    }

    @Test("a follow-up's receiver that is refused quarantines no token, and its attempts are its own")
    func ownAttempts() throws {
        let (harness, phone) = away()
        let outcome = harness.publish(phone)
        for _ in 0..<3 {
            harness.settle(try #require(harness.lease(channel: .fcm).first), .retry, retryAfter: 1_000)
            wait(harness, 1_001)
        }
        wait(harness)
        let job = try #require(sms(harness).first)
        #expect(job.attempt == 1)
        harness.settle(job, .badToken, reason: "no such number")
        #expect(sms(harness).isEmpty)
        #expect(harness.trace(outcome.message)?.finalState == nil)
        #expect(harness.publish(phone).vendor == .fcm, "the device's token is good")
    }

    private func take(_ harness: DeliveryHarness, _ message: MessageID, _ kind: VendorReceipt.Kind)
        -> ResultVerdict.Verdict?
    {
        let receipt = VendorReceipt(message: message, channel: .fcm, kind: kind, token: "f", at: 0)
        return harness.ask(TakeReceipts(receipts: [receipt], apps: nil))?.first?.verdict
    }

    /// Returns a job that moved to the follow-up channel after its vendor's lease lapsed without a result.
    private func moved() throws -> (harness: DeliveryHarness, phone: Phone, message: MessageID, lease: Job) {
        let (harness, phone) = away()
        let message = harness.publish(phone).message
        let lease = try #require(harness.lease(milliseconds: 1_000, channel: .fcm).first)
        wait(harness)
        return (harness, phone, message, lease)
    }

    @Test("a receipt that the alert was shown ends the follow-up", arguments: [false, true])
    func shown(isLeased: Bool) throws {
        let (harness, _, message, _) = try moved()
        let job = isLeased ? sms(harness).first : nil
        #expect(take(harness, message, .delivered) == .recorded)
        if let job { harness.settle(job, .retry, retryAfter: 1_000) }
        wait(harness, 60_000)
        let isDue = harness.shard.hasDueJobs(for: nil, .sms)
        #expect(!isDue && sms(harness).isEmpty)
        #expect(harness.trace(message)?.channel == .fcm)
    }

    @Test("a receipt after the follow-up was accepted is the vendor's alert")
    func shownAfterFollowUp() throws {
        var (harness, phone, message, _) = try moved()
        harness.settle(try #require(sms(harness).first), .accepted)
        #expect(take(harness, message, .delivered) == .recorded)
        #expect(harness.trace(message)?.channel == .fcm)
        harness.connect(&phone, state: .foreground) { _ in }
        harness.flush()
        #expect(harness.takeDelivered().map { $0.alertedAt > 0 } == [true])
    }

    @Test("a vendor's late acceptance is the vendor's, not the follow-up's")
    func lateAcceptance() throws {
        let (harness, _, message, lease) = try moved()
        let before = harness.shard.statistics[.sms].resultsAccepted
        harness.settle(lease, .accepted)
        #expect(harness.trace(message)?.channel == .fcm)
        #expect(harness.shard.statistics[.sms].resultsAccepted == before)
        #expect(harness.shard.statistics[.fcm].resultsAccepted == 1)
    }

    @Test("the vendor and the follow-up both accept: each result counts in its channel, only the vendor's is an alert")
    func bothAccept() throws {
        for isVendorFirst in [false, true] {
            var (harness, phone, message, lease) = try moved()
            let followUp = try #require(sms(harness).first)
            harness.settle(isVendorFirst ? lease : followUp, .accepted)
            wait(harness, 5_000)
            let second = harness.now
            #expect(harness.extend(isVendorFirst ? followUp : lease, milliseconds: 1_000) == .cancelled)
            harness.settle(isVendorFirst ? followUp : lease, .accepted)
            #expect(harness.statistics[.fcm].resultsAccepted == 1 && harness.statistics[.sms].resultsAccepted == 1)
            #expect(harness.trace(message)?.channel == .fcm)
            harness.connect(&phone)
            let shown = try #require(harness.takeDelivered().first).alertedAt
            #expect(isVendorFirst ? shown > 0 && shown < second : shown == second)
        }
    }

    @Test("a follow-up's late refusal counts in its own channel")
    func lateRefusal() throws {
        let (harness, _, _, lease) = try moved()
        let followUp = try #require(sms(harness).first)
        harness.settle(lease, .accepted)
        #expect(harness.settle(followUp, .rejected, reason: "unknown number") == .stale)
        #expect(harness.statistics[.fcm].resultsStale == 0 && harness.statistics[.sms].resultsStale == 1)
    }

    @Test("an accepted follow-up is no alert on the device")
    func noAlert() throws {
        var (harness, phone) = away([])
        _ = harness.publish(phone)
        wait(harness)
        harness.settle(try #require(sms(harness).first), .accepted)
        harness.connect(&phone, state: .foreground) { _ in }
        harness.flush()
        #expect(harness.takeDelivered().map(\.alertedAt) == [0])
    }

    @Test("the failure of a follow-up is not the vendor's failure at the device")
    func noVendorFailure() throws {
        let (harness, phone) = away([])
        _ = harness.publish(phone)
        wait(harness)
        harness.settle(try #require(sms(harness).first), .rejected, reason: "unknown number")
        #expect(try #require(harness.status(phone)).vendorFailure == nil)
    }

    @Test("a message that a vendor's sender had may have been seen, also after the move")
    func wasLeased() throws {
        let (harness, _, message, _) = try moved()
        let found = harness.shard.jobs.find(message)
        let slot = try #require(found)
        let row = harness.shard.jobs.at(slot).value.row
        #expect(row.isFollowUp && row.attempts == 0 && row.wasLeased && !row.isAlerted)
    }

    @Test("the alarm of a job that the time moved stays the one in the store")
    func alarm() throws {
        let (harness, phone) = away()
        let message = harness.publish(phone).message
        harness.settle(try #require(harness.lease(channel: .fcm).first), .retry, retryAfter: 1_000)
        wait(harness)
        let found = harness.shard.jobs.find(message)
        let slot = try #require(found)
        let entry = harness.shard.jobs.at(slot)
        #expect(entry.value.row.isFollowUp && entry.value.row.wakeAt == entry.value.storedWakeAt)
    }

    @Test("no follow-up is due for a message whose time is over")
    func expired() {
        let (harness, phone) = away()
        harness.followUpDelay = 7_100_000
        let outcome = harness.publish(phone, timeToLive: 7_200_000)
        wait(harness, 7_200_001)
        #expect(sms(harness).isEmpty)
        #expect(harness.trace(outcome.message)?.finalState == .expired)
    }

    @Test("the channels that every row is checked for are the follow-up channels")
    func constant() {
        let found = VendorChannel.followUps.reduce(into: ChannelSet()) { $0.insert(ChannelSet($1)) }
        #expect(ChannelSet.followUps == found)
    }

    @Test("a device registers no token of a follow-up channel", arguments: VendorChannel.followUps)
    func noTokens(channel: VendorChannel) {
        #expect(throws: TokenFault.followUp) { try VendorToken(channel: channel, kind: .alert, token: "x").cleaned() }
    }
}
