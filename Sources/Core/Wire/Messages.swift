// The messages of Proto/longwire/v1/longwire.proto as values that own their bytes. Deliver, Ack and Publish also have views of
// received bytes or in-place encoders in other files, for the hot path.

public enum FrameType: UInt8, Sendable, CaseIterable {
    case hello = 1, welcome, close, ping, pong, deliver, ack, deviceUpdate, updateResult, feedback, revoke, upstream,
        upstreamResult, publish, publishResult, deviceNames, deviceNamesResult
}

public enum Role: UInt8, Sendable { case device = 0, sender }

public enum ApplicationState: UInt8, Sendable, Codable { case foreground = 0, background, terminated }

public struct VendorToken: Equatable, Sendable {
    /// `liveActivity` updates one activity, `liveActivityStart` starts any (push-to-start).
    public enum Kind: UInt8, Sendable, CaseIterable { case alert = 0, voip, liveActivity, liveActivityStart }
    public enum Environment: UInt8, Sendable { case production = 0, sandbox }
    public var channel: VendorChannel
    public var kind: Kind
    public var environment: Environment
    public var topic: String
    public var token: String
    /// The activity's name (`laId` of a push), or the attributes type for a push-to-start token; empty matches any.
    public var activity: String
    public init(
        channel: VendorChannel = .apns, kind: Kind = .alert, environment: Environment = .production, topic: String = "",
        token: String = "", activity: String = ""
    ) {
        (self.channel, self.kind, self.environment) = (channel, kind, environment)
        (self.topic, self.token, self.activity) = (topic, token, activity)
    }
}

public struct SequenceRange: Equatable, Sendable {
    public var first: UInt64
    public var last: UInt64
    public init(first: UInt64 = 0, last: UInt64 = 0) { (self.first, self.last) = (first, last) }
}

public struct StreamPosition: Equatable, Sendable {
    public var stream: UInt32
    public var sequence: UInt64
    public var ranges: [SequenceRange]
    public init(stream: UInt32 = 0, sequence: UInt64 = 0, ranges: [SequenceRange] = []) {
        (self.stream, self.sequence, self.ranges) = (stream, sequence, ranges)
    }
}

public struct Hello: Equatable, Sendable {
    public var appID = ""
    public var role = Role.device
    public var cid = DeviceID.none
    public var registration = false
    public var timestamp: UInt64 = 0
    public var proof: [UInt8] = []
    public var queueEpoch: UInt64 = 0
    public var positions: [StreamPosition] = []
    public var applicationState = ApplicationState.foreground
    public var keepsRunning = false
    public var heartbeatSeconds: UInt32 = 0
    public var badge: Int32?
    public var tokens: [VendorToken] = []
    /// The rejected tokens; they are not encoded.
    package var refusedTokens = RefusedTokens()
    public var opened: [MessageID] = []
    public var replayOpened = false
    public var client = ""
    public var window: UInt32 = 0
    public var nonce: [UInt8] = []
    public var registrationToken = ""
    /// The device's attributes, or `nil` if they have not changed.
    public var attributes: DeviceAttributes?
    /// The names of dropped attributes; they are not encoded.
    package var droppedAttributes: [String] = []
    public init() {}
}

public struct Dropped: Equatable, Sendable {
    public var reason: String
    public var count: UInt64
    public init(reason: String = "", count: UInt64 = 0) { (self.reason, self.count) = (reason, count) }
}

public struct Welcome: Equatable, Sendable {
    public var generation: UInt64 = 0
    public var queueEpoch: UInt64 = 0
    public var heartbeatSeconds: UInt32 = 0
    public var window: UInt32 = 0
    public var serverTime: UInt64 = 0
    public var backlog: UInt64 = 0
    public var dropped: [Dropped] = []
    public var cid = DeviceID.none
    public var deviceSecret: [UInt8] = []
    public init() {}
}

public struct Close: Equatable, Sendable {
    public var code: UInt32 = 0
    public var reason = ""
    public var retryAfterMinimum: UInt32 = 0
    public var retryAfterMaximum: UInt32 = 0
    public var alternate = ""
    public var serverTime: UInt64 = 0
    public init() {}
}

public struct Ping: Equatable, Sendable {
    public var nonce: UInt64
    public init(nonce: UInt64 = 0) { self.nonce = nonce }
}

public struct Pong: Equatable, Sendable {
    public var nonce: UInt64
    public init(nonce: UInt64 = 0) { self.nonce = nonce }
}

public struct Alert: Equatable, Sendable {
    public var title: String
    public var body: String
    public init(title: String = "", body: String = "") { (self.title, self.body) = (title, body) }
}

public struct Deliver: Equatable, Sendable {
    public var stream: UInt32 = 0
    public var sequence: UInt64 = 0
    public var messageID = MessageID.none
    public var taskID = TaskID.none
    public var payload: [UInt8] = []
    public var offline = false
    public var acceptedAt: UInt64 = 0
    public var alertedAt: UInt64 = 0
    public var attempt: UInt32 = 0
    public var collapseKey = ""
    public var alert: Alert?
    /// Whether a notification from the vendor, if shown, contained the whole message.
    public var carriedByVendor = false
    public init() {}
}

public struct Rejected: Equatable, Sendable {
    public var stream: UInt32
    public var sequence: UInt64
    public var reason: String
    public init(stream: UInt32 = 0, sequence: UInt64 = 0, reason: String = "") {
        (self.stream, self.sequence, self.reason) = (stream, sequence, reason)
    }
}

public struct Ack: Equatable, Sendable {
    public var positions: [StreamPosition] = []
    public var rejected: [Rejected] = []
    public init() {}
}

public struct DeviceUpdate: Equatable, Sendable {
    public var request: UInt32 = 0
    public var applicationState: ApplicationState?
    public var keepsRunning: Bool?
    public var badge: Int32?
    public var tokens: [VendorToken] = []
    /// The rejected tokens; they are not encoded.
    package var refusedTokens = RefusedTokens()
    public var pushModeOff: Bool?
    public var heartbeatSeconds: UInt32 = 0
    public init() {}
}

public struct UpdateResult: Equatable, Sendable {
    public var request: UInt32 = 0
    public var code: UInt32 = 0
    public var reason = ""
    public var heartbeatSeconds: UInt32 = 0
    public init() {}
}

public struct Feedback: Equatable, Sendable {
    public enum Kind: UInt8, Sendable, Codable { case opened = 0, shown, action }
    public var kind = Kind.opened
    public var messageID = MessageID.none
    public var action: UInt32 = 0
    public init() {}
}

public struct Revoke: Equatable, Sendable {
    public var sequence: UInt64 = 0
    public var messageID = MessageID.none
    public var taskID = TaskID.none
    public var revokedTaskID = TaskID.none
    public init() {}
}

public struct Upstream: Equatable, Sendable {
    public var request: UInt32 = 0
    public var payload: [UInt8] = []
    public var taskID = TaskID.none
    public init() {}
}

public struct UpstreamResult: Equatable, Sendable {
    public var request: UInt32 = 0
    public var code: UInt32 = 0
    public var reason = ""
    public init() {}
}

public struct DeviceNames: Equatable, Sendable {
    public enum Operation: UInt8, Sendable, CaseIterable {
        case query = 0, bindAlias, unbindAlias, setTags, addTags, removeTags
    }
    public var request: UInt32 = 0
    public var operation = Operation.query
    public var alias = ""
    public var aliasType = ""
    public var tags: [String] = []
    public var token = ""
    public init() {}
}

public struct DeviceNamesResult: Equatable, Sendable {
    public var request: UInt32 = 0
    public var code: UInt32 = 0
    public var reason = ""
    public var alias = ""
    public var tags: [String] = []
    public init() {}
}

public struct Publish: Equatable, Sendable {
    public var request: UInt64 = 0
    public var cid = DeviceID.none
    public var payload: [UInt8] = []
    /// The TTL, or `nil` if the sender gave none.
    public var timeToLive: Int64?
    /// Whether a TTL was given; older senders set it for a TTL of 0, which they do not encode.
    public var hasTimeToLive = false
    public var strategy: UInt32 = 0
    public var collapseKey = ""
    public var requestID = ""
    public var alert: Alert?
    public var apns: [UInt8] = []
    public init() {}
}

public struct PublishResult: Equatable, Sendable {
    public var request: UInt64 = 0
    public var code: UInt32 = 0
    public var reason = ""
    public var messageID = MessageID.none
    public var taskID = TaskID.none
    public var live = false
    public var fallback: UInt32 = 0
    public var fallbackReason = ""
    public var fsync = false
    /// Whether the body sent to APNs contains only the ids, because the payload is too large or not text.
    public var idsOnly = false
    public init() {}
}
