import TestKit
import Testing
import Wire

@testable import Delivery

/// A single push whose task id is derived from its request id: one row finds its message by either.
@Suite("Single pushes")
struct SinglePushTests {
    private let harness = DeliveryHarness()
    private static let request: (UInt64, UInt64) = (0xFEED_FACE_CAFE_BEEF, 0x1234_5678_9ABC_DEF0)

    private static func task(_ phone: Phone, day: Int = 18) -> TaskID {
        TaskID(kind: .single, month: 11, day: day, home: phone.bucket, request: request)
    }

    @discardableResult
    private func send(
        _ phone: Phone, day: Int = 18, digest: UInt64 = 7, revokes: TaskID = .none, timeToLive: Int64 = 7_200_000
    ) -> PublishOutcome? {
        let origin = Origin(route: 1, request: UInt64(harness.outcomes.count) + 1 << 40)
        let isRevoke = !revokes.isNone
        let payload = isRevoke ? revokes.bytes : Array("p".utf8)
        let own = TaskID(kind: .single, month: 11, day: 18, home: phone.bucket, random: (3, 4))
        let task = isRevoke ? own : Self.task(phone, day: day)
        payload.withUnsafeBytes { payload in
            var command = PublishCommand(
                origin: origin, app: DeliveryHarness.app, bucket: phone.bucket, cid: phone.cid, task: task,
                messageDigest: phone.cid.low &+ task.low, strategy: .liveOnly, timeToLive: timeToLive,
                requestKey: isRevoke ? (0, 0) : Self.request, requestDigest: digest, payload: payload)
            command.revokes = revokes
            harness.shard.publish(command, now: harness.now)
        }
        harness.flush()
        return harness.outcomes[origin.request]
    }

    private func pending(_ task: TaskID, _ app: AppKey = DeliveryHarness.app) -> Int? {
        guard
            case .found(let totals)? = harness.ask(
                TaskTotalsQuery(task, app, LoopShare(index: 0, count: 1, bucketCount: 4)))
        else {
            return nil
        }
        return totals.pending
    }

    @Test("a repeated request, a report and a trace find the single row", arguments: [false, true])
    func oneRow(crashes: Bool) throws {
        let phone = harness.register(state: .background)
        let first = try #require(send(phone))
        #expect(first.code == .accepted && !first.isRepeat)
        #expect(harness.rowCount(.request) == 1)
        if crashes { harness.crash() }
        // On the next day the result names the first call's task, too.
        let again = try #require(send(phone, day: 19))
        #expect(again.isRepeat && again.message == first.message && again.task == first.task)
        #expect(again.timeToLive == 7_200_000 && again.isLive == first.isLive)
        #expect(send(phone, digest: 8)?.code == .requestConflict)
        #expect(pending(first.task) == 1)
        #expect(pending(Self.task(phone, day: 19)) == nil, "the same request on another day is another task")
        #expect(pending(first.task, DeliveryHarness.otherApp) == nil)
        func trace(_ cid: DeviceID, _ app: AppKey) -> MessageID? {
            harness.trace(first.task, app, cid, phone.bucket, digest: 0)?.message
        }
        #expect(trace(phone.cid, DeliveryHarness.app) == first.message)
        #expect(trace(phone.cid, DeliveryHarness.otherApp) == nil)
        #expect(trace(DeviceID(high: 1, low: 1), DeliveryHarness.app) == nil)
        #expect(harness.store.violations == [])
    }

    @Test("a repeat gets its first answer although the device was blacklisted since", arguments: [false, true])
    func blacklisted(crashes: Bool) throws {
        let phone = harness.register(state: .background)
        let first = try #require(send(phone))
        #expect(harness.ask(.setBlacklisted(phone.cid, true), phone.bucket) == .done)
        if crashes { harness.crash() }
        let again = try #require(send(phone))
        #expect(again.code == .accepted && again.isRepeat && again.message == first.message)
        #expect(send(phone, digest: 8)?.code == .requestConflict)
    }

    @Test("a stop and a revoke find it by its task", arguments: [false, true], [false, true])
    func ended(crashes: Bool, isStop: Bool) throws {
        let phone = harness.register(state: .background)
        let push = try #require(send(phone))
        if crashes { harness.crash() }
        if isStop {
            guard case .absent? = harness.ask(StopSingle(push.task, DeliveryHarness.otherApp)),
                case .found(1)? = harness.ask(StopSingle(push.task, DeliveryHarness.app)),
                case .found(0)? = harness.ask(StopSingle(push.task, DeliveryHarness.app))
            else {
                Issue.record("the stop did not find the message")
                return
            }
        } else {
            #expect(send(phone, revokes: push.task)?.code == .ignored, "the device never saw it")
        }
        #expect(harness.finalState(push.message) == .revoked)
        #expect(harness.imbalance() == nil && harness.store.violations == [])
    }

    @Test("a push that ended at once has the same result in a repeated request and in a report")
    func endedAtOnce() throws {
        let phone = harness.register(state: .background)
        let push = try #require(send(phone, timeToLive: 0))
        #expect(push.endedAs == .expired && send(phone, timeToLive: 0)?.endedAs == .expired)
        #expect(pending(push.task) == 0)
    }
}
