import Delivery
import Testing
import Wire

@testable import PushAPI

@Suite("Push answers")
struct PushAnswerTests {
    private static let task = TaskID(kind: .single, month: 11, day: 21, random: (1, 2))
    private static let message = MessageID(high: 3, low: 4)

    private func outcome(
        _ code: PublishOutcome.Code = .accepted, cid: DeviceID = Fixture.cid, isLive: Bool = false,
        fallback: PublishOutcome.Fallback = .none, reason: PublishOutcome.FallbackReason = .applies,
        isRepeat: Bool = false
    ) -> PublishOutcome {
        PublishOutcome(
            code: code, cid: cid, message: Self.message, task: Self.task, isLive: isLive, fallback: fallback,
            fallbackReason: reason, timeToLive: 60_000, isRepeat: isRepeat)
    }

    @Test("a live single push has Getui's envelope, with the channel beside it")
    func live() {
        let answer = PushAnswer.render(
            outcomes: [outcome(isLive: true, fallback: .armed)], form: PushForm(kind: .single), durability: .fsync)
        #expect(answer.status == 200)
        #expect(
            answer.text
                == #"{"code":0,"msg":"success","data":{"\#(Self.task.text)":{"\#(Fixture.cid)":"successed_online"}},"#
                + #""longwire":{"durability":"fsync","messages":[{"cid":"\#(Fixture.cid)","taskId":"\#(Self.task.text)","#
                + #""msgId":"\#(Self.message)","ttl":60000,"channel":"live","fallback":"armed"}]}}"#)
    }

    @Test("a queued push has the reason for a missing fallback, and a repetition is marked")
    func queued() {
        let answer = PushAnswer.render(
            outcomes: [outcome(reason: .noToken, isRepeat: true)], form: PushForm(kind: .single), durability: .os)
        #expect(answer.text.contains(#":"successed_offline"}"#))
        #expect(answer.text.contains(#""durability":"os""#))
        #expect(
            answer.text.contains(#""channel":"queued","fallback":"none","fallbackReason":"noToken","repeat":true}"#))
    }

    @Test("a message that ended at acceptance is neither queued nor sent")
    func endedAtOnce() {
        var expired = outcome()
        (expired.endedAs, expired.fallback, expired.fallbackReason) = (.expired, .none, .timeToLive)
        let text = PushAnswer.render(outcomes: [expired], form: PushForm(kind: .single), durability: .fsync).text
        #expect(text.contains(#""\#(Fixture.cid)":"successed_ignore""#))
        #expect(text.contains(#""channel":"none","state":"expired","fallback":"none","fallbackReason":"ttl""#))
    }

    @Test("an ignored target is successed_ignore")
    func ignored() {
        let answer = PushAnswer.render(
            outcomes: [outcome(.ignored)], form: PushForm(kind: .single), durability: .fsync)
        #expect(answer.status == 200)
        #expect(answer.text.contains(#":"successed_ignore"}"#))
        #expect(answer.text.contains(#""channel":"ignored""#))
    }

    static let refusedCases: [(PublishOutcome.Code, Int, Int, String)] = [
        (.unknownDevice, 400, 20001, "target user is invalid"),
        (.queueFull, 403, 30901, "the queue of cid \(Fixture.cid) is full"),
        (.noToken, 400, 20001, "strategy is invalid, 2 and 4 need a usable device token"),
        (.requestConflict, 400, 20001, "request_id cannot be repeat., it was used with another body"),
        (.requestPending, 403, 30019, "the same request is under way"), (.busy, 403, 30019, "the gateway is busy"),
        (.storeFailed, 403, 30019, "the store cannot be read"),
    ]

    @Test("a single push without a device is refused with a status that Getui's SDKs read", arguments: refusedCases)
    func faults(code: PublishOutcome.Code, status: Int, number: Int, message: String) {
        let answer = PushAnswer.render(outcomes: [outcome(code)], form: PushForm(kind: .single), durability: .fsync)
        #expect(answer.status == status)
        #expect(answer.text.hasPrefix(#"{"code":\#(number),"msg":"\#(message)"#), "\(answer.text)")
    }

    @Test("strategies 2 and 4 without vendor content are refused for that, not for the token")
    func noContent() {
        let answer = PushAnswer.render(
            outcomes: [outcome(.noToken, reason: .noContent)], form: PushForm(kind: .single), durability: .fsync)
        #expect(answer.status == 400)
        #expect(answer.text.contains("strategy is invalid, 2 and 4 need something in push_channel to send"))
    }

    @Test("a mixed batch lists the accepted items and explains the others by their place")
    func mixedBatch() {
        let form = PushForm(
            kind: .batch(isAsync: false), refused: [.init(itemIndex: 1, code: .parameter, message: "bad")])
        let answer = PushAnswer.render(
            outcomes: [outcome(), outcome(.queueFull), outcome(cid: Fixture.otherCID, isLive: true)], form: form,
            durability: .fsync)
        #expect(answer.status == 200)
        #expect(answer.text.contains(#""\#(Fixture.cid)":"successed_offline""#))
        #expect(answer.text.contains(#""\#(Fixture.otherCID)":"successed_online""#))
        #expect(answer.text.contains(#""refused":[{"index":1,"code":20001,"msg":"bad"},{"index":2,"code":30901,"#))
    }

    @Test("an asynchronous batch has no data, but still its results")
    func asynchronous() {
        let answer = PushAnswer.render(
            outcomes: [outcome()], form: PushForm(kind: .batch(isAsync: true)), durability: .fsync)
        #expect(answer.text.hasPrefix(#"{"code":0,"msg":"success","longwire":{"durability":"fsync","messages":[{"#))
    }

    @Test("a batch without an accepted item is an error, a retryable one if waiting helps")
    func nothingAccepted() {
        let form = PushForm(
            kind: .batch(isAsync: false), refused: [.init(itemIndex: 0, code: .parameter, message: "bad")])
        let answer = PushAnswer.render(outcomes: [outcome(.unknownDevice)], form: form, durability: .fsync)
        #expect(answer.status == 400)
        #expect(answer.text.hasPrefix(#"{"code":20001,"msg":"bad","longwire":{"refused":[{"index":0,"#))
        let busy = PushAnswer.render(outcomes: [outcome(.busy)], form: form, durability: .fsync)
        #expect(busy.status == 403)
        #expect(busy.text.hasPrefix(#"{"code":30019,"#))
    }

    @Test("only statuses that Getui's Java SDK reads have codes")
    func statuses() {
        // The SDK retries a 5xx automatically, which suits a starting gateway.
        for code in GetuiCode.allCases where code != .methodNotAllowed && code != .starting {
            #expect([200, 400, 401, 403, 404].contains(code.httpStatus))
        }
    }
}
