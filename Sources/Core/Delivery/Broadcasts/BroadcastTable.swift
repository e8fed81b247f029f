internal import Wire

/// The live broadcasts of each app, this loop's scans of its sessions, and the devices with moved cursors.
struct BroadcastTable {
    private let encoder: any BroadcastEncoder
    private var logs: [AppKey: BroadcastLog] = [:]
    /// The head of each app's log, by app index, read with every message of a device.
    private var heads: [UInt64] = []
    private var scans: [AppKey: SessionScan] = [:]
    /// Devices whose row does not have their current broadcast cursor.
    private var movedCursors: [DeviceSlot] = []
    private(set) var cursorsDueAt = GatewayTime.max
    /// The shards, of `shardCount`, that have not sent their logs.
    private var untold: Set<Int> = []
    private var shardCount = 1
    /// The number of broadcast numbers that a new log skips (`StoreHistory.broadcastStep`).
    var step: UInt64

    init(encoder: any BroadcastEncoder, history: StoreHistory) {
        (self.encoder, step) = (encoder, history.broadcastStep)
    }

    // MARK: Logs

    mutating func setApps(_ apps: [AppEntry]) { heads = apps.map { logs[$0.key]?.head ?? 0 } }

    /// Returns the highest known number of an app, without a dictionary access.
    @inline(__always)
    func head(ofAppAt index: Int) -> UInt64 { index < heads.count ? heads[index] : 0 }

    func log(of app: AppKey) -> BroadcastLog? { logs.isEmpty ? nil : logs[app] }
    func broadcast(_ number: UInt64, of app: AppKey) -> LiveBroadcast? { logs[app]?.broadcast(number) }
    var liveCount: Int { logs.values.reduce(0) { $0 + $1.live.count } }
    func liveCount(of app: AppKey) -> Int { logs[app]?.live.count ?? 0 }

    /// Returns the next number of an app; only the shard of its home bucket assigns numbers.
    mutating func giveNumber(_ app: AppKey) -> UInt64 {
        var log = logs[app] ?? BroadcastLog(skipped: step)
        log.given = max(log.given, log.head + log.skipped) + 1
        logs[app] = log
        return log.given
    }

    func highest(of app: AppKey) -> UInt64 { max(logs[app]?.given ?? 0, logs[app]?.head ?? 0) }

    mutating func raiseHead(of app: AppKey, to head: UInt64) {
        var log = logs[app] ?? BroadcastLog(skipped: step)
        if head > log.head { (log.head, log.skipped) = (head, 0) }
        logs[app] = log
    }

    /// Advances an app's next broadcast number by `count`, because its log was written under another history.
    mutating func skip(_ count: UInt64, of app: AppKey) { logs[app]?.skipped = count }

    mutating func keep(_ record: TaskRecord) {
        guard let live = LiveBroadcast(record, encoder: encoder) else { return }
        var log = logs[record.app] ?? BroadcastLog(skipped: step)
        if let known = log.broadcast(live.number) {
            // The home has sent this broadcast again, perhaps because the broadcast was stopped.
            known.endsAs = known.endsAs ?? live.endsAs
            return
        }
        log.live.insert(live, at: log.live.firstIndex { $0.number > live.number } ?? log.live.count)
        logs[record.app] = log
    }

    /// Returns a piece of the logs of these buckets.
    ///
    /// The piece has at least one broadcast, if any is left. It ends before a further broadcast that would exceed the size.
    ///
    /// - Returns: the piece, and the start of the next one; `nil` if it is the last.
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
            // If logs without live broadcasts fill the piece, the next app begins a new one.
            if room <= 0 { isEmpty = false }
        }
        return (found, nil)
    }

    /// The approximate bytes that a log adds to a piece, without its broadcasts.
    private static let logByteCount = 64

    /// Returns the heads of the logs of these buckets, without their broadcasts.
    func heads(of share: LoopShare) -> [AppBroadcasts] {
        logs.compactMap { app, log in
            guard log.head > 0, app.home.loop(of: share.count) == share.index else { return nil }
            return AppBroadcasts(app: app, head: log.head, records: [])
        }
    }

    func close(_ task: TaskID, _ app: AppKey, as state: FinalState) {
        logs[app]?.live.first { $0.task == task }?.endsAs = state
    }

    mutating func forget(_ task: TaskID, _ app: AppKey) { logs[app]?.live.removeAll { $0.task == task } }

    // MARK: Logs of other shards

    /// Marks all logs outside this share as unknown.
    mutating func knowsOnly(_ share: LoopShare) {
        shardCount = share.count
        untold = Set(0..<share.count).subtracting([share.index])
    }

    /// Marks the logs of a shard's buckets as known.
    ///
    /// - Returns: true if they were unknown.
    mutating func told(by shard: Int) -> Bool { untold.remove(shard) != nil }

    /// Returns whether no broadcast is missing between the last known one and `number`.
    func isNext(_ number: UInt64, of app: AppKey) -> Bool {
        let log = logs[app] ?? BroadcastLog(skipped: step)
        // On the home shard, the first broadcast's number is the next one even if a new history has changed `skipped` since.
        return number == log.head + 1 || number == log.head + log.skipped + 1 || log.head == 0 && number == log.given
    }

    /// Returns whether the app's log is unknown because its home shard has not sent it.
    func isUnknown(_ app: AppKey) -> Bool { !untold.isEmpty && untold.contains(app.home.loop(of: shardCount)) }

    /// Removes broadcasts that the home has closed and removed from its log.
    mutating func forgetClosed(_ log: AppBroadcasts) {
        guard let bounds = log.bounds else { return }
        let live = Set(log.records.compactMap { $0.broadcast?.number })
        logs[log.app]?.live.removeAll { known in
            known.number > bounds.after && known.number <= bounds.through && !live.contains(known.number)
        }
    }

    // MARK: Scans of sessions

    /// Starts a scan of this loop's sessions that evaluates an app's new broadcasts.
    ///
    /// Each app has a separate scan, so one app's `speed` delays no other app.
    mutating func scan(_ app: AppKey, slotCount: Int, loopCount: Int) {
        scans[app] = SessionScan(left: slotCount, loopCount: loopCount)
    }

    func scan(of app: AppKey) -> SessionScan? { scans[app] }
    mutating func setScan(of app: AppKey, _ scan: SessionScan?) { scans[app] = scan }

    /// The apps with a scan, in deterministic order.
    var scannedApps: [AppKey] { scans.isEmpty ? [] : scans.keys.sorted { $0.word < $1.word } }

    var nextStep: GatewayTime { scans.isEmpty ? .max : scans.values.reduce(.max) { min($0, $1.pausedUntil) } }

    // MARK: Cursors

    /// Records a moved cursor, which the device's row must have by the given time.
    mutating func cursorMoved(_ device: DeviceSlot, dueAt time: GatewayTime) {
        movedCursors.append(device)
        cursorsDueAt = min(cursorsDueAt, time)
    }

    /// Removes up to `limit` devices whose cursor is due; the others stay due.
    mutating func popMovedCursors(_ limit: Int, now: GatewayTime) -> [DeviceSlot] {
        guard cursorsDueAt <= now else { return [] }
        let taken = Array(movedCursors.suffix(limit).reversed())
        movedCursors.removeLast(taken.count)
        cursorsDueAt = movedCursors.isEmpty ? .max : now
        return taken
    }
}
