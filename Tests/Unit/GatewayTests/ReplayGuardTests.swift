import Testing

@testable import Gateway

@Suite("Hellos proven with a shared secret")
struct ReplayGuardTests {
    private static let now: Int64 = 1_764_000_000_000
    private static let tolerance: Int64 = 120_000

    private func proof(_ number: UInt64) -> [UInt8] { withUnsafeBytes(of: number.bigEndian) { Array($0) } + [1, 2, 3] }

    @Test("a proof is accepted once, as long as its timestamp is valid")
    func once() {
        var replays = ReplayGuard(startedAt: Self.now - 1_000_000)
        for offset in [-Self.tolerance, 0, Self.tolerance] {
            let stamp = UInt64(Self.now + offset)
            let mine = proof(stamp)
            #expect(replays.take(mine, timestamp: stamp, now: Self.now, tolerance: Self.tolerance) == .fresh)
            for later in stride(from: Int64(0), through: 2 * Self.tolerance + 60_000, by: 10_000) {
                #expect(
                    replays.take(mine, timestamp: stamp, now: Self.now + later, tolerance: Self.tolerance) == .stale)
            }
        }
    }

    @Test("a timestamp outside the tolerance or before the start is stale", arguments: [0, 1, UInt64.max, 1 << 63])
    func far(stamp: UInt64) {
        var replays = ReplayGuard(startedAt: Self.now - 10)
        #expect(replays.take(proof(1), timestamp: stamp, now: Self.now, tolerance: Self.tolerance) == .stale)
        let before = UInt64(Self.now - 11)
        #expect(replays.take(proof(1), timestamp: before, now: Self.now, tolerance: Self.tolerance) == .stale)
        #expect(replays.count == 0)
    }

    @Test("a proof from before the partition was served here is stale, because another gateway may have accepted it")
    func servedSince() {
        var replays = ReplayGuard(startedAt: Self.now - 1_000_000)
        func take(_ offset: Int64) -> ReplayGuard.Verdict {
            replays.take(
                proof(UInt64(Self.now + offset)), timestamp: UInt64(Self.now + offset), now: Self.now,
                tolerance: Self.tolerance, servedSince: Self.now - 5)
        }
        #expect(take(-6) == .stale && take(-5) == .fresh && take(0) == .fresh)
    }

    @Test("a forgotten proof is not accepted again under a larger tolerance")
    func largerTolerance() {
        var replays = ReplayGuard(startedAt: 0)
        let stamp = UInt64(Self.now)
        #expect(replays.take(proof(1), timestamp: stamp, now: Self.now, tolerance: Self.tolerance) == .fresh)
        let later = Self.now + 4 * Self.tolerance
        #expect(
            replays.take(proof(2), timestamp: UInt64(later), now: later, tolerance: Self.tolerance) == .fresh)
        #expect(replays.count == 1)
        #expect(replays.take(proof(1), timestamp: stamp, now: later, tolerance: 10 * Self.tolerance) == .stale)
    }

    @Test("memory is bounded and freed when the timestamps expire")
    func bounded() {
        var replays = ReplayGuard(startedAt: 0, limit: 100)
        for number in 0..<100 as Range<UInt64> {
            let stamp = UInt64(Self.now) + number
            #expect(replays.take(proof(number), timestamp: stamp, now: Self.now, tolerance: Self.tolerance) == .fresh)
        }
        let stamp = UInt64(Self.now)
        #expect(replays.take(proof(200), timestamp: stamp, now: Self.now, tolerance: Self.tolerance) == .full)
        let later = Self.now + 2 * Self.tolerance + 60_000
        #expect(
            replays.take(proof(200), timestamp: UInt64(later), now: later, tolerance: Self.tolerance) == .fresh)
        #expect(replays.count == 1)
    }
}
