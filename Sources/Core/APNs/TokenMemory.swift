/// A bounded cache of the sender's state per token, not persisted; a lost entry costs one extra request.
package struct TokenMemory: ~Copyable {
    struct Entry {
        /// The environment that accepted the token instead of the registered one.
        var environment: Environment?
        /// The end of the token's pause, in monotonic milliseconds.
        var restsUntil: Int64 = 0
        /// The number of consecutive answers that reported too many pushes to the token.
        var refusals = 0
    }

    private let limit: Int
    private var entries: [String: Entry] = [:]
    /// The tokens in the order of their first entry; the entries of some may have been removed.
    private var order: [String] = []
    private var firstInOrder = 0

    package init(limit: Int) { self.limit = limit }

    package var count: Int { entries.count }

    package func environment(of token: String, registered: Environment) -> Environment {
        entries[token]?.environment ?? registered
    }

    /// Records that the token belongs to another environment than the registered one.
    package mutating func belongs(_ token: String, to environment: Environment) {
        change(token) { $0.environment = environment }
    }

    /// Returns the end of the token's pause, or `nil` if it is not paused.
    package func restsUntil(_ token: String, now: Int64) -> Int64? {
        guard let time = entries[token]?.restsUntil, time > now else { return nil }
        return time
    }

    /// Pauses a token after Apple reported too many pushes to it.
    ///
    /// - Returns: the pause in milliseconds: the server's delay, or a backoff that doubles from one second to five minutes.
    package mutating func tooMuch(_ token: String, now: Int64, retryAfter: Int64?) -> Int64 {
        var rest: Int64 = 0
        change(token) { entry in
            entry.refusals += 1
            rest = retryAfter.map { min($0, 3_600) * 1_000 } ?? min(300_000, 1_000 << Int64(min(entry.refusals - 1, 9)))
            entry.restsUntil = now + rest
        }
        return rest
    }

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
        // `took` removes entries but leaves their tokens in `order`.
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
