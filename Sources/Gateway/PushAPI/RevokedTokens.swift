package import Delivery
package import Wire

/// The revoked tokens that have not expired; they are grouped by the hour of expiry, so an insertion and an expiry access only
/// one group.
package struct RevokedTokens: Sendable {
    private var hours: [Int64: Set<TokenID>] = [:]
    package private(set) var count = 0

    package init() {}

    package init(_ tokens: some Sequence<TokenID>) {
        for token in tokens { insert(token) }
    }

    package var all: [TokenID] { hours.values.flatMap { $0 } }

    func contains(_ token: TokenID) -> Bool { count > 0 && hours[Self.hour(token)]?.contains(token) ?? false }

    mutating func insert(_ token: TokenID) {
        if hours[Self.hour(token), default: []].insert(token).inserted { count += 1 }
    }

    func hasExpired(now: GatewayTime) -> Bool { hours.keys.contains { Self.isOver($0, now) } }

    /// Removes and returns up to `limit` tokens whose hour is over.
    mutating func popExpired(now: GatewayTime, limit: Int) -> [TokenID] {
        var popped: [TokenID] = []
        for hour in hours.keys.filter({ Self.isOver($0, now) }) {
            while popped.count < limit, let token = hours[hour]?.popFirst() { popped.append(token) }
            if hours[hour]?.isEmpty ?? false { hours[hour] = nil }
        }
        count -= popped.count
        return popped
    }

    private static let hourLength: Int64 = 3_600_000

    private static func hour(_ token: TokenID) -> Int64 { token.expiresAt / hourLength }

    /// Returns whether all tokens of an hour have expired.
    private static func isOver(_ hour: Int64, _ now: GatewayTime) -> Bool { hour < now / hourLength }
}

/// The number of revoked tokens of each app that have not expired, to limit the app's share of memory.
///
/// A value type; the process has one.
package struct RevocationLimits: Sendable {
    private var hours: [AppKey: [Int64: Int]] = [:]

    package init() {}

    /// Counts a revoked token; returns `false` if the app has reached `Limits.revokedTokensOfApp`.
    package mutating func take(_ token: TokenID, of app: AppKey, now: GatewayTime) -> Bool {
        var own = (hours[app] ?? [:]).filter { $0.key >= now / 3_600_000 }
        guard own.values.reduce(0, +) < Limits.revokedTokensOfApp else { return false }
        own[token.expiresAt / 3_600_000, default: 0] += 1
        hours[app] = own
        return true
    }

    /// Reverts `take` after a failed revocation.
    package mutating func giveBack(_ token: TokenID, of app: AppKey) {
        let hour = token.expiresAt / 3_600_000
        // The app may have been deleted, or the token's hour may have expired.
        guard let count = hours[app]?[hour], count > 0 else { return }
        hours[app]?[hour] = count - 1
    }

    package mutating func forget(_ app: AppKey) { hours[app] = nil }
}
