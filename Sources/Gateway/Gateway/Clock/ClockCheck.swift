package enum ClockCheck {
    /// The offset from Redis's clock, in milliseconds, above which a gateway does not start, because others would follow its
    /// clock.
    package static let longestOffset: Int64 = 1_000
    /// The offset, in milliseconds, below which a clock that differed counts as correct again.
    static let agreedOffset: Int64 = 500

    /// Returns this machine's time, only for the comparison with a server's.
    package static func now() -> Int64 { ClockReader.wall() }

    /// Returns this machine's clock minus the server's, within the accuracy of one reply.
    ///
    /// - Parameters:
    ///   - before: This machine's time before the request.
    ///   - after: This machine's time after the reply.
    ///   - server: The server's time in its reply.
    /// - Returns: 0 if the server's time is between `before` and `after`.
    package static func offset(before: Int64, after: Int64, server: Int64) -> Int64 {
        if server < before { return before - server }
        return server > after ? after - server : 0
    }
}
