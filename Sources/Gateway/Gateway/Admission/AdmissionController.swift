/// Decides when one event loop admits the next new connection, and which connections it refuses.
///
/// After an outage all devices reconnect at once. A handshake is expensive, and several times more expensive with TLS. A loop
/// that ran all handshakes in a row would delay its sessions, so each turn has a budget for new connections:
///
/// - **Credit.** Credit grows with the clock up to one `Rules.slice`. A connection is admitted while credit is positive, and is
///   charged the average cost in advance. When the handshake ends, the advance is returned, because `worked` has charged the
///   actual time. A session's message therefore waits for at most one slice. An idle loop spends all its time on new connections.
/// - **Reading.** A device may send its Hello long after it was admitted, and many may send it at once. Each turn therefore reads
///   input of admitted connections for at most one slice, oldest first. No connection is admitted while reading the unread ones
///   would take more than one slice.
/// - **Hellos in flight.** A Welcome is sent when the store has committed the Hello. One commit may complete many Hellos, whose
///   Welcomes are then work of a single turn. The number of Hellos in flight is therefore limited to about two slices of work.
/// - **Waiting.** A connection without credit is queued, oldest first, before any TLS or other work for it.
/// - **Refusal.** A connection is refused if it would wait longer than `Rules.patience` at the current admission rate. Its Close
///   names a retry slot: the earliest time at which the loop has served all connections queued or refused before it. Refused
///   devices therefore return at the rate at which they can be served.
///
/// A value type: the caller passes the time and carries out the verdicts. All times are in nanoseconds.
struct AdmissionController {
    struct Rules: Equatable {
        /// The budget for new connections in one turn; positive.
        var slice: Int64 = 1_000_000
        /// The longest time a connection is queued; a connection that would wait longer is refused.
        var patience: Int64 = 2_000_000_000
    }

    enum Verdict: Equatable {
        case welcome
        case wait
        /// The connection is refused, with a retry window in milliseconds from now.
        case comeBack(least: UInt32, most: UInt32)
    }

    /// The assumed cost of one connection before the first measurement: a Hello on a slow core.
    static let firstCost: Int64 = 100_000
    /// The largest credit deficit, after a turn in which many handshakes ran at once; it is repaid before the next admission.
    private static let longestDebt: Int64 = 100_000_000
    private static let sampleCount = 32
    /// The lower bound of `mostUnderWay`; with fewer Hellos in flight, a slow disk would limit the rate instead of the loop.
    private static let leastUnderWay = 16
    /// The most connections that one turn reads; the slice does not limit reads of closed connections, which are not charged.
    private static let readsOfTurn = 256
    private static let span: Int64 = 100_000_000
    /// The length of the first measurement, which also needs `firstSpanCount` connections.
    private static let firstSpan: Int64 = 20_000_000
    private static let firstSpanCount = 8
    /// The shortest retry window that clients honor; with a window below one second the client's own backoff keeps growing.
    static let leastWindow: Int64 = 1_000_000_000
    /// The width of the retry windows; devices that return within one window arrive evenly enough.
    static let windowWidth: Int64 = 500_000_000
    /// The longest time from now to a retry slot, because longer forecasts are unreliable.
    ///
    /// A device whose slot would be later gets a window from half of this time to all of it.
    static let longestWindow: Int64 = 60_000_000_000

    var rules = Rules()
    private(set) var waitingCount = 0
    /// The number of admitted connections with unread input; the caller counts them.
    var unreadCount = 0
    private(set) var cost = firstCost
    /// The number of Hellos that wait for the store.
    private(set) var underWayCount = 0
    /// The number of Hellos in flight whose store is stalled, up to `standingRoom`.
    ///
    /// These Hellos do not count against the limit, so devices of other partitions are not blocked by them.
    private var excusedCount = 0
    private var credit: Int64
    private var turnWork: Int64 = 0
    private var turnReads = 0
    private var seenAt: Int64?
    private var sampleWork: Int64 = 0
    private var sampleSize = 0
    /// The start of the current rate measurement, and the number of connections admitted from the queue since then.
    private var spanBegan: Int64?
    private var spanTaken = 0
    /// Admitted connections per second, measured while some were queued; 0 before the first measurement.
    private var measuredRate: Double = 0
    /// The next free retry slot.
    private var slot: Int64 = .min

    init(rules: Rules = Rules()) {
        self.rules = rules
        credit = rules.slice
    }

    /// The estimated admission rate under load, in connections per second.
    var rate: Double {
        // The estimate before the first measurement is half the theoretical rate, because sessions and other processes use the
        // core, too.
        measuredRate > 0 ? measuredRate : 0.5e9 / Double(cost)
    }

    /// The expected wait of a connection that arrives now, in nanoseconds.
    var expectedWait: Int64 { Int64(min(Double(waitingCount + unreadCount) / rate * 1e9, 1e15)) }

    // MARK: Newcomers

    mutating func arrive(now: Int64) -> Verdict {
        pass(to: now)
        if waitingCount == 0 {
            if take() { return .welcome }
            (spanBegan, spanTaken) = (now, 0)
        }
        guard expectedWait < rules.patience else { return sendAway(now) }
        waitingCount += 1
        return .wait
    }

    /// Decides about a device whose Hello another gateway has read; such a device cannot be queued.
    mutating func arriveWithHello(now: Int64) -> Verdict {
        pass(to: now)
        return waitingCount > 0 && expectedWait >= rules.patience ? sendAway(now) : .welcome
    }

    /// Returns whether the oldest queued connection is admitted now, and removes it from the count.
    mutating func takeNext(now: Int64) -> Bool {
        pass(to: now)
        guard waitingCount > 0, take() else { return false }
        waitingCount -= 1
        spanTaken += 1
        return true
    }

    /// Returns whether this turn may read another admitted connection.
    ///
    /// No credit is needed, because the admission already paid for the read. Many connections may have been admitted earlier and
    /// send their Hellos at once, so the turn's slice limits the reads.
    ///
    /// Each turn reads at least one connection, even if other handshakes used up the slice. The number of reads is limited, too,
    /// because reads of closed connections are not charged.
    ///
    /// - Parameter pending: the work of this turn that was not passed to `worked` yet.
    /// - Returns: `false` if the slice is used up or the limit of Hellos in flight is reached; otherwise the caller reads one
    ///   connection.
    mutating func mayRead(besides pending: Int64 = 0) -> Bool {
        guard hasRoom, turnReads < Self.readsOfTurn, turnReads == 0 || turnWork + pending < rules.slice else {
            return false
        }
        turnReads += 1
        return true
    }

    /// Starts a new slice for reading.
    mutating func turnEnded() { (turnWork, turnReads) = (0, 0) }

    /// Removes the connection that was queued last.
    mutating func forgetOne() { waitingCount -= 1 }

    /// Records that a Hello was passed to the store.
    mutating func began() { underWayCount += 1 }

    /// Records that a Hello was answered or dropped.
    mutating func settled() { underWayCount -= 1 }

    /// Whether another Hello may be in flight; if not, the next call of `settled` makes room.
    var hasRoom: Bool { underWayCount - excusedCount < mostUnderWay }

    private var mostUnderWay: Int { max(Self.leastUnderWay, Int(2 * rules.slice / cost)) }

    /// Excludes `count` Hellos with stalled stores from the limit of Hellos in flight.
    ///
    /// The exclusion is bounded by `standingRoom`, because all their Welcomes are sent at once when the store recovers.
    mutating func excuse(_ count: Int) { excusedCount = min(count, standingRoom) }

    /// The number of Hellos that may wait for stalled stores without blocking other Hellos.
    var standingRoom: Int { 3 * mostUnderWay }

    mutating func forgetAll() { (waitingCount, spanBegan) = (0, nil) }

    /// Charges time that the loop spent on new connections.
    mutating func worked(_ nanoseconds: Int64) {
        turnWork += nanoseconds
        credit = max(credit - nanoseconds, -Self.longestDebt)
        sampleWork += nanoseconds
    }

    /// Records the end of an admitted connection's handshake, successful or not.
    mutating func finished() {
        credit = min(credit + cost, rules.slice)
        sampleSize += 1
        guard sampleSize >= Self.sampleCount else { return }
        // A new sample counts for a quarter, because it may be too high: the kernel may have run another thread on the core.
        let sample = max(1_000, sampleWork / Int64(sampleSize))
        cost = (3 * cost + sample) / 4
        (sampleWork, sampleSize) = (0, 0)
    }

    // MARK: Steps

    private mutating func take() -> Bool {
        // No connection is admitted if reading the unread ones already fills the next turn's slice.
        guard credit > 0, Int64(unreadCount) * cost < rules.slice, hasRoom else { return false }
        credit -= cost
        return true
    }

    private mutating func pass(to now: Int64) {
        defer { seenAt = max(now, seenAt ?? now) }
        guard let seenAt, now > seenAt else { return }
        // The bound prevents an overflow of the sum.
        credit = min(credit + min(now - seenAt, Self.longestDebt + rules.slice), rules.slice)
        guard let began = spanBegan else { return }
        // The first measurement ends early, because the rate estimated until then may be ten times too high.
        let isFirst = measuredRate == 0 && spanTaken >= Self.firstSpanCount && now - began >= Self.firstSpan
        guard isFirst || now - began >= Self.span else { return }
        // If the queue is empty at the end, the measurement shows the arrival rate and not the capacity.
        if waitingCount > 0, spanTaken > 0 {
            let sample = Double(spanTaken) * 1e9 / Double(now - began)
            measuredRate = measuredRate > 0 ? (measuredRate + sample) / 2 : sample
        }
        (spanBegan, spanTaken) = (waitingCount > 0 ? now : nil, 0)
    }

    private mutating func sendAway(_ now: Int64) -> Verdict {
        let next = max(slot, now + expectedWait) + Int64(1e9 / rate)
        let (least, most): (Int64, Int64)
        if next - now <= Self.longestWindow {
            slot = next
            least = max(next - now, Self.leastWindow)
            most = least + Self.windowWidth
        } else {
            (least, most) = (Self.longestWindow / 2, Self.longestWindow)
        }
        return .comeBack(least: UInt32(least / 1_000_000), most: UInt32(most / 1_000_000))
    }
}
