// Rate limiting by app when the journal is short of room: the shard first refuses apps above their share.
//
// The share is not enforced while there is room. An app whose recent messages take more than an equal part gets `busy` while room
// is short. The equal part is the total divided by the number of publishing apps.

package import Wire

/// The recent bytes of each app's accepted messages, halved every second.
struct AppUsage {
    /// The estimated bytes of a message besides its row: the counters, a job, and the message's end.
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
    /// Whether room is short: uncommitted bytes at a quarter of their bound, or journal or waiting commands at seven eighths.
    var isShortOfRoom: Bool {
        store.isShortOfRoom || core.waitingCount >= limits.waitingInAll - limits.waitingInAll / 8
    }

    /// Returns whether a publish of the app is accepted; false if room is short and the app exceeds its share.
    package func mayAccept(_ key: AppKey) -> Bool {
        guard isShortOfRoom, let app = apps.index(of: key) else { return true }
        return !usage.isOverShare(app)
    }

    @inline(__always)
    mutating func noteUse(of app: Int, byteCount: Int) { usage.add(app, byteCount: byteCount) }

    /// The apps that recently published to devices of this loop.
    package var publishingApps: [AppKey] { apps.indices.filter { usage.isActive($0) }.map { apps[$0].key } }
}
