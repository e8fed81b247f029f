internal import Wire

/// Fixed bounds, most of them of a peer's input; what an operator may change is in `ShardLimits`.
enum Limits {
    /// A device may have as many tokens as one frame may name.
    static let tokensPerDevice = Wire.Limits.tokenCount
    /// Of these, tokens of Live Activities.
    static let activityTokensPerDevice = Wire.Limits.activityTokenCount
    /// APNs tokens are 32 bytes today and may grow to 100; as hex and with room, 512 characters.
    static let tokenByteCount = Wire.Limits.tokenByteCount
    /// msgIds opened from notifications that one Hello may name (Proto, `Hello.opened`).
    static let openedPerHello = 32
    /// Publishes whose memory the shard prefetches before it handles their commit: they fit a second-level cache with
    /// ease.
    static let foreseenCount = 256
    /// Aliases of one device, one of each type: kinds of accounts that one app has.
    static let aliasesPerDevice = 8
    /// Custom actions that a client may report of one message.
    static let actionsPerMessage = 16
    /// Bytes kept of a reason that a client or a sender wrote.
    static let reasonByteCount = 128
}
