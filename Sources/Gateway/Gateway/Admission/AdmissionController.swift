/// Decides when one event loop takes up the next device that has connected, and which ones it sends away.
///
/// After an outage all devices come at once. Each costs its handshake, with TLS several times that, and a loop that works
/// through all of them at a stretch lets its sessions wait meanwhile. So a turn of the loop has room for some newcomers
/// only:
///
/// - **Credit.** Work for newcomers is paid from a credit, which grows with the clock up to one `Rules.slice`. A newcomer is
///   taken up while there is credit. It is charged what those before it cost. That is given back when its handshake is over,
///   since the work itself is charged as it is done. A session's message so waits behind one slice, and a loop that has
///   nothing else to do gives newcomers all its time.
/// - **Reading.** One that was taken up may say Hello much later: its network is slow, or all come back from one program that is.
///   So what newcomers have sent is read while the turn has time, a slice again, oldest first. While more of them wait to be
///   read than one slice is for, no others are taken up.
/// - **Hellos under way.** A Welcome is sent when the store has the Hello. What the store takes at once comes back at once, and
///   is again work of one turn. So no more Hellos are under way than make about two slices.
/// - **Waiting.** One without credit waits, oldest first, before anything is done for it, TLS least of all.
/// - **Refusal.** One that would wait for longer than `Rules.patience`, at the rate at which newcomers are taken up, is
///   sent away. It is given a slot: the first time at which the loop will be done with those who wait and those who were
///   sent away before it. So they come back as fast as they can be welcomed, and not all at once again.
///
/// A value: the caller passes the time and performs the verdicts. All times are in nanoseconds.
struct AdmissionController {
    struct Rules: Equatable {
        /// Work for newcomers in one turn; positive.
        var slice: Int64 = 1_000_000
        /// The longest that a newcomer waits; beyond it newcomers are sent away.
        var patience: Int64 = 2_000_000_000
    }

    enum Verdict: Equatable {
        case welcome
        case wait
        /// Come back in this window, in milliseconds from now.
        case comeBack(least: UInt32, most: UInt32)
    }

    /// What one newcomer is thought to cost until some have come: a Hello on a slow core.
    static let firstCost: Int64 = 100_000
    /// A turn that took longer, because handshakes went on all at once, is paid off before the next one is taken up.
    private static let longestDebt: Int64 = 100_000_000
    /// The costs of this number of newcomers make one sample.
    private static let sampleCount = 32
    /// Hellos under way in any case: with fewer a slow disk would be the bound, and not the loop.
    private static let leastUnderWay = 16
    /// Newcomers that one turn reads at most, so that those who left unheard fill none.
    private static let readsOfTurn = 256
    /// Rates are measured over spans of this length.
    private static let span: Int64 = 100_000_000
    /// The first one may be shorter, once it has `firstSpanCount` newcomers.
    private static let firstSpan: Int64 = 20_000_000
    private static let firstSpanCount = 8
    /// A client takes a window from a second on as it is; a shorter one does not stop its own waits from growing.
    static let leastWindow: Int64 = 1_000_000_000
    /// A crowd in a window as wide as this still arrives in good order.
    static let windowWidth: Int64 = 500_000_000
    /// No slot is further off, since a forecast for later is worth little: who would get one comes at random in the second
    /// half of this.
    static let longestWindow: Int64 = 60_000_000_000

    var rules = Rules()
    /// Newcomers that wait.
    private(set) var waitingCount = 0
    /// Newcomers that were taken up, have something to read, and wait for it; the caller counts them.
    var unreadCount = 0
    /// What one newcomer costs, by measurement.
    private(set) var cost = firstCost
    /// Hellos that wait for the store.
    private(set) var underWayCount = 0
    /// Those of them whose store stands still, within bounds.
    ///
    /// Their Welcomes do not come soon, and devices of other parts need not wait for them.
    private var excusedCount = 0
    private var credit: Int64
    /// What this turn has done for newcomers so far, and those of them that it has read.
    private var turnWork: Int64 = 0
    private var turnReads = 0
    private var seenAt: Int64?
    /// Of the sample that is being gathered.
    private var sampleWork: Int64 = 0
    private var sampleSize = 0
    /// Newcomers taken up in the present span, in which some have waited throughout.
    private var spanBegan: Int64?
    private var spanTaken = 0
    /// Newcomers a second, as measured while some waited; 0: not yet.
    private var measuredRate: Double = 0
    /// The next free slot for one that is sent away.
    private var slot: Int64 = .min

    init(rules: Rules = Rules()) {
        self.rules = rules
        credit = rules.slice
    }

    /// Newcomers that the loop takes up in a second when they come in numbers.
    var rate: Double {
        // Before anything was measured: half of what they alone would allow, since others want the loop and its core, too.
        measuredRate > 0 ? measuredRate : 0.5e9 / Double(cost)
    }

    /// How long one would wait that came now.
    var expectedWait: Int64 { Int64(min(Double(waitingCount + unreadCount) / rate * 1e9, 1e15)) }

    // MARK: Newcomers

    /// One has connected.
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

    /// One has come whose Hello was read elsewhere, so that it cannot wait.
    mutating func arriveWithHello(now: Int64) -> Verdict {
        pass(to: now)
        return waitingCount > 0 && expectedWait >= rules.patience ? sendAway(now) : .welcome
    }

    /// Whether the one that has waited longest is taken up now.
    mutating func takeNext(now: Int64) -> Bool {
        pass(to: now)
        guard waitingCount > 0, take() else { return false }
        waitingCount -= 1
        spanTaken += 1
        return true
    }

    /// Whether the turn has time to read one more of those that were taken up.
    ///
    /// Credit is not asked for: it was paid when the newcomer was taken up. That may be a while ago, and then all that were
    /// taken up since say Hello at once.
    ///
    /// One is read in any turn, whatever else handshakes took. Reading one that has only left is no work that is charged, so
    /// there is a number that one turn does not pass.
    ///
    /// - Parameter pending: work of this turn that `worked` was not told of yet.
    /// - Returns: false when the slice is used up, or when as many Hellos are with the store as may be; otherwise one is read.
    mutating func mayRead(besides pending: Int64 = 0) -> Bool {
        guard hasRoom, turnReads < Self.readsOfTurn, turnReads == 0 || turnWork + pending < rules.slice else {
            return false
        }
        turnReads += 1
        return true
    }

    /// The next turn has a slice for reading again.
    mutating func turnEnded() { (turnWork, turnReads) = (0, 0) }

    /// The one that came last does not wait after all.
    mutating func forgetOne() { waitingCount -= 1 }

    /// A Hello is with the store.
    mutating func began() { underWayCount += 1 }

    /// The Welcome for a Hello is out, or there will be none.
    mutating func settled() { underWayCount -= 1 }

    /// Another Hello may be under way; otherwise the next one that is settled makes room.
    var hasRoom: Bool { underWayCount - excusedCount < mostUnderWay }

    private var mostUnderWay: Int { max(Self.leastUnderWay, Int(2 * rules.slice / cost)) }

    /// `count` Hellos are with stores that stand still.
    ///
    /// They take room all the same beyond some times what may be under way: their Welcomes come together when the store goes on.
    mutating func excuse(_ count: Int) { excusedCount = min(count, standingRoom) }

    /// How many Hellos may wait for stores that stand still without keeping those of others waiting.
    var standingRoom: Int { 3 * mostUnderWay }

    /// None of those who waited does any more.
    mutating func forgetAll() { (waitingCount, spanBegan) = (0, nil) }

    /// So much of the loop's time went into newcomers.
    mutating func worked(_ nanoseconds: Int64) {
        turnWork += nanoseconds
        credit = max(credit - nanoseconds, -Self.longestDebt)
        sampleWork += nanoseconds
    }

    /// The handshake of one that was taken up is over, whatever became of it.
    mutating func finished() {
        credit = min(credit + cost, rules.slice)
        sampleSize += 1
        guard sampleSize >= Self.sampleCount else { return }
        // One slow sample, of a loop that did not get its core, counts for a quarter.
        let sample = max(1_000, sampleWork / Int64(sampleSize))
        cost = (3 * cost + sample) / 4
        (sampleWork, sampleSize) = (0, 0)
    }

    // MARK: Steps

    private mutating func take() -> Bool {
        // Those who wait to be read make the next turn's slice already.
        guard credit > 0, Int64(unreadCount) * cost < rules.slice, hasRoom else { return false }
        credit -= cost
        return true
    }

    private mutating func pass(to now: Int64) {
        defer { seenAt = max(now, seenAt ?? now) }
        guard let seenAt, now > seenAt else { return }
        // The bound keeps the sum from overflowing.
        credit = min(credit + min(now - seenAt, Self.longestDebt + rules.slice), rules.slice)
        guard let began = spanBegan else { return }
        // What was guessed before anything was measured may be ten times too high.
        let isFirst = measuredRate == 0 && spanTaken >= Self.firstSpanCount && now - began >= Self.firstSpan
        guard isFirst || now - began >= Self.span else { return }
        // A span after which nobody waits tells how many came, not how many could.
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
