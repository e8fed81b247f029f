/// Members sorted by score, then by bytes.
struct SortedSet: Equatable {
    struct Member: Equatable {
        var score: Double
        var bytes: Bytes

        static func precedes(_ left: Member, _ right: Member) -> Bool {
            left.score != right.score ? left.score < right.score : left.bytes.lexicographicallyPrecedes(right.bytes)
        }
    }
    private(set) var members: [Member] = []
    private(set) var scores: [Bytes: Double] = [:]

    private func place(_ member: Member) -> Int {
        var (low, high) = (0, members.count)
        while low < high {
            let middle = (low + high) / 2
            if Member.precedes(members[middle], member) { low = middle + 1 } else { high = middle }
        }
        return low
    }

    mutating func set(_ bytes: Bytes, _ score: Double) {
        remove(bytes)
        scores[bytes] = score
        let member = Member(score: score, bytes: bytes)
        members.insert(member, at: place(member))
    }

    @discardableResult
    mutating func remove(_ bytes: Bytes) -> Bool {
        guard let score = scores.removeValue(forKey: bytes) else { return false }
        members.remove(at: place(Member(score: score, bytes: bytes)))
        return true
    }
}

extension Keyspace {
    private func sorted(_ key: Bytes) -> SortedSet? {
        switch find(key)?.value {
        case nil: SortedSet()
        case .sorted(let set)?: set
        default: nil
        }
    }

    static func scoreText(_ score: Double) -> Reply {
        if score == .infinity { return .text("inf") }
        if score == -.infinity { return .text("-inf") }
        if score == score.rounded(), abs(score) < 1e17 { return .text(String(Int64(score))) }
        return .text("\(score)")
    }

    mutating func performSorted(_ name: String, _ words: [Bytes]) -> Reply {
        let key = words[1]
        switch name {
        case "ZADD": return add(words)
        case "ZRANGE": return range(words)
        default: break
        }
        switch name {
        case "ZCOUNT", "ZRANGEBYSCORE", "ZREMRANGEBYSCORE":
            guard scoreRange(words[2], words[3]) != nil else { return .error("ERR min or max is not a float") }
        case "ZLEXCOUNT", "ZRANGEBYLEX", "ZREMRANGEBYLEX":
            guard Bound(words[2]) != nil, Bound(words[3]) != nil else {
                return .error("ERR min or max not valid string range item")
            }
        default: break
        }
        guard var set = sorted(key) else { return .wrongType }
        switch name {
        case "ZCARD": return .integer(Int64(set.members.count))
        case "ZSCORE": return set.scores[words[2]].map(Self.scoreText) ?? .null
        case "ZMSCORE": return .array(words.dropFirst(2).map { set.scores[$0].map(Self.scoreText) ?? .null })
        case "ZCOUNT": return .integer(Int64(byScore(set, words[2], words[3]).count))
        case "ZLEXCOUNT": return .integer(Int64(byBytes(set, words[2], words[3]).count))
        case "ZRANGEBYSCORE", "ZRANGEBYLEX":
            return listed(
                name == "ZRANGEBYLEX" ? byBytes(set, words[2], words[3]) : byScore(set, words[2], words[3]),
                Array(words.dropFirst(4)))
        case "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYSCORE":
            let gone: [Bytes] =
                switch name {
                case "ZREM": Array(words.dropFirst(2))
                case "ZREMRANGEBYLEX": byBytes(set, words[2], words[3]).map(\.bytes)
                default: byScore(set, words[2], words[3]).map(\.bytes)
                }
            let expiresAt = lend(key)
            let count = gone.count { set.remove($0) }
            if !set.members.isEmpty { store(key, .sorted(set), expiresAt: expiresAt) }
            guard count > 0 else { return .integer(0) }
            changed(words)
            return .integer(Int64(count))
        case "ZSCAN":
            let all = set.members.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
            return .array([.text("0"), .array(all.flatMap { [.bulk($0.bytes), Self.scoreText($0.score)] })])
        default: return .error("ERR unknown command '\(name)'")
        }
    }

    private mutating func add(_ words: [Bytes]) -> Reply {
        var index = 2
        var options: Set<String> = []
        while index < words.count, ["NX", "XX", "GT", "LT", "CH"].contains(Self.upper(words[index])) {
            options.insert(Self.upper(words[index]))
            index += 1
        }
        let pairs = Array(words[index...])
        guard !pairs.isEmpty, pairs.count % 2 == 0 else { return .syntax }
        if options.contains("NX"), options.contains("XX") {
            return .error("ERR XX and NX options at the same time are not compatible")
        }
        var scores: [Double] = []
        for index in stride(from: 0, to: pairs.count, by: 2) {
            guard let score = Self.number(pairs[index]) else { return .error("ERR value is not a valid float") }
            scores.append(score)
        }
        guard var set = sorted(words[1]) else { return .wrongType }
        let expiresAt = lend(words[1])
        var (added, updated): (Int64, Int64) = (0, 0)
        for (index, score) in scores.enumerated() {
            let member = pairs[2 * index + 1]
            if let old = set.scores[member] {
                if options.contains("NX") || options.contains("GT") && score <= old
                    || options.contains("LT") && score >= old
                {
                    continue
                }
                if old != score {
                    set.set(member, score)
                    updated += 1
                }
            } else if !options.contains("XX") {
                set.set(member, score)
                added += 1
            }
        }
        if !set.members.isEmpty { store(words[1], .sorted(set), expiresAt: expiresAt) }
        if added + updated > 0 { changed(words) }
        return .integer(options.contains("CH") ? added + updated : added)
    }

    private func range(_ words: [Bytes]) -> Reply {
        var rest = Array(words.dropFirst(4))
        func takes(_ word: String) -> Bool {
            guard let index = rest.firstIndex(where: { Self.upper($0) == word }) else { return false }
            rest.remove(at: index)
            return true
        }
        let (isByScore, isByBytes, isReversed) = (takes("BYSCORE"), takes("BYLEX"), takes("REV"))
        let (from, to) = isReversed ? (words[3], words[2]) : (words[2], words[3])
        if isByScore {
            guard scoreRange(from, to) != nil else { return .error("ERR min or max is not a float") }
            guard let set = sorted(words[1]) else { return .wrongType }
            let found = byScore(set, from, to)
            return listed(isReversed ? found.reversed() : found, rest)
        }
        if isByBytes {
            guard Bound(from) != nil, Bound(to) != nil else {
                return .error("ERR min or max not valid string range item")
            }
            guard let set = sorted(words[1]) else { return .wrongType }
            let found = byBytes(set, from, to)
            return listed(isReversed ? found.reversed() : found, rest)
        }
        guard let first = Self.integer(words[2]), let last = Self.integer(words[3]) else { return .notInteger }
        guard let set = sorted(words[1]) else { return .wrongType }
        let members = isReversed ? set.members.reversed() : set.members
        let count = Int64(members.count)
        let begin = max(first < 0 ? first + count : first, 0)
        let end = min(last < 0 ? last + count : last, count - 1)
        guard begin <= end else { return .array([]) }
        return listed(Array(members[Int(begin)...Int(end)]), rest)
    }

    /// One end of a lexicographical range: `-`, `+`, `[bytes` or `(bytes`.
    private enum Bound {
        case least, most
        case bytes(Bytes, isIncluded: Bool)

        init?(_ word: Bytes) {
            switch word.first {
            case UInt8(ascii: "-") where word.count == 1: self = .least
            case UInt8(ascii: "+") where word.count == 1: self = .most
            case UInt8(ascii: "["): self = .bytes(Array(word.dropFirst()), isIncluded: true)
            case UInt8(ascii: "("): self = .bytes(Array(word.dropFirst()), isIncluded: false)
            default: return nil
            }
        }
    }

    private func byBytes(_ set: SortedSet, _ from: Bytes, _ to: Bytes) -> [SortedSet.Member] {
        guard let from = Bound(from), let to = Bound(to) else { return [] }
        return set.members.filter { member in
            switch from {
            case .least: break
            case .most: return false
            case .bytes(let bytes, let isIncluded):
                let isBehind = bytes.lexicographicallyPrecedes(member.bytes) || isIncluded && bytes == member.bytes
                if !isBehind { return false }
            }
            switch to {
            case .most: return true
            case .least: return false
            case .bytes(let bytes, let isIncluded):
                return member.bytes.lexicographicallyPrecedes(bytes) || isIncluded && bytes == member.bytes
            }
        }
    }

    private func scoreRange(_ from: Bytes, _ to: Bytes) -> (low: Double, isLowOut: Bool, high: Double, isHighOut: Bool)?
    {
        func read(_ word: Bytes) -> (Double, Bool)? {
            let isOut = word.first == UInt8(ascii: "(")
            return Self.number(isOut ? Array(word.dropFirst()) : word).map { ($0, isOut) }
        }
        guard let low = read(from), let high = read(to) else { return nil }
        return (low.0, low.1, high.0, high.1)
    }

    private func byScore(_ set: SortedSet, _ from: Bytes, _ to: Bytes) -> [SortedSet.Member] {
        guard let range = scoreRange(from, to) else { return [] }
        return set.members.filter {
            (range.isLowOut ? $0.score > range.low : $0.score >= range.low)
                && (range.isHighOut ? $0.score < range.high : $0.score <= range.high)
        }
    }

    /// Returns the members as the options WITHSCORES and LIMIT require.
    private func listed(_ found: [SortedSet.Member], _ options: [Bytes]) -> Reply {
        var (found, index, withScores) = (found, 0, false)
        while index < options.count {
            switch Self.upper(options[index]) {
            case "WITHSCORES":
                withScores = true
                index += 1
            case "LIMIT":
                guard index + 2 < options.count else { return .syntax }
                guard let offset = Self.integer(options[index + 1]), let count = Self.integer(options[index + 2]) else {
                    return .notInteger
                }
                guard offset >= 0 else { return .array([]) }
                found = Array(found.dropFirst(Int(offset)))
                if count >= 0 { found = Array(found.prefix(Int(count))) }
                index += 3
            default: return .syntax
            }
        }
        return .array(found.flatMap { withScores ? [.bulk($0.bytes), Self.scoreText($0.score)] : [.bulk($0.bytes)] })
    }
}
