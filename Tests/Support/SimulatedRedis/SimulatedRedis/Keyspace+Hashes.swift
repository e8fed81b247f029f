extension Keyspace {
    /// Returns the hash under a key: empty if the key is missing, `nil` if the value has another type.
    private func hash(_ key: Bytes) -> [Bytes: Bytes]? {
        switch find(key)?.value {
        case nil: [:]
        case .hash(let fields)?: fields
        default: nil
        }
    }

    mutating func performHash(_ name: String, _ words: [Bytes]) -> Reply {
        let key = words[1]
        guard var fields = hash(key) else { return .wrongType }
        guard Self.traits(of: name)?.isWrite == true else { return readHash(name, words, fields) }
        let expiresAt = lend(key)
        defer { if !fields.isEmpty { store(key, .hash(fields), expiresAt: expiresAt) } }
        switch name {
        case "HSET":
            guard words.count % 2 == 0 else { return .error("ERR wrong number of arguments for 'hset' command") }
            var count: Int64 = 0
            for index in stride(from: 2, to: words.count, by: 2) {
                if fields.updateValue(words[index + 1], forKey: words[index]) == nil { count += 1 }
            }
            changed(words)
            return .integer(count)
        case "HSETNX":
            guard fields[words[2]] == nil else { return .integer(0) }
            fields[words[2]] = words[3]
            changed(words)
            return .integer(1)
        case "HINCRBY":
            guard let step = Self.integer(words[3]) else { return .notInteger }
            var old: Int64 = 0
            if let bytes = fields[words[2]] {
                guard let number = Self.integer(bytes) else { return .error("ERR hash value is not an integer") }
                old = number
            }
            let (sum, isOver) = old.addingReportingOverflow(step)
            guard !isOver else { return .error("ERR increment or decrement would overflow") }
            fields[words[2]] = Bytes(String(sum).utf8)
            changed(words)
            return .integer(sum)
        case "HDEL":
            var count: Int64 = 0
            for field in words.dropFirst(2) where fields.removeValue(forKey: field) != nil { count += 1 }
            guard count > 0 else { return .integer(0) }
            changed(words)
            return .integer(count)
        default: return .error("ERR unknown command '\(name)'")
        }
    }

    private func readHash(_ name: String, _ words: [Bytes], _ fields: [Bytes: Bytes]) -> Reply {
        switch name {
        case "HGET": return fields[words[2]].map { .bulk($0) } ?? .null
        case "HMGET": return .array(words.dropFirst(2).map { field in fields[field].map { .bulk($0) } ?? .null })
        case "HLEN": return .integer(Int64(fields.count))
        case "HEXISTS": return .integer(fields[words[2]] == nil ? 0 : 1)
        case "HSTRLEN": return .integer(Int64(fields[words[2]]?.count ?? 0))
        case "HKEYS": return .array(ordered(fields).map { .bulk($0.key) })
        case "HGETALL": return .array(ordered(fields).flatMap { [.bulk($0.key), .bulk($0.value)] })
        case "HSCAN":
            guard Self.integer(words[2]) != nil else { return .error("ERR invalid cursor") }
            return .array([.text("0"), .array(ordered(fields).flatMap { [.bulk($0.key), .bulk($0.value)] })])
        default: return .error("ERR unknown command '\(name)'")
        }
    }

    /// A real server returns fields in an unspecified order; a sorted order keeps runs reproducible.
    private func ordered(_ fields: [Bytes: Bytes]) -> [(key: Bytes, value: Bytes)] {
        fields.sorted { $0.key.lexicographicallyPrecedes($1.key) }
    }
}
