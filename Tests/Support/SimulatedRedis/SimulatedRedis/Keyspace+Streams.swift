/// Entries with increasing ids; the last generated id survives the deletion of its entry.
struct Stream: Equatable {
    struct ID: Comparable, Hashable {
        var high: UInt64
        var low: UInt64
        static let least = ID(high: 0, low: 0)
        static let most = ID(high: .max, low: .max)

        static func < (left: ID, right: ID) -> Bool {
            left.high != right.high ? left.high < right.high : left.low < right.low
        }
        var text: String { "\(high)-\(low)" }
        var next: ID? { low < .max ? ID(high: high, low: low + 1) : high < .max ? ID(high: high + 1, low: 0) : nil }
        var previous: ID? { low > 0 ? ID(high: high, low: low - 1) : high > 0 ? ID(high: high - 1, low: .max) : nil }
    }
    struct Entry: Equatable {
        var id: ID
        var fields: [Bytes]
        var reply: Reply { .array([.text(id.text), .array(fields.map { .bulk($0) })]) }
    }
    var entries: [Entry] = []
    var lastID = ID.least

    func range(_ from: ID, _ to: ID) -> ArraySlice<Entry> {
        let begin = entries.partitioningIndex { $0.id >= from }
        let end = entries.partitioningIndex { $0.id > to }
        return begin < end ? entries[begin..<end] : []
    }
}

extension Array {
    /// Returns the first index at which `isBehind` holds; the predicate must also hold for all later elements.
    fileprivate func partitioningIndex(_ isBehind: (Element) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if isBehind(self[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

extension Keyspace {
    private static let badID = Reply.error("ERR Invalid stream ID specified as stream command argument")

    private func stream(_ key: Bytes) -> Stream? {
        switch find(key)?.value {
        case nil: Stream()
        case .stream(let stream)?: stream
        default: nil
        }
    }

    /// Parses `high-low`, or `high` alone with the given low part.
    private func id(_ word: Bytes, low: UInt64) -> Stream.ID? {
        let text = String(decoding: word, as: UTF8.self)
        guard let dash = text.firstIndex(of: "-") else { return UInt64(text).map { .init(high: $0, low: low) } }
        guard let high = UInt64(text[..<dash]), let low = UInt64(text[text.index(after: dash)...]) else { return nil }
        return Stream.ID(high: high, low: low)
    }

    mutating func performStream(_ name: String, _ words: [Bytes]) -> Reply {
        let key = words[1]
        switch name {
        case "XADD": return addEntry(words)
        case "XINFO":
            guard Self.upper(key) == "STREAM" else { return .syntax }
            guard let stream = stream(words[2]) else { return .wrongType }
            guard has(words[2]) else { return .error("ERR no such key") }
            return .array([
                .text("length"), .integer(Int64(stream.entries.count)), .text("last-generated-id"),
                .text(stream.lastID.text),
                .text("first-entry"), stream.entries.first?.reply ?? .null, .text("last-entry"),
                stream.entries.last?.reply ?? .null,
            ])
        default: break
        }
        if name == "XRANGE" || name == "XREVRANGE" { return range(words, isReversed: name == "XREVRANGE") }
        guard var stream = stream(key) else { return .wrongType }
        switch name {
        case "XLEN": return .integer(Int64(stream.entries.count))
        case "XDEL":
            var ids: [Stream.ID] = []
            for word in words.dropFirst(2) {
                guard let id = id(word, low: 0) else { return Self.badID }
                ids.append(id)
            }
            let before = stream.entries.count
            stream.entries.removeAll { ids.contains($0.id) }
            let count = before - stream.entries.count
            guard count > 0 else { return .integer(0) }
            store(key, .stream(stream))
            changed(words)
            return .integer(Int64(count))
        case "XSETID":
            guard let id = id(words[2], low: 0) else { return Self.badID }
            guard has(key) else { return .error("ERR no such key") }
            if let last = stream.entries.last, id < last.id {
                return .error("ERR The ID specified in XSETID is smaller than the target stream top item")
            }
            stream.lastID = id
            store(key, .stream(stream))
            changed(words)
            return .ok
        case "XTRIM":
            var index = 2
            guard let trim = trimming(words, &index), index == words.count else { return .syntax }
            let count = trim(&stream)
            guard count > 0 else { return .integer(0) }
            store(key, .stream(stream))
            changed(words)
            return .integer(Int64(count))
        default: return .error("ERR unknown command '\(name)'")
        }
    }

    private func range(_ words: [Bytes], isReversed: Bool) -> Reply {
        guard let from = bound(isReversed ? words[3] : words[2], isEnd: false),
            let to = bound(isReversed ? words[2] : words[3], isEnd: true)
        else { return Self.badID }
        var limit = Int64.max
        if words.count > 4 {
            guard words.count == 6, Self.upper(words[4]) == "COUNT" else { return .syntax }
            guard let count = Self.integer(words[5]) else { return .notInteger }
            limit = max(count, 0)
        }
        guard let stream = stream(words[1]) else { return .wrongType }
        guard has(words[1]) else { return .array([]) }
        guard limit > 0 else { return .null }
        let found = stream.range(from, to)
        return .array(
            (isReversed ? Array(found.reversed()) : Array(found)).prefix(Int(clamping: limit)).map(\.reply))
    }

    private func bound(_ word: Bytes, isEnd: Bool) -> Stream.ID? {
        switch word {
        case [UInt8(ascii: "-")]: return .least
        case [UInt8(ascii: "+")]: return .most
        default: break
        }
        let isExcluded = word.first == UInt8(ascii: "(")
        guard let id = id(isExcluded ? Array(word.dropFirst()) : word, low: isEnd ? .max : 0) else { return nil }
        return isExcluded ? isEnd ? id.previous : id.next : id
    }

    /// Parses MAXLEN or MINID at `index` into a function that trims a stream and returns the number of removed entries.
    ///
    /// Returns `nil` for any other word.
    private func trimming(_ words: [Bytes], _ index: inout Int) -> ((inout Stream) -> Int)? {
        guard index < words.count else { return nil }
        let kind = Self.upper(words[index])
        guard kind == "MAXLEN" || kind == "MINID" else { return nil }
        index += 1
        // A real server may keep more entries after `~`. This one trims exactly; no test may rely on that.
        if index < words.count, words[index] == [UInt8(ascii: "=")] || words[index] == [UInt8(ascii: "~")] {
            index += 1
        }
        guard index < words.count else { return nil }
        let word = words[index]
        index += 1
        if index + 1 < words.count, Self.upper(words[index]) == "LIMIT" { index += 2 }
        if kind == "MAXLEN" {
            guard let length = Self.integer(word), length >= 0 else { return nil }
            return { stream in
                let count = max(0, stream.entries.count - Int(clamping: length))
                stream.entries.removeFirst(count)
                return count
            }
        }
        guard let id = id(word, low: 0) else { return nil }
        return { stream in
            let count = stream.entries.partitioningIndex { $0.id >= id }
            stream.entries.removeFirst(count)
            return count
        }
    }

    private mutating func addEntry(_ words: [Bytes]) -> Reply {
        var (index, mustExist) = (2, false)
        var trim: ((inout Stream) -> Int)?
        loop: while index < words.count {
            switch Self.upper(words[index]) {
            case "NOMKSTREAM":
                mustExist = true
                index += 1
            case "MAXLEN", "MINID":
                guard let found = trimming(words, &index) else { return .syntax }
                trim = found
            default: break loop
            }
        }
        guard index < words.count else { return .error("ERR wrong number of arguments for 'xadd' command") }
        let idWord = words[index]
        let fields = Array(words[(index + 1)...])
        let text = String(decoding: idWord, as: UTF8.self)
        // The server validates the id before it looks up the key.
        var given: Stream.ID?
        if text.hasSuffix("-*") {
            guard let high = UInt64(text.dropLast(2)) else { return Self.badID }
            given = Stream.ID(high: high, low: 0)
        } else if text != "*" {
            guard let id = id(idWord, low: 0) else { return Self.badID }
            given = id
        }
        guard !fields.isEmpty, fields.count % 2 == 0 else {
            return .error("ERR wrong number of arguments for 'xadd' command")
        }
        if given == .least, !text.hasSuffix("-*") {
            return .error("ERR The ID specified in XADD must be greater than 0-0")
        }
        guard var stream = stream(words[1]) else { return .wrongType }
        let new: Stream.ID
        if let given {
            new = text.hasSuffix("-*") && given.high == stream.lastID.high ? stream.lastID.next ?? .most : given
        } else {
            let time = UInt64(clamping: now)
            new = time > stream.lastID.high ? .init(high: time, low: 0) : stream.lastID.next ?? .most
        }
        if mustExist, !has(words[1]) { return .null }
        guard new > stream.lastID else {
            return .error("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        }
        let expiresAt = lend(words[1])
        stream.entries.append(Stream.Entry(id: new, fields: fields))
        stream.lastID = new
        _ = trim?(&stream)
        store(words[1], .stream(stream), expiresAt: expiresAt)
        changed(words[..<index] + [Bytes(new.text.utf8)] + fields)
        return .text(new.text)
    }
}
