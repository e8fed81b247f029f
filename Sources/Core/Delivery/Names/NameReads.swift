internal import Wire

/// Aliases whose row a reader is reading, with the work that waits for it in order; and the stamps of reservations.
struct AliasReads {
    private var waiting: [AliasName: [AliasWork]] = [:]
    private var lastStamp: GatewayTime = 0

    func isUnderWay(_ name: AliasName) -> Bool { waiting[name] != nil }
    mutating func begin(_ name: AliasName) { waiting[name] = [] }
    mutating func wait(for name: AliasName, _ work: @escaping AliasWork) { waiting[name]?.append(work) }
    mutating func end(_ name: AliasName) -> [AliasWork] { waiting.removeValue(forKey: name) ?? [] }

    /// Unique and rising, so that a release of an earlier reservation never removes a later one.
    mutating func nextStamp(_ now: GatewayTime) -> GatewayTime {
        lastStamp = max(lastStamp + 1, now)
        return lastStamp
    }
}

/// Tag walks under way: an app that has none may begin one even beyond the bound of all.
struct TagWalkPlaces {
    private var count = 0
    private var byApp: [AppKey: Int] = [:]

    mutating func take(_ app: AppKey, limit: Int) -> Bool {
        guard count < limit || byApp[app] == nil else { return false }
        count += 1
        byApp[app, default: 0] += 1
        return true
    }

    mutating func give(back app: AppKey) {
        count -= 1
        let left = byApp[app, default: 1] - 1
        byApp[app] = left > 0 ? left : nil
    }
}
