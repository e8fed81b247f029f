internal import Wire

/// Fixed bounds, most of them on a peer's input; `ShardLimits` holds the bounds that an operator may change.
enum Limits {
    /// The maximum number of tokens of a device, and in one frame.
    static let tokensPerDevice = Wire.Limits.tokenCount
    /// The maximum number of Live Activity tokens among `tokensPerDevice`.
    static let activityTokensPerDevice = Wire.Limits.activityTokenCount
    /// The maximum length of a token in bytes; the longest are Web Push subscriptions.
    static let tokenByteCount = Wire.Limits.tokenByteCount
    /// The maximum bytes of all tokens of a device; above it, older tokens are removed.
    static let tokenBytesPerDevice = 8_192
    /// The number of opened messages in one Hello that the shard records (Proto, `Hello.opened`).
    static let openedPerHello = 32
    /// The number of publishes whose memory the gateway prefetches before their commit; that memory fits into a second-level
    /// cache.
    static let foreseenCount = 256
    /// The aliases of one device, one per alias type.
    static let aliasesPerDevice = 8
    /// The number of custom actions that a client may report per message.
    static let actionsPerMessage = 16
    /// The stored length of a reason from a client or a sender, in bytes.
    static let reasonByteCount = 128
}
