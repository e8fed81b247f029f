/// Detects that a loop stalled, and delays timeouts until it has read its sockets.
///
/// After the process or machine was suspended, deadlines have passed while the peers' bytes wait in socket buffers. The loop
/// therefore reads first: ticks, which check all deadlines, are skipped until a tick finds no new events.
struct Standstill {
    enum Verdict: Equatable {
        case onTime
        /// A stall has just ended; the value is its length in milliseconds.
        case began(UInt64)
        /// The loop still reads input that arrived during a stall.
        case reading
    }

    /// The minimum delay of a tick that counts as a stall; load delays a tick by less.
    static let milliseconds: UInt64 = 2_000
    /// The maximum time of reading, so that peers that send continuously cannot delay timeouts further.
    static let readingMilliseconds: UInt64 = 3_000
    /// The minimum time of reading, since messages between loops take several turns.
    static let leastReadingMilliseconds: UInt64 = 200

    /// The time of the last tick, or of the thread's start; a stall before the first tick counts as well.
    private var lastTick: UInt64
    private var readingSince: UInt64 = 0
    private var eventCount: UInt64 = 0

    /// Starts with the loop's thread, not with the loop: the time in which no thread runs the loop is not a stall.
    init(startedAt now: UInt64) { lastTick = now }

    /// Returns the verdict for a tick at `now`, in milliseconds including the machine's sleep; `eventCount` counts stream events.
    mutating func judge(now: UInt64, eventCount: UInt64, hasDeferredWork: Bool) -> Verdict {
        defer { (lastTick, self.eventCount) = (now, eventCount) }
        if now >= lastTick + Self.milliseconds {
            // A stall during the reading phase restarts the phase without another report.
            let isAgain = readingSince > 0
            readingSince = now
            return isAgain ? .reading : .began(now - lastTick)
        }
        guard readingSince > 0 else { return .onTime }
        let isQuiet = eventCount == self.eventCount && !hasDeferredWork
        let time = now - readingSince
        guard isQuiet && time >= Self.leastReadingMilliseconds || time >= Self.readingMilliseconds else {
            return .reading
        }
        readingSince = 0
        return .onTime
    }
}
