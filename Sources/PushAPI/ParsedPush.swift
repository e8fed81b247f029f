public import Delivery
public import Wire

/// One message for one device, parsed and validated, with bytes of its own: it may cross to the device's loop.
public struct ParsedPush: Sendable {
    public let address: DeviceAddress
    public let task: TaskID
    public let content: MessageContent
    /// The place in `msg_list`; 0 for a single push.
    public let itemIndex: Int
    let messageDigest: UInt64
    let requestKey: (UInt64, UInt64)
    let requestDigest: UInt64

    public var strategy: Strategy { content.strategy }
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    public var timeToLive: Int64 { content.timeToLive }

    /// Calls `body` with the command; its pointers die when `body` returns.
    public func withCommand<Result>(origin: Origin, _ body: (PublishCommand) throws -> Result) rethrows -> Result {
        var target = MessageContent.Target(
            origin: origin, app: address.app, bucket: address.bucket, cid: address.cid, task: task,
            messageDigest: messageDigest)
        (target.requestKey, target.requestDigest) = (requestKey, requestDigest)
        target.isTracked = true
        if !content.revokes.isNone {
            target.revokedDigest = PushAPI.messageDigest(of: content.revokes, for: address.cid)
        }
        return try content.withCommand(for: target, body)
    }
}

/// How a push was asked for, which decides how it is answered.
public struct PushForm: Sendable {
    public enum Kind: Sendable, Equatable { case single, alias, batch(isAsync: Bool) }

    /// An item of a batch that was refused before it reached a device.
    public struct Refused: Sendable, Equatable {
        public var itemIndex: Int
        public var code: GetuiCode
        public var message: String
        /// One device of an alias; without it the whole item is refused.
        public var cid: DeviceID?
        public init(itemIndex: Int, code: GetuiCode, message: String, cid: DeviceID? = nil) {
            (self.itemIndex, self.code, self.message, self.cid) = (itemIndex, code, message, cid)
        }
    }

    public var kind: Kind
    public var refused: [Refused]
    /// What was sent and means nothing here; see `MessageParser.ignoredKeys`.
    public var ignoredKeys: [String]
    public init(kind: Kind, refused: [Refused] = [], ignoredKeys: [String] = []) {
        (self.kind, self.refused, self.ignoredKeys) = (kind, refused, ignoredKeys)
    }
}
