package import Delivery
package import Wire

/// A parsed and validated message for one device; it has its own copy of all bytes, so it can be sent to another loop.
package struct ParsedPush: Sendable {
    package let address: DeviceAddress
    package let task: TaskID
    package let content: MessageContent
    /// The index in `msg_list`; 0 for a single push.
    package let itemIndex: Int
    let messageDigest: UInt64
    let requestKey: (UInt64, UInt64)
    let requestDigest: UInt64

    package var strategy: Strategy { content.strategy }
    /// The time in milliseconds from acceptance; 0 for one live attempt; −1 for no offline storage.
    package var timeToLive: Int64 { content.timeToLive }

    /// Calls `body` with the command, whose pointers are valid only during the call.
    package func withCommand<Result>(origin: Origin, _ body: (PublishCommand) throws -> Result) rethrows -> Result {
        var target = MessageContent.Target(
            origin: origin, app: address.app, bucket: address.bucket, cid: address.cid, task: task,
            messageDigest: messageDigest)
        (target.requestKey, target.requestDigest) = (requestKey, requestDigest)
        if !content.revokes.isNone {
            target.revokedDigest = PushAPI.messageDigest(of: content.revokes, for: address.cid)
        }
        return try content.withCommand(for: target, body)
    }
}

/// The kind of push request, which determines the format of the answer.
package struct PushForm: Sendable {
    package enum Kind: Sendable, Equatable { case single, alias, batch(isAsync: Bool) }

    /// An item of a batch that was refused before it reached a device.
    package struct Refused: Sendable, Equatable {
        package var itemIndex: Int
        package var code: GetuiCode
        package var message: String
        /// The refused device of an alias; `nil` if the whole item is refused.
        package var cid: DeviceID?
        package init(itemIndex: Int, code: GetuiCode, message: String, cid: DeviceID? = nil) {
            (self.itemIndex, self.code, self.message, self.cid) = (itemIndex, code, message, cid)
        }
    }

    package var kind: Kind
    package var refused: [Refused]
    package var notes: RequestNotes
    package init(kind: Kind, refused: [Refused] = [], notes: RequestNotes = RequestNotes()) {
        (self.kind, self.refused, self.notes) = (kind, refused, notes)
    }
}
