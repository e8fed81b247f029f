internal import Redis

/// What a stream says of itself.
enum LogReading {
    /// The last id that a stream has given, trimmed entries included; `nil` without a stream.
    static func lastID(of key: [UInt8], slot: Int, by client: RedisClient) throws(RedisError) -> LogID? {
        var command = RedisCommand("XINFO", "STREAM")
        command.append(key)
        let attempt = try client.attempt([command], slot: slot)
        if let fault = attempt.replies[0].fault {
            if fault.text.contains("no such key") { return nil }
            throw .refused(attempt.address, fault)
        }
        guard let fields = attempt.replies[0].array,
            let place = fields.firstIndex(where: { $0.text == "last-generated-id" }), place + 1 < fields.count,
            let id = fields[place + 1].text.flatMap({ LogID($0) })
        else { throw .unexpected(attempt.address, command: "XINFO STREAM", "no last id") }
        return id
    }
}
