import Delivery
import TestKit
import Testing
import Wire

@Suite("Operators' queries and commands")
struct InspectionTests {
    private let harness = DeliveryHarness()
    private static let whole = LoopShare(index: 0, count: 1)
    private static let key: (UInt64, UInt64) = (0xAB_CDEF_0123, 0x77)

    private func address(_ phone: Phone, _ app: AppKey = DeliveryHarness.app) -> DeviceAddress {
        DeviceAddress(app: app, bucket: phone.bucket, cid: phone.cid)
    }

    private func recent(_ phone: Phone, limit: Int = 20) throws -> RecentMessages {
        guard case .found(let recent)? = harness.ask(RecentQuery(address(phone), limit: limit)) else {
            throw Wrong()
        }
        return recent
    }

    private func change(_ phone: Phone, _ change: DeviceChange) throws -> DeviceChangeResult {
        guard case .found(let result)? = harness.ask(ChangeDevice(address(phone), change)) else { throw Wrong() }
        return result
    }

    private struct Wrong: Error {}

    @Test("a device's messages are listed newest first, including ended ones, before and after a crash")
    func recentMessages() throws {
        var phone = harness.register()
        let other = harness.register()
        var outcomes: [PublishOutcome] = []
        for number in 0..<6 {
            harness.letTimePass(10)
            outcomes.append(harness.publish(phone, "\(number)"))
            _ = harness.publish(other)
        }
        harness.acknowledge(phone, 2)
        for isCold in [false, true] {
            if isCold { harness.crash() }
            let all = try recent(phone)
            #expect(all.traces.map(\.message) == outcomes.map(\.message).reversed())
            #expect(all.traces.map(\.finalState) == [nil, nil, nil, nil, .delivered, .delivered])
            #expect(all.traces.allSatisfy { $0.cid == phone.cid } && !all.isCut && all.refusals.isEmpty)
            let some = try recent(phone, limit: 3)
            #expect(some.traces.map(\.message) == outcomes.suffix(3).map(\.message).reversed() && some.isCut)
        }
        // The newest messages when most of them have ended.
        harness.connect(&phone) { $0.positions = [StreamPosition(stream: 0, sequence: 6)] }
        let some = try recent(phone, limit: 2)
        #expect(some.traces.map(\.message) == [outcomes[5].message, outcomes[4].message] && some.isCut)
        guard case .absent? = harness.ask(RecentQuery(address(phone, DeliveryHarness.otherApp), limit: 1)) else {
            Issue.record("another app's device")
            return
        }
    }

    @Test("a message for the vendor alone and one with a waiting job are listed with their steps")
    func recentJobs() throws {
        let phone = harness.register(state: .background, token: "aa")
        let first = harness.publish(phone, strategy: .vendorOnly)
        harness.letTimePass(5)
        let second = harness.publish(phone)
        let jobs = harness.lease()
        #expect(jobs.count == 2)
        let traces = try recent(phone).traces
        #expect(traces.map(\.message) == [second.message, first.message])
        #expect(traces.allSatisfy { $0.steps.contains { $0.event == .leased } && $0.attempts == 1 })
    }

    @Test("a request id finds its message, in memory and on disk, and no other app's")
    func requests() {
        let phone = harness.register()
        let outcome = harness.publish(phone, requestKey: Self.key, requestDigest: 9, followsRequest: true)
        let key = CallKey(high: Self.key.0, low: Self.key.1)
        for isCold in [false, true] {
            if isCold { harness.crash() }
            guard
                let own = harness.ask(RequestQuery(DeliveryHarness.app, [key], tasks: [], Self.whole)),
                let others = harness.ask(RequestQuery(DeliveryHarness.otherApp, [key], tasks: [], Self.whole)),
                case .found(let cid)? = harness.ask(SingleQuery(outcome.task, DeliveryHarness.app))
            else {
                Issue.record("no answer")
                return
            }
            #expect(own.outcomes.map(\.message) == [outcome.message] && own.refusals.isEmpty)
            #expect(others.outcomes.isEmpty && cid == phone.cid)
        }
        guard case .absent? = harness.ask(SingleQuery(outcome.task, DeliveryHarness.otherApp)) else {
            Issue.record("another app's task")
            return
        }
    }

    @Test("a refused publish is found by its request and its device, with the reason, up to the bound")
    func refusals() throws {
        let phone = harness.register(state: .background)
        let key = CallKey(high: Self.key.0, low: Self.key.1)
        let outcome = harness.publish(
            phone, strategy: .vendorOnly, requestKey: Self.key, requestDigest: 1, followsRequest: true)
        #expect(outcome.code == .noToken)
        _ = harness.publish(phone, strategy: .vendorOnly, vendor: false)
        guard
            let own = harness.ask(RequestQuery(DeliveryHarness.app, [key], tasks: [], Self.whole)),
            let ofTask = harness.ask(RequestQuery(DeliveryHarness.app, [], tasks: [outcome.task], Self.whole)),
            let ofOther = harness.ask(RequestQuery(DeliveryHarness.otherApp, [key], tasks: [], Self.whole))
        else { throw Wrong() }
        #expect(own.outcomes.isEmpty && own.refusals.map(\.reason) == [.noToken])
        #expect(own.refusals == ofTask.refusals && ofOther.refusals.isEmpty)
        #expect(try recent(phone).refusals.map(\.reason) == [.noContent, .noToken])
        _ = harness.ask(.setBlacklisted(phone.cid, true), phone.bucket)
        #expect(harness.publish(phone).code == .ignored)
        #expect(try recent(phone, limit: 1).refusals.map(\.reason) == [.blacklisted])
        // The oldest entries make room.
        for _ in 0..<1_100 { _ = harness.publish(phone) }
        #expect(try recent(phone, limit: 500).refusals.count == 500)
        let late = harness.ask(RequestQuery(DeliveryHarness.app, [key], tasks: [], Self.whole))
        #expect(late?.refusals.isEmpty == true)
    }

    @Test(
        "a purge spares messages in flight, so that none is both delivered and purged",
        arguments: [false, true])
    func purge(isCold: Bool) throws {
        var phone = harness.register()
        let count = harness.limits.window + 300
        let outcomes = (0..<count).map { _ in harness.publish(phone, vendor: false) }
        if isCold {
            harness.crash()
            harness.connect(&phone)
        }
        let sent = harness.takeDelivered().count
        #expect(sent > 0 && sent < count)
        let result = try change(phone, .purge)
        #expect(result.count + result.leftCount == count && result.leftCount <= harness.limits.window)
        harness.acknowledge(phone, UInt64(result.leftCount))
        var (purged, delivered) = (0, 0)
        for outcome in outcomes {
            let trace = harness.trace(outcome.message)
            switch trace?.finalState {
            case .revoked:
                purged += 1
                #expect(trace?.finalReason == "purged")
            case .delivered, .deliveredOffline: delivered += 1
            default: Issue.record("\(String(describing: trace?.finalState))")
            }
        }
        #expect(purged == result.count && delivered == result.leftCount)
        #expect(harness.imbalance() == nil)
        #expect(try change(phone, .purge) == DeviceChangeResult(count: 0))
        // The queue continues.
        let next = harness.publish(phone)
        #expect(harness.takeDelivered().contains { $0.message == next.message })
    }

    @Test("a purge spares messages that a sender has leased")
    func purgeLeased() throws {
        let phone = harness.register(state: .background, token: "aa")
        let outcomes = (0..<3).map { _ in harness.publish(phone) }
        let job = try #require(harness.lease(1).first)
        #expect(try change(phone, .purge) == DeviceChangeResult(count: 2, leftCount: 1))
        #expect(harness.settle(job, .accepted) == .recorded)
        let states = outcomes.map { harness.finalState($0.message) }
        #expect(states.filter { $0 == .revoked }.count == 2 && states.filter { $0 == nil }.count == 1)
        #expect(harness.imbalance() == nil)
    }

    @Test("a replay makes jobs due that wait for a later attempt, in memory and on disk", arguments: [false, true])
    func replay(isCold: Bool) throws {
        let phone = harness.register(state: .background, token: "aa")
        _ = harness.publish(phone)
        let job = try #require(harness.lease().first)
        #expect(harness.settle(job, .retry, retryAfter: 3_600_000) == .recorded)
        if isCold { harness.crash() }
        #expect(harness.lease().isEmpty)
        #expect(try change(phone, .replay).count == 1)
        #expect(try change(phone, .replay).count == 0)
        #expect(harness.lease().map(\.message) == [job.message])
    }

    @Test("a device's session is ended once, and its messages stay")
    func disconnect() throws {
        let phone = harness.register()
        let outcome = harness.publish(phone)
        #expect(try change(phone, .disconnect).count == 1)
        #expect(try change(phone, .disconnect).count == 0)
        #expect(harness.status(phone)?.isConnected == false)
        #expect(harness.finalState(outcome.message) == nil)
        guard case .absent? = harness.ask(ChangeDevice(address(phone, DeliveryHarness.otherApp), .disconnect)) else {
            throw Wrong()
        }
    }

    @Test("a device that an operator removes from the blacklist gets its queued messages", arguments: [false, true])
    func unblacklist(isCold: Bool) throws {
        var phone = harness.register()
        let outcome = harness.publish(phone)
        _ = harness.takeDelivered()
        #expect(harness.ask(.setBlacklisted(phone.cid, true), phone.bucket) == .done)
        harness.disconnect(phone)
        if isCold { harness.crash() }
        harness.connect(&phone)
        #expect(harness.takeDelivered().isEmpty)
        #expect(try change(phone, .unblacklist).count == 1)
        #expect(harness.status(phone)?.isBlacklisted == false)
        #expect(harness.takeDelivered().map(\.message) == [outcome.message])
        #expect(try change(phone, .unblacklist).count == 0)
    }

    @Test("an app's devices are listed in pages, each once, and its due jobs are counted")
    func lists() throws {
        let phones = (0..<23).map { _ in harness.register(state: .background, token: "aa") }
        _ = harness.register(app: DeliveryHarness.otherApp)
        harness.crash()
        var (found, start): ([DeviceAddress], DeviceCursor?) = ([], nil)
        while true {
            let page = DeviceListQuery(DeliveryHarness.app, after: start, limit: 5, Self.whole)
            guard let some = harness.ask(page) else { throw Wrong() }
            found += some
            guard some.count == 5, let last = some.last else { break }
            start = DeviceCursor(last)
        }
        #expect(found.count == 23 && Set(found.map(\.cid)) == Set(phones.map(\.cid)))
        for phone in phones.prefix(3) {
            harness.letTimePass(1)
            _ = harness.publish(phone)
        }
        guard let overview = harness.ask(JobsQuery(apps: [DeliveryHarness.app], limit: 2)),
            let none = harness.ask(JobsQuery(apps: [DeliveryHarness.otherApp], limit: 2))
        else { throw Wrong() }
        #expect(overview.queues.map(\.dueCount) == [3] && overview.queues.map(\.heldCount) == [0])
        #expect(overview.jobs.map(\.cid) == phones.prefix(2).map(\.cid))
        #expect(none.queues.isEmpty && none.jobs.isEmpty)
    }
}
