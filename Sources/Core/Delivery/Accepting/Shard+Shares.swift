// Each app's share of the journal's room: the shard first refuses the app that takes more than its share.
//
// While there is room, no share counts. When little is left, the shard looks at the messages of the last seconds. An
// app that takes more than an equal part, of all apps that publish, gets the answer `busy`; the others go on.

package import Wire

/// Bytes that each app's accepted messages took in the last seconds.
struct AppUsage {
    /// Bytes of a message besides its row: counters, a job, its end.
    private static let rowsByteCount = 512

    private var byteCounts: [Int] = []
    private var total = 0
    private var count = 0
    private var agedAt: GatewayTime = 0

    mutating func add(_ app: Int, byteCount: Int) {
        while byteCounts.count <= app { byteCounts.append(0) }
        if byteCounts[app] == 0 { count += 1 }
        byteCounts[app] += byteCount + Self.rowsByteCount
        total += byteCount + Self.rowsByteCount
    }

    /// Halves what was counted before, once a second.
    mutating func age(_ now: GatewayTime) {
        guard now >= agedAt + 1_000 else { return }
        agedAt = now
        guard total > 0 else { return }
        (total, count) = (0, 0)
        for index in byteCounts.indices {
            byteCounts[index] /= 2
            total += byteCounts[index]
            if byteCounts[index] > 0 { count += 1 }
        }
    }

    func isOverShare(_ app: Int) -> Bool {
        app < byteCounts.count && count > 1 && byteCounts[app] > total / count
    }

    func isActive(_ app: Int) -> Bool { app < byteCounts.count && byteCounts[app] > 0 }
}

extension Shard {
    /// A quarter of the uncommitted bytes' bound is used, or seven eighths of the journal or of the waiting commands' bound.
    var isShortOfRoom: Bool {
        store.isShortOfRoom || core.waitingCount >= limits.waitingInAll - limits.waitingInAll / 8
    }

    /// False when little room is left and the app has used its share: the shard refuses its publishes as busy.
    package func mayAccept(_ key: AppKey) -> Bool {
        guard isShortOfRoom, let app = apps.index(of: key) else { return true }
        return !usage.isOverShare(app)
    }

    @inline(__always)
    mutating func noteUse(of app: Int, byteCount: Int) { usage.add(app, byteCount: byteCount) }

    /// Apps that have published to this loop's devices lately.
    package var publishingApps: [AppKey] { apps.indices.filter { usage.isActive($0) }.map { apps[$0].key } }
}
