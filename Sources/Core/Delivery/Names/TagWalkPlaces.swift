internal import Wire

/// The running tag walks; an app without a walk may always start one, even above the limit.
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
