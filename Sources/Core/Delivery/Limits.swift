internal import Wire

/// Fixed bounds, most of them on a peer's input; `ShardLimits` holds the bounds that an operator may change.
enum Limits {
    /// The number of tokens that one frame may name.
    static let tokensPerDevice = Wire.Limits.tokenCount
    /// The tokens of Live Activities among `tokensPerDevice`.
    static let activityTokensPerDevice = Wire.Limits.activityTokenCount
    /// The maximum length of a token: APNs tokens may grow from 32 bytes to 100; as hex digits with a reserve, 512 characters.
    static let tokenByteCount = Wire.Limits.tokenByteCount
    /// The bytes of all tokens of a device; older ones are removed above it.
    static let tokenBytesPerDevice = 8_192
    /// The number of msgIds in one Hello that were opened from notifications (Proto, `Hello.opened`).
    static let openedPerHello = 32
    /// The number of publishes whose memory the shard prefetches before their commit; they fit into a second-level cache.
    static let foreseenCount = 256
    /// The aliases of one device, one per alias type.
    static let aliasesPerDevice = 8
    /// The number of custom actions that a client may report per message.
    static let actionsPerMessage = 16
    /// The stored length of a reason from a client or a sender, in bytes.
    static let reasonByteCount = 128
}
