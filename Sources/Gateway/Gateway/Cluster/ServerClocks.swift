package import Redis

extension ClockCheck {
    /// Compares this machine's clock with that of every primary.
    ///
    /// - Parameters:
    ///   - servers: The Redis servers; their slot map is refreshed first.
    ///   - wall: This machine's time, in milliseconds since 1970.
    /// - Returns: The problem and its remedy, or `nil`.
    /// - Throws: An error if a server does not answer.
    package static func problem(
        _ servers: RedisCluster, wall: () -> Int64 = now
    ) throws(RedisError) -> String? {
        let client = RedisClient(servers)
        defer { client.close() }
        try client.askForMap()
        for primary in servers.primaries {
            let before = wall()
            let reply = try client.exchange([RedisCommand("TIME")], at: primary.address).replies[0]
            let after = wall()
            guard let parts = reply.array, parts.count == 2, let seconds = parts[0].text.flatMap({ Int64($0) }),
                let microseconds = parts[1].text.flatMap({ Int64($0) }), 0..<1 << 40 ~= seconds,
                0..<1_000_000 ~= microseconds
            else {
                return
                    "Redis at \(primary.address) does not report its time (\(reply.fault?.text ?? "no numbers")): give the "
                    + "user the right: ACL SETUSER <user> +time"
            }
            let offset = offset(before: before, after: after, server: seconds * 1_000 + microseconds / 1_000)
            guard abs(offset) > longestOffset else { continue }
            let side = offset > 0 ? "ahead of" : "behind"
            return
                "the clock of this machine is \(abs(offset)) ms \(side) that of Redis at \(primary.address), and \(longestOffset) ms are allowed: "
                + "synchronise both by NTP (chronyc tracking, timedatectl timesync-status); the gateway starts once they agree"
        }
        return nil
    }
}
