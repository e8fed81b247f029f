import Testing

@testable import Gateway

@Suite("Gateway clock")
struct GatewayClockTests {
    static let boot = BootID(high: 1, low: 2)
    static let otherBoot = BootID(high: 3, low: 4)
    static let noon: Int64 = 1_800_000_000_000
    static let hour: Int64 = 3_600_000

    private func clock(wall: Int64 = noon, boot: Int64 = 1_000, stored: ClockRecord? = nil, accepts: Bool = false)
        -> GatewayClock
    {
        GatewayClock(.init(wall: wall, boot: boot), bootID: Self.boot, stored: stored, acceptsClock: accepts)
    }

    @Test("the clock starts at the wall clock and follows the boot-time clock")
    func start() {
        let clock = clock()
        #expect(clock.mapping.time(atBoot: 1_000) == Self.noon)
        #expect(clock.mapping.time(atBoot: 61_000) == Self.noon + 60_000)
    }

    @Test("a start is never below the stored maximum, in this boot or the next", arguments: [boot, otherBoot])
    func storedMaximum(bootID: BootID) {
        let stored = ClockRecord(maximum: Self.noon + 500, boot: 900, bootID: bootID)
        #expect(clock(wall: Self.noon - Self.hour, stored: stored).mapping.time(atBoot: 1_000) >= Self.noon + 500)
    }

    @Test("a restart within one boot continues at the time that the clock would show")
    func sameBoot() {
        let stored = ClockRecord(maximum: Self.noon, boot: 1_000, bootID: Self.boot)
        // The gateway was stopped for two hours and the wall clock was set back. Two hours have passed anyway.
        let clock = clock(wall: Self.noon - 5, boot: 1_000 + 2 * Self.hour, stored: stored)
        #expect(clock.mapping.time(atBoot: 1_000 + 2 * Self.hour) == Self.noon + 2 * Self.hour)
    }

    @Test("a wall clock set forward while the gateway was stopped is refused within one boot, unless accepted")
    func forwardAtStart() {
        let stored = ClockRecord(maximum: Self.noon, boot: 1_000, bootID: Self.boot)
        var refusing = clock(wall: Self.noon + 2 * Self.hour, boot: 2_000, stored: stored)
        #expect(refusing.mapping.time(atBoot: 2_000) == Self.noon + 1_000)
        #expect(
            refusing.observe(.init(wall: Self.noon + 2 * Self.hour, boot: 2_000))
                == .forwardStepRefused(offset: 2 * Self.hour - 1_000))
        let accepting = clock(wall: Self.noon + 2 * Self.hour, boot: 2_000, stored: stored, accepts: true)
        #expect(accepting.mapping.time(atBoot: 2_000) == Self.noon + 2 * Self.hour)
        let rebooted = clock(
            wall: Self.noon + 48 * Self.hour, boot: 2_000,
            stored: ClockRecord(maximum: Self.noon, boot: 1_000, bootID: Self.otherBoot))
        #expect(rebooted.mapping.time(atBoot: 2_000) == Self.noon + 48 * Self.hour)
    }

    @Test("a forward step of more than an hour is refused and reported once; the clock agrees again after its reversal")
    func forwardStep() {
        var clock = clock()
        #expect(clock.observe(.init(wall: Self.noon + 1_000, boot: 2_000)) == nil)
        let ahead = Self.noon + 2 * Self.hour
        #expect(
            clock.observe(.init(wall: ahead + 2_000, boot: 3_000)) == .forwardStepRefused(offset: 2 * Self.hour))
        #expect(clock.observe(.init(wall: ahead + 3_000, boot: 4_000)) == nil)
        #expect(clock.mapping.partsPerMillion == 0)
        #expect(clock.mapping.time(atBoot: 4_000) == Self.noon + 3_000)
        #expect(clock.observe(.init(wall: Self.noon + 4_000, boot: 5_000)) == .agrees)
    }

    @Test(
        "a smaller step is approached without a jump, and reached",
        arguments: [-30 * 60_000, -5_000, 5_000, 59 * 60_000])
    func slew(step: Int64) {
        var clock = clock()
        var boot: Int64 = 1_000
        var last = clock.mapping.time(atBoot: boot)
        var events: [GatewayClock.Event] = []
        for _ in 0..<100_000 {
            boot += 1_000
            let before = clock.mapping.time(atBoot: boot)
            if let event = clock.observe(.init(wall: Self.noon + boot - 1_000 + step, boot: boot)) {
                events.append(event)
            }
            // The new line starts at the end of the old one.
            #expect(clock.mapping.time(atBoot: boot) == before)
            #expect(before > last)
            #expect(abs(before - last - 1_000) <= 50)
            last = before
            if events.last == .agrees { break }
        }
        guard case .drifts? = events.first else {
            Issue.record("no report")
            return
        }
        #expect(events.last == .agrees)
    }

    @Test("the clock never runs backwards, whatever the wall clock does and in whatever order readings arrive")
    func neverBackwards() {
        var random = SeededGenerator(state: 7)
        var clock = clock()
        var boot: Int64 = 1_000, last = Self.noon
        for _ in 0..<20_000 {
            boot += Int64.random(in: 0...5_000, using: &random)
            let wall = Self.noon + Int64.random(in: -3 * Self.hour...3 * Self.hour, using: &random)
            _ = clock.observe(.init(wall: wall, boot: boot))
            let late = boot - Int64.random(in: 0...10, using: &random)
            let now = clock.mapping.time(atBoot: max(late, boot))
            #expect(now >= last)
            last = now
        }
    }

    @Test("the record survives encoding, and other bytes are refused")
    func record() {
        let record = ClockRecord(maximum: Self.noon, boot: 77, bootID: BootID(high: .max, low: 5))
        #expect(ClockRecord(bytes: record.bytes) == record)
        #expect(record.bytes.count == ClockRecord.byteCount)
        #expect(ClockRecord(bytes: record.bytes.dropLast()) == nil)
        #expect(ClockRecord(bytes: [UInt8](repeating: 0xFF, count: 32)) == nil)
    }

    @Test("the machine's clocks can be read")
    func reader() {
        #expect(ClockReader.reading().wall > 1_700_000_000_000)
        #expect(ClockReader.boot() > 0)
        #expect(ClockReader.bootID() == ClockReader.bootID())
    }
}

/// A generator with the same numbers in every run.
struct SeededGenerator: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}
