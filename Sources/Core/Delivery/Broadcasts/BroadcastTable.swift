internal import Wire

/// The live broadcasts of each app, this loop's scans of its sessions, and the devices whose cursor moved.
struct BroadcastTable {
    private let encoder: any BroadcastEncoder
    private var logs: [AppKey: BroadcastLog] = [:]
    /// By app index: the head of its log, read with each message of each device.
    private var heads: [UInt64] = []
    private var scans: [AppKey: SessionScan] = [:]
    /// Devices whose broadcast cursor moved and whose row does not have it yet.
    private var movedCursors: [DeviceSlot] = []
    private(set) var cursorsDueAt = GatewayTime.max
    /// The shards that have not told of the logs in their buckets yet, of `shardCount`.
    private var untold: Set<Int> = []
    private var shardCount = 1
    /// The count of numbers that an app without a log skips (`StoreHistory.broadcastStep`).
    var step: UInt64

    init(encoder: any BroadcastEncoder, history: StoreHistory) {
        (self.encoder, step) = (encoder, history.broadcastStep)
    }

    // MARK: Logs

    /// The apps have changed.
    mutating func setApps(_ apps: [AppEntry]) { heads = apps.map { logs[$0.key]?.head ?? 0 } }

    /// The highest number that this shard knows, without a look at the logs.
    @inline(__always)
    func head(ofAppAt index: Int) -> UInt64 { index < heads.count ? heads[index] : 0 }

    func log(of app: AppKey) -> BroadcastLog? { logs.isEmpty ? nil : logs[app] }
    func broadcast(_ number: UInt64, of app: AppKey) -> LiveBroadcast? { logs[app]?.broadcast(number) }
    var liveCount: Int { logs.values.reduce(0) { $0 + $1.live.count } }
    func liveCount(of app: AppKey) -> Int { logs[app]?.live.count ?? 0 }

    /// The next number of an app, which only its home bucket's shard gives.
    mutating func giveNumber(_ app: AppKey) -> UInt64 {
        var log = logs[app] ?? BroadcastLog(skipped: step)
        log.given = max(log.given, log.head + log.skipped) + 1
        logs[app] = log
        return log.given
    }

    /// The highest number given or known.
    func highest(of app: AppKey) -> UInt64 { max(logs[app]?.given ?? 0, logs[app]?.head ?? 0) }

    mutating func raiseHead(of app: AppKey, to head: UInt64) {
        var log = logs[app] ?? BroadcastLog(skipped: step)
        if head > log.head { (log.head, log.skipped) = (head, 0) }
        logs[app] = log
    }

    /// Makes the next number of an app skip `count` numbers, for a log that was written under another history.
    mutating func skip(_ count: UInt64, of app: AppKey) { logs[app]?.skipped = count }

    /// Keeps a live broadcast at its place in the order of the numbers.
    mutating func keep(_ record: TaskRecord) {
        guard let live = LiveBroadcast(record, encoder: encoder) else { return }
        var log = logs[record.app] ?? BroadcastLog(skipped: step)
        if let known = log.broadcast(live.number) {
            // Its home tells of it again: it may have been stopped meanwhile.
            known.endsAs = known.endsAs ?? live.endsAs
            return
        }
        log.live.insert(live, at: log.live.firstIndex { $0.number > live.number } ?? log.live.count)
        logs[record.app] = log
    }

    /// A piece of the logs that lie in these buckets.
    ///
    /// It has one broadcast at least, if there is one, and ends before one that would make it too long.
    ///
    /// - Returns: the piece, and where the next one begins; `nil`: there is none.
    func piece(_ piece: BroadcastPiece, of share: LoopShare) -> (logs: [AppBroadcasts], next: BroadcastPlace?) {
        let first = piece.start?.app.word ?? 0
        let apps = logs.keys.filter { app in
            app.word >= first && app.home.loop(of: share.count) == share.index
        }.sorted { $0.word < $1.word }
        var found: [AppBroadcasts] = []
        var room = min(piece.byteCount, BroadcastPiece.byteLimit)
        var isEmpty = true
        for app in apps {
            guard let log = logs[app] else { continue }
            let after = piece.start?.app == app ? piece.start?.number ?? 0 : 0
            guard after < log.head else { continue }
            guard isEmpty || room > 0 else { return (found, BroadcastPlace(app: app, number: 0)) }
            var part = AppBroadcasts(app: app, head: log.head, after: after)
            room -= Self.logByteCount
            for live in log.live where live.number > after && live.number <= log.head {
                let byteCount = TaskRow.byteCount(live.record)
                guard isEmpty || byteCount <= room else {
                    part.end(with: live.number - 1)
                    return (found + [part], BroadcastPlace(app: app, number: live.number - 1))
                }
                part.records.append(live.presentRecord)
                room -= byteCount
                isEmpty = false
            }
            found.append(part)
            // Logs without live broadcasts take room, too.
            if room <= 0 { isEmpty = false }
        }
        return (found, nil)
    }

    /// What a log takes in a piece beside its broadcasts, about.
    private static let logByteCount = 64

    /// How far the logs go that lie in these buckets; without what they have.
    func heads(of share: LoopShare) -> [AppBroadcasts] {
        logs.compactMap { app, log in
            guard log.head > 0, app.home.loop(of: share.count) == share.index else { return nil }
            return AppBroadcasts(app: app, head: log.head, records: [])
        }
    }

    /// Nothing of a task goes out any more.
    func close(_ task: TaskID, _ app: AppKey, as state: FinalState) {
        logs[app]?.live.first { $0.task == task }?.endsAs = state
    }

    mutating func forget(_ task: TaskID, _ app: AppKey) { logs[app]?.live.removeAll { $0.task == task } }

    // MARK: Logs of other shards

    /// Takes it that all logs but those of this share are unknown.
    mutating func knowsOnly(_ share: LoopShare) {
        shardCount = share.count
        untold = Set(0..<share.count).subtracting([share.index])
    }

    /// The logs in this shard's buckets are known from now on.
    ///
    /// - Returns: true when they were unknown.
    mutating func told(by shard: Int) -> Bool { untold.remove(shard) != nil }

    /// True when no broadcast is between the last one known and `number`.
    func isNext(_ number: UInt64, of app: AppKey) -> Bool {
        let log = logs[app] ?? BroadcastLog(skipped: step)
        // The number that the home gave its first broadcast counts, also after another history has begun.
        return number == log.head + 1 || number == log.head + log.skipped + 1 || log.head == 0 && number == log.given
    }

    /// True while the shard with the app's log has not told of it.
    func isUnknown(_ app: AppKey) -> Bool { !untold.isEmpty && untold.contains(app.home.loop(of: shardCount)) }

    /// Forgets what the home has closed: it is not in the home's log any more.
    mutating func forgetClosed(_ log: AppBroadcasts) {
        guard let bounds = log.bounds else { return }
        let live = Set(log.records.compactMap { $0.broadcast?.number })
        logs[log.app]?.live.removeAll { known in
            known.number > bounds.after && known.number <= bounds.through && !live.contains(known.number)
        }
    }

    // MARK: Scans of sessions

    /// A scan of all sessions of this loop, which evaluates an app's new broadcasts.
    ///
    /// Each app has a scan of its own, so one app's `speed` delays no other app.
    mutating func scan(_ app: AppKey, slotCount: Int, loopCount: Int) {
        scans[app] = SessionScan(left: slotCount, loopCount: loopCount)
    }

    func scan(of app: AppKey) -> SessionScan? { scans[app] }
    mutating func setScan(of app: AppKey, _ scan: SessionScan?) { scans[app] = scan }

    /// Apps with a scan, in an order that is the same in each run.
    var scannedApps: [AppKey] { scans.isEmpty ? [] : scans.keys.sorted { $0.word < $1.word } }

    /// When the next step of a scan is due.
    var nextStep: GatewayTime { scans.isEmpty ? .max : scans.values.reduce(.max) { min($0, $1.pausedUntil) } }

    // MARK: Cursors

    /// The row of the device must have the cursor by that time.
    mutating func cursorMoved(_ device: DeviceSlot, dueAt time: GatewayTime) {
        movedCursors.append(device)
        cursorsDueAt = min(cursorsDueAt, time)
    }

    /// Devices whose cursor is due, at most `limit`; the others stay due.
    mutating func popMovedCursors(_ limit: Int, now: GatewayTime) -> [DeviceSlot] {
        guard cursorsDueAt <= now else { return [] }
        let taken = Array(movedCursors.suffix(limit).reversed())
        movedCursors.removeLast(taken.count)
        cursorsDueAt = movedCursors.isEmpty ? .max : now
        return taken
    }
}
