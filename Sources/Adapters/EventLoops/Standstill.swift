/// Detects that a loop stood still, and how long it has to read before it may judge.
///
/// After a stop of the process or the machine, deadlines are over, and the peers' bytes are in the sockets' buffers. So the
/// loop reads first: its ticks, which judge all deadlines, wait until a tick finds no further event.
struct Standstill {
    enum Verdict: Equatable {
        case onTime
        /// A standstill has just ended; its length in milliseconds.
        case began(UInt64)
        /// The loop still reads what peers sent during a standstill.
        case reading
    }

    /// The least lateness of a tick that counts as a standstill; load delays a tick by less.
    static let milliseconds: UInt64 = 2_000
    /// The longest time of reading: peers that send without an end delay deadlines by no more.
    static let readingMilliseconds: UInt64 = 3_000
    /// The shortest time of reading: mail between loops takes some turns.
    static let leastReadingMilliseconds: UInt64 = 200

    private var lastTick: UInt64 = 0
    private var readingSince: UInt64 = 0
    private var eventCount: UInt64 = 0

    /// Judges a tick, which came at `now` of a clock that counts the machine's sleep, in milliseconds.
    ///
    /// `eventCount` changes with each event of a stream.
    mutating func judge(now: UInt64, eventCount: UInt64, hasDeferredWork: Bool) -> Verdict {
        defer { (lastTick, self.eventCount) = (now, eventCount) }
        if lastTick > 0, now >= lastTick + Self.milliseconds {
            // Standing still once more, it may read once more: each time it read for the whole time before.
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
