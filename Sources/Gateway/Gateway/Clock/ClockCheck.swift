/// This machine's clock beside those of the Redis servers.
package enum ClockCheck {
    /// A gateway whose clock stands further off does not start: other gateways would follow it.
    package static let longestOffset: Int64 = 1_000
    /// A clock that came back within this agrees again.
    static let agreedOffset: Int64 = 500

    /// This machine's time, to be held against a server's; nothing else comes from it.
    package static func now() -> Int64 { ClockReader.wall() }

    /// This machine's clock less the server's, as far as one reply tells.
    ///
    /// - Parameters:
    ///   - before: this machine's time before the request.
    ///   - after: that after the reply.
    ///   - server: what the server said, at some time in between.
    /// - Returns: 0 when there is a moment at which both agree.
    package static func offset(before: Int64, after: Int64, server: Int64) -> Int64 {
        if server < before { return before - server }
        return server > after ? after - server : 0
    }
}
