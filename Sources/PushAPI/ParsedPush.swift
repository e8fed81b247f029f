public import Delivery
public import Wire

/// One message for one device, parsed and validated, with bytes of its own: it may cross to the device's loop.
public struct ParsedPush: Sendable {
    /// A vendor content's fixed part.
    struct Vendor: Sendable, Equatable {
        var tokenKind: TokenKind
        var pushType: PushType
        var priority: UInt8
        var badge: VendorContent.Badge
        var messageIDOffset: Int32
        var badgeOffset: Int32
    }

    /// Lengths of the pieces, in the order they stand in the arena.
    struct Lengths: Sendable, Equatable {
        var payload = 0
        var collapseKey = 0
        var alertTitle = 0
        var alertBody = 0
        var vendorBody = 0
        var vendorCollapseID = 0
    }

    public let address: DeviceAddress
    public let task: TaskID
    public let strategy: Strategy
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    public let timeToLive: Int64
    /// The place in `msg_list`; 0 for a single push.
    public let itemIndex: Int
    let messageDigest: UInt64
    let requestKey: (UInt64, UInt64)
    let requestDigest: UInt64
    let vendor: Vendor?
    let lengths: Lengths
    let arena: [UInt8]

    /// Calls `body` with the command; its pointers die when `body` returns.
    public func withCommand<Result>(origin: Origin, _ body: (PublishCommand) throws -> Result) rethrows -> Result {
        try arena.withUnsafeBytes { arena in
            var place = 0
            func piece(_ count: Int) -> UnsafeRawBufferPointer {
                defer { place += count }
                return UnsafeRawBufferPointer(rebasing: arena[place..<place + count])
            }
            let payload = piece(lengths.payload)
            let collapseKey = piece(lengths.collapseKey)
            let alertTitle = piece(lengths.alertTitle)
            let alertBody = piece(lengths.alertBody)
            let vendorBody = piece(lengths.vendorBody)
            let vendorCollapseID = piece(lengths.vendorCollapseID)
            let content = vendor.map { vendor in
                VendorContent(
                    tokenKind: vendor.tokenKind, pushType: vendor.pushType, priority: vendor.priority,
                    badge: vendor.badge, body: vendorBody, messageIDOffset: vendor.messageIDOffset,
                    badgeOffset: vendor.badgeOffset, collapseID: vendorCollapseID)
            }
            return try body(
                PublishCommand(
                    origin: origin, app: address.app, bucket: address.bucket, cid: address.cid, task: task,
                    messageDigest: messageDigest, strategy: strategy, timeToLive: timeToLive, requestKey: requestKey,
                    requestDigest: requestDigest, isBulk: false, payload: payload, collapseKey: collapseKey,
                    alertTitle: alertTitle, alertBody: alertBody, vendor: content))
        }
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
        public init(itemIndex: Int, code: GetuiCode, message: String) {
            (self.itemIndex, self.code, self.message) = (itemIndex, code, message)
        }
    }

    public var kind: Kind
    public var refused: [Refused]
    public init(kind: Kind, refused: [Refused] = []) { (self.kind, self.refused) = (kind, refused) }
}
