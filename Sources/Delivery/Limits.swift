/// Fixed bounds, most of them of what a peer may say; what an operator may change is in `ShardLimits`.
enum Limits {
    /// One token a kind, with room for kinds of later versions.
    static let tokensPerFrame = 8
    /// APNs tokens are 32 bytes today and may grow to 100; as hex and with room, 512 characters.
    static let tokenByteCount = 512
    /// A bundle id with a suffix such as `.push-type.liveactivity`; also what one length byte holds.
    static let topicByteCount = 255
    /// msgIds opened from notifications that one Hello may name (Proto, `Hello.opened`).
    static let openedPerHello = 32
    /// Publishes whose memory is asked for ahead of their commit's work: as much as a second-level cache holds with ease.
    static let foreseenCount = 256
    /// What is kept of a reason that somebody else wrote.
    static let reasonByteCount = 128
}
