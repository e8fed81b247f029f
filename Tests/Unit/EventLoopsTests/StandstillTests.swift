import Testing

@testable import EventLoops

@Suite("Stalls of a loop")
struct StandstillTests {
    private typealias Verdict = Standstill.Verdict

    @Test("ticks in time, or late because of load, count as on time")
    func onTime() {
        var standstill = Standstill(startedAt: 950)
        for now: UInt64 in [1_000, 1_050, 1_900, 3_850] {
            #expect(standstill.judge(now: now, eventCount: now, hasDeferredWork: true) == .onTime)
        }
    }

    @Test("a stall between the thread's start and the first tick counts")
    func beforeTheFirstTick() {
        var standstill = Standstill(startedAt: 1_000)
        #expect(standstill.judge(now: 7_000, eventCount: 0, hasDeferredWork: false) == .began(6_000))
        #expect(standstill.judge(now: 7_050, eventCount: 4, hasDeferredWork: false) == .reading)
    }

    @Test("after a stall the loop first reads all pending input, then checks deadlines")
    func readsFirst() {
        var standstill = Standstill(startedAt: 950)
        #expect(standstill.judge(now: 1_000, eventCount: 0, hasDeferredWork: false) == .onTime)
        #expect(standstill.judge(now: 53_000, eventCount: 0, hasDeferredWork: false) == .began(52_000))
        #expect(standstill.judge(now: 53_050, eventCount: 20, hasDeferredWork: false) == .reading)
        #expect(standstill.judge(now: 53_300, eventCount: 25, hasDeferredWork: false) == .reading)
        #expect(standstill.judge(now: 53_350, eventCount: 25, hasDeferredWork: true) == .reading)
        #expect(standstill.judge(now: 53_400, eventCount: 25, hasDeferredWork: false) == .onTime)
        #expect(standstill.judge(now: 53_450, eventCount: 30, hasDeferredWork: true) == .onTime)
    }

    @Test("peers that send endlessly do not keep the loop from its deadlines")
    func bounded() {
        var standstill = Standstill(startedAt: 950)
        _ = standstill.judge(now: 1_000, eventCount: 0, hasDeferredWork: false)
        #expect(standstill.judge(now: 11_000, eventCount: 1, hasDeferredWork: true) == .began(10_000))
        var now: UInt64 = 11_000
        while standstill.judge(now: now + 50, eventCount: now, hasDeferredWork: true) == .reading { now += 50 }
        #expect(now + 50 - 11_000 <= Standstill.readingMilliseconds)
    }
}
