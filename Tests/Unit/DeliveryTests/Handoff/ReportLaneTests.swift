import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Reports and the Pong after them")
struct ReportLaneTests {
    private let harness = DeliveryHarness()

    private func counted(_ extra: CountersRow.Extra) -> UInt32 {
        var sum: UInt32 = 0
        harness.store.loadAll(table: .counters) { sum += CountersRow($0.value)?.extra[extra] ?? 0 }
        return sum
    }

    private func report(_ phone: Phone, _ kind: Feedback.Kind, _ message: MessageID) {
        var feedback = Feedback()
        (feedback.kind, feedback.messageID) = (kind, message)
        harness.shard.feedback(phone.session, feedback, now: harness.now)
        harness.drain()
    }

    private func ping(_ phone: Phone, _ nonce: UInt64) {
        harness.shard.ping(phone.session, nonce: nonce, now: harness.now)
        harness.drain()
    }

    private func publish(_ phone: Phone, _ count: Int) -> [MessageID] {
        (0..<count).map { _ in harness.publish(phone, strategy: .liveOnly, vendor: false).message }
    }

    @Test("a Ping without earlier reports is answered at once, whatever waits for the disk")
    func idlePing() {
        let phone = harness.register(), other = harness.register()
        let message = publish(other, 1)[0]
        report(other, .shown, message)
        ping(phone, 5)
        #expect(harness.pongs == [5] && harness.store.waitingReadCount > 0)
    }

    @Test("a Pong follows when the earlier reports are durable, and a later crash loses none of them")
    func durablePong() {
        let phone = harness.register()
        let messages = publish(phone, 20)
        for message in messages { report(phone, .shown, message) }
        ping(phone, 7)
        while harness.store.waitingReadCount > 0 || harness.shard.hasWorkAtHand {
            harness.store.deliverReplies()
            harness.shard.continueWork(now: harness.now)
            harness.drain()
        }
        #expect(harness.pongs.isEmpty && harness.store.waitingBatchCount > 0)
        harness.flush()
        #expect(harness.pongs == [7])
        harness.crash()
        #expect(counted(.shownLive) == 20)
        #expect(harness.store.violations.isEmpty)
    }

    @Test("a burst of as many reports as a client keeps is recorded completely, although all need the disk")
    func burst() {
        let phone = harness.register()
        let messages = publish(phone, 30)
        for sequence in 1...30 { harness.acknowledge(phone, UInt64(sequence)) }
        harness.store.cool()
        // The traces are on disk, so each report reads its own. Each is repeated several times, as after a lost Pong.
        for _ in 0..<17 { for message in messages { report(phone, .shown, message) } }
        ping(phone, 9)
        #expect(harness.pongs.isEmpty)
        harness.flush()
        #expect(harness.pongs == [9] && counted(.shownLive) == 30)
        #expect(harness.statistics.feedbackIgnored == 0 && harness.closes.isEmpty)
        // No report is pending, so the next Ping is answered at once.
        ping(phone, 10)
        #expect(harness.pongs == [9, 10])
    }

    @Test("while a report cannot be read or written its Pong waits, and the device gets keep-alive Pings")
    func standstill() {
        let phone = harness.register(token: "aa")
        let message = publish(phone, 1)[0]
        harness.acknowledge(phone, 1)
        harness.store.acceptsWrites = false
        report(phone, .shown, message)
        ping(phone, 3)
        harness.advance(3_000)
        #expect(harness.pongs.isEmpty && harness.keepAlives.isEmpty)
        harness.advance(2_000)
        #expect(harness.keepAlives == [phone.session])
        harness.advance(5_000)
        #expect(harness.keepAlives.count == 2 && harness.closes.isEmpty && harness.pongs.isEmpty)
        harness.store.acceptsWrites = true
        harness.advance(1_000)
        #expect(harness.pongs == [3] && counted(.shownLive) == 1)
        harness.advance(10_000)
        #expect(harness.keepAlives.count == 2)
    }

    @Test("reports above the bound end the session, and no Pong confirms them")
    func bounded() {
        let phone = harness.register()
        let message = publish(phone, 1)[0]
        harness.store.acceptsWrites = false
        for _ in 0..<ReportLanes.waitingPerSession { report(phone, .shown, message) }
        #expect(harness.closes.isEmpty)
        ping(phone, 1)
        #expect(harness.closes.map(\.code) == [.overloaded])
        harness.store.acceptsWrites = true
        harness.advance(2_000)
        #expect(harness.pongs.isEmpty)
    }

    @Test("a rejection delays a later Pong until it is durable")
    func rejection() {
        let phone = harness.register()
        _ = publish(phone, 1)
        harness.shard.reject(phone.session, sequence: 1, reason: "bad", now: harness.now)
        ping(phone, 4)
        #expect(harness.pongs.isEmpty)
        harness.flush()
        #expect(harness.pongs == [4])
    }

    @Test("a device that sends no more gets all pending answers before its session ends")
    func finish() {
        let phone = harness.register()
        let message = publish(phone, 1)[0]
        var update = DeviceUpdate()
        (update.request, update.badge) = (3, 5)
        harness.shard.update(phone.session, update, now: harness.now)
        report(phone, .shown, message)
        ping(phone, 6)
        let isOwed = harness.shard.owesAnswers(phone.session)
        #expect(isOwed)
        harness.shard.finish(phone.session, now: harness.now)
        harness.drain()
        #expect(harness.finished.isEmpty && harness.updates.isEmpty)
        harness.flush()
        #expect(harness.updates.map(\.request) == [3] && harness.pongs == [6] && harness.finished == [phone.session])
        let isStillOwed = harness.shard.owesAnswers(phone.session)
        #expect(!isStillOwed)
    }

    @Test("reports of missing messages, and of many on disk, delay the Pong for two searches at most")
    func stale() {
        var phone = harness.register()
        let messages = publish(phone, 160)
        harness.crash()
        // The first 32 fill the window. The others are only on disk.
        harness.connect(&phone)
        for digest in 1...200 as ClosedRange<UInt64> {
            let gone = MessageID(bucket: phone.bucket, acceptedAt: harness.now - 5_000, digest: digest)
            report(phone, digest.isMultiple(of: 2) ? .shown : .opened, gone)
        }
        for message in messages[60...] { report(phone, .shown, message) }
        ping(phone, 8)
        // The first search covers only the first report, the second one all reports since.
        harness.advance(1_000)
        #expect(harness.pongs == [8] && counted(.shownLive) == 100)
        #expect(harness.statistics.feedbackIgnored == 200 && harness.store.violations.isEmpty)
        // A later search finds newer reports.
        let late = publish(phone, 1)[0]
        harness.crash()
        harness.connect(&phone)
        harness.advance(1_000)
        report(phone, .shown, late)
        harness.flush()
        #expect(counted(.shownLive) == 101)
    }

    @Test("a Hello whose opened message cannot be looked up gets no Welcome")
    func openedInHello() {
        var phone = harness.register(token: "aa")
        harness.disconnect(phone)
        harness.letTimePass(5_000)
        let message = harness.publish(phone).message
        harness.store.cool()
        harness.crash()
        let welcomes = harness.welcomes.count
        // The first read is the device's record. The later reads look for the message.
        harness.store.readsFailFrom = harness.store.readCount + 2
        harness.connect(&phone) { $0.opened = [message] }
        #expect(harness.welcomes.count == welcomes && harness.closes.last?.code == .storeUnavailable)
        harness.store.readsFailFrom = .max
        harness.connect(&phone) { $0.opened = [message] }
        #expect(harness.welcomes.count == welcomes + 1 && harness.finalState(message) == .opened)
    }
}
