/// What the sender remembers of single tokens, within a bound; the oldest entry goes first.
///
/// All of it may be lost at a restart: then a token costs one request more.
package struct TokenMemory: ~Copyable {
    struct Entry {
        /// The environment that took the token in place of the one it was registered with.
        var environment: Environment?
        /// Nothing is sent before this, in monotonic milliseconds.
        var restsUntil: Int64 = 0
        /// How often in a row Apple said that the token gets too much.
        var refusals = 0
    }

    private let limit: Int
    private var entries: [String: Entry] = [:]
    /// Tokens in the order of their first entry; some may be gone.
    private var order: [String] = []
    private var firstInOrder = 0

    package init(limit: Int) { self.limit = limit }

    package var count: Int { entries.count }

    /// Where a token's requests go.
    package func environment(of token: String, registered: Environment) -> Environment {
        entries[token]?.environment ?? registered
    }

    /// The token belongs to another environment than the one it was registered with.
    package mutating func belongs(_ token: String, to environment: Environment) {
        change(token) { $0.environment = environment }
    }

    /// Until when nothing is sent to the token; `nil`: it may get the next.
    package func restsUntil(_ token: String, now: Int64) -> Int64? {
        guard let time = entries[token]?.restsUntil, time > now else { return nil }
        return time
    }

    /// Apple said that the token gets too much.
    ///
    /// - Returns: the rest in milliseconds: what the server asked for, or one that doubles from a second to five minutes.
    package mutating func tooMuch(_ token: String, now: Int64, retryAfter: Int64?) -> Int64 {
        var rest: Int64 = 0
        change(token) { entry in
            entry.refusals += 1
            rest = retryAfter.map { min($0, 3_600) * 1_000 } ?? min(300_000, 1_000 << Int64(min(entry.refusals - 1, 9)))
            entry.restsUntil = now + rest
        }
        return rest
    }

    /// Apple took a notification for the token.
    package mutating func took(_ token: String) {
        guard let entry = entries[token], entry.refusals > 0 else { return }
        if entry.environment == nil { entries[token] = nil } else { entries[token]?.refusals = 0 }
    }

    private mutating func change(_ token: String, _ body: (inout Entry) -> Void) {
        if entries[token] == nil {
            if entries.count >= limit { dropOldest() }
            order.append(token)
        }
        body(&entries[token, default: Entry()])
        // Entries that went by themselves leave their places behind.
        if order.count - firstInOrder > 2 * limit + 16 { compact() }
    }

    private mutating func dropOldest() {
        while firstInOrder < order.count {
            let token = order[firstInOrder]
            firstInOrder += 1
            if entries.removeValue(forKey: token) != nil { break }
        }
        if firstInOrder > limit { compact() }
    }

    private mutating func compact() {
        var seen: Set<String> = []
        order = order[firstInOrder...].filter { entries[$0] != nil && seen.insert($0).inserted }
        firstInOrder = 0
    }
}
