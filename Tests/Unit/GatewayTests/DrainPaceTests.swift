import Testing

@testable import Gateway

@Suite("The pace at which a gateway drains its sessions")
struct DrainPaceTests {
    @Test("several loops together get the pace and no more, however often they ask", arguments: [1, 7, 200, 50_000])
    func together(pace: Int) {
        var drain = DrainPace(pace: pace, startedAt: 1_000)
        var told = 0
        for tick in 1...200 {
            for loop in 0..<4 { told += drain.grant(.max, now: 1_000 + Int64(tick * 50 + loop)) }
        }
        // Ten seconds, plus or minus one.
        #expect((pace * 10 - 1...pace * 10 + 1 + pace / 100).contains(told))
    }

    @Test("time without a request or a session does not accumulate into a burst")
    func wave() {
        var drain = DrainPace(pace: 100, startedAt: 0)
        #expect(drain.grant(0, now: 5_000) == 0)
        #expect(drain.grant(.max, now: 60_000) == 20)
        #expect(drain.grant(.max, now: 60_000) == 0)
        #expect(drain.grant(3, now: 60_100) == 3)
        #expect(drain.grant(.max, now: 60_100) == 7)
    }

    @Test("quota that one loop does not use is available to the next loop at the same moment")
    func givenBack() {
        var drain = DrainPace(pace: 100, startedAt: 0)
        #expect(drain.grant(.max, now: 200) == 20)
        drain.giveBack(20)
        #expect(drain.grant(15, now: 200) == 15)
        #expect(drain.grant(.max, now: 200) == 5)
    }

    @Test("the remaining time is reported in whole seconds")
    func rest() {
        let drain = DrainPace(pace: 200, startedAt: 0)
        #expect(drain.secondsLeft(for: 0) == 0)
        #expect(drain.secondsLeft(for: 1) == 1)
        #expect(drain.secondsLeft(for: 401) == 3)
        #expect(drain.secondsLeft(for: -5) == 0)
    }
}
