internal import Wire

/// Fixed bounds, most of them of what a peer may say; what an operator may change is in `ShardLimits`.
enum Limits {
    /// What one frame may name, a device may have.
    static let tokensPerDevice = Wire.Limits.tokenCount
    /// APNs tokens are 32 bytes today and may grow to 100; as hex and with room, 512 characters.
    static let tokenByteCount = Wire.Limits.tokenByteCount
    /// msgIds opened from notifications that one Hello may name (Proto, `Hello.opened`).
    static let openedPerHello = 32
    /// Publishes whose memory is asked for ahead of their commit's work: as much as a second-level cache holds with ease.
    static let foreseenCount = 256
    /// Aliases of one device, one of each type: kinds of accounts that one app has.
    static let aliasesPerDevice = 8
    /// Custom actions that a client may report of one message.
    static let actionsPerMessage = 16
    /// What is kept of a reason that somebody else wrote.
    static let reasonByteCount = 128
}
