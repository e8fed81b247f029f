package import Delivery
package import Wire

/// Void tokens until they would have expired.
///
/// They lie by the hour in which they expire. So one more looks at no other, and the end of an hour forgets its own.
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

    /// Whether tokens have expired with their hour.
    func hasExpired(now: GatewayTime) -> Bool { hours.keys.contains { Self.isOver($0, now) } }

    /// Takes out up to `limit` tokens whose hour is over.
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

    /// A token expires a moment before the end of its hour at the latest.
    private static func isOver(_ hour: Int64, _ now: GatewayTime) -> Bool { hour < now / hourLength }
}

/// How many tokens of each app are void and not expired: what one app may have remembered.
///
/// A value; the process has one.
package struct RevocationLimits: Sendable {
    private var hours: [AppKey: [Int64: Int]] = [:]

    package init() {}

    /// Counts a token that becomes void; false when the app has `Limits.revokedTokensOfApp` of them.
    package mutating func take(_ token: TokenID, of app: AppKey, now: GatewayTime) -> Bool {
        var own = (hours[app] ?? [:]).filter { $0.key >= now / 3_600_000 }
        guard own.values.reduce(0, +) < Limits.revokedTokensOfApp else { return false }
        own[token.expiresAt / 3_600_000, default: 0] += 1
        hours[app] = own
        return true
    }

    /// Takes back what `take` counted: the token has not become void.
    package mutating func giveBack(_ token: TokenID, of app: AppKey) {
        let hour = token.expiresAt / 3_600_000
        // The app may have gone, and its hour been forgotten.
        guard let count = hours[app]?[hour], count > 0 else { return }
        hours[app]?[hour] = count - 1
    }

    /// The app is gone.
    package mutating func forget(_ app: AppKey) { hours[app] = nil }
}
