// What comes out of a shard. The gateway performs the effects in order, at once, before it calls the shard again.
// Where an effect depends on a batch, that batch is on disk already.

public import Wire

/// One thing for the gateway to do.
///
/// The rare cases are indirect, so that the two that every message makes are small and cheap to copy.
public enum Effect {
    indirect case welcome(SessionRef, WelcomeEffect)
    /// Encode and send the message in `row`; see `DeliverEffect`.
    case deliver(SessionRef, DeliverEffect)
    /// Send a frame that is already encoded, with the message's id in its place; see `BroadcastEffect`.
    case broadcast(SessionRef, BroadcastEffect)
    case ping(SessionRef)
    indirect case updated(SessionRef, UpdateResult)
    /// Send Close and drop the connection; the shard has forgotten the session already.
    case close(SessionRef, CloseCode, reason: StaticString)
    case publishAnswered(Origin, PublishOutcome)
    indirect case leased(Origin, [Job])
    /// One verdict a result, in the order given.
    indirect case settled(Origin, [ResultVerdict])
    /// Jobs of a channel became due where there were none: long polls that wait for it may lease now.
    case jobsAvailable(VendorChannel)
    indirect case deviceStatus(Origin, DeviceID, DeviceAnswer)
    indirect case messageTrace(Origin, TraceAnswer)
    indirect case directoryAnswered(Origin, DirectoryReply)
    indirect case task(Origin, TaskAnswer)
    /// A task is due, or a restart found it half done: the gateway goes on with it.
    indirect case taskDue(TaskRecord)
    /// A broadcast is out, durably: the gateway calls `Shard.launch` on every loop, in the order of their numbers.
    indirect case launched(TaskRecord)
    /// A first ack is durable: the gateway ends the siblings of this message, then tells its shard
    /// (`TaskCommand.settleFirstAck`).
    indirect case firstAck(FirstAck)
    /// Something an operator must see, once per occurrence: name is the log event, text has no secret and no payload.
    indirect case log(LogEvent)
}

public struct WelcomeEffect {
    public var welcome: Welcome
    public var cid: DeviceID
    public init(welcome: Welcome, cid: DeviceID) { (self.welcome, self.cid) = (welcome, cid) }
}

/// One Deliver frame to encode: `row` is the stored message (see MessageRow), valid until the shard is next called.
///
/// `@safe`: the gateway reads the row through `MessageRow`, before that call.
@safe public struct DeliverEffect {
    public var row: UnsafeRawBufferPointer
    public var sequence: UInt64
    public var isOffline: Bool
    public var alertedAt: GatewayTime
    public var attempt: UInt32
    @inlinable public init(
        row: UnsafeRawBufferPointer, sequence: UInt64, isOffline: Bool, alertedAt: GatewayTime, attempt: UInt32
    ) {
        unsafe (self.row, self.sequence, self.isOffline) = (row, sequence, isOffline)
        (self.alertedAt, self.attempt) = (alertedAt, attempt)
    }
}

/// A broadcast's Deliver frame, encoded once for all its devices; valid until the shard is next called.
///
/// `@safe`: its one reader is `write`, and the shard keeps the frame that long.
@safe public struct BroadcastEffect {
    public var frame: UnsafeRawBufferPointer
    /// Where in it the sixteen bytes of the msgId belong, in network order.
    public var messageIDOffset: Int
    public var message: MessageID
    @inlinable public init(frame: UnsafeRawBufferPointer, messageIDOffset: Int, message: MessageID) {
        unsafe (self.frame, self.messageIDOffset, self.message) = (frame, messageIDOffset, message)
    }

    /// Copies the frame, whole, to `target`.
    @unsafe @inlinable public func write(into target: UnsafeMutableRawBufferPointer) {
        unsafe target.copyMemory(from: frame)
        unsafe target.storeBytes(of: message.high.bigEndian, toByteOffset: messageIDOffset, as: UInt64.self)
        unsafe target.storeBytes(of: message.low.bigEndian, toByteOffset: messageIDOffset + 8, as: UInt64.self)
    }
}

/// How a publish ended for one device.
///
/// `accepted` is durable.
public struct PublishOutcome: Sendable, Equatable {
    public enum Code: UInt8, Sendable {
        case accepted = 0
        /// No such cid in this app.
        case unknownDevice
        case queueFull
        /// Strategies 2 and 4 need a usable token.
        case noToken
        /// The request id was used with another body.
        case requestConflict
        /// The same request is still under way; wait for it and repeat.
        case requestPending
        /// The store or a waiting list is at its bound: the shard accepted nothing; the caller retries later.
        case busy
        /// A read failed; the shard accepted nothing; the caller retries later.
        case storeFailed
        /// Blacklisted or long inactive, or a revoke that has nothing to withdraw here: no message.
        case ignored
        /// The task is stopped: no device gets its message any more.
        case stopped
        /// Its row would exceed the store's bounds; the shard accepted nothing, and a retry changes nothing.
        case tooLarge
    }
    public enum Fallback: UInt8, Sendable { case none = 0, armed, due }
    public enum FallbackReason: UInt8, Sendable {
        case applies = 0, noToken, noContent, strategy, timeToLive, pushModeOff
    }

    public var code: Code
    public var cid: DeviceID
    public var message: MessageID
    public var task: TaskID
    /// Sent on the live channel at acceptance; otherwise queued (or with the vendor only).
    public var isLive: Bool
    public var fallback: Fallback
    public var fallbackReason: FallbackReason
    /// The TTL in force, in milliseconds; 0 and −1 as the caller asked.
    public var timeToLive: Int64
    /// The answer is the one that the same request id got before.
    public var isRepeat: Bool
    /// The message ended in the batch that accepted it: the shard sent it nowhere.
    public var endedAs: FinalState?

    public init(
        code: Code, cid: DeviceID, message: MessageID = .none, task: TaskID, isLive: Bool = false,
        fallback: Fallback = .none, fallbackReason: FallbackReason = .applies, timeToLive: Int64 = 0,
        isRepeat: Bool = false, endedAs: FinalState? = nil
    ) {
        (self.code, self.cid, self.message, self.task, self.isLive) = (code, cid, message, task, isLive)
        (self.fallback, self.fallbackReason) = (fallback, fallbackReason)
        (self.timeToLive, self.isRepeat, self.endedAs) = (timeToLive, isRepeat, endedAs)
    }
}

/// A leased handoff job, complete.
public struct Job: Sendable {
    public var channel: VendorChannel
    public var message: MessageID  // the jobId, too
    public var leaseID: (UInt64, UInt64)
    public var leasedUntil: GatewayTime
    public var task: TaskID
    public var app: AppKey
    public var cid: DeviceID
    public var token: String
    public var tokenKind: TokenKind
    public var environment: TokenEnvironment
    public var topic: String
    public var pushType: PushType
    public var priority: UInt8
    /// Absolute, ms; 0: APNs must not store it.
    public var expiration: GatewayTime
    public var collapseID: String
    /// Complete JSON, badge resolved.
    public var body: [UInt8]
    /// 1 the first time.
    public var attempt: Int
    public var acceptedAt: GatewayTime
    public init(
        channel: VendorChannel, message: MessageID, leaseID: (UInt64, UInt64), leasedUntil: GatewayTime, task: TaskID,
        app: AppKey, cid: DeviceID, token: String, tokenKind: TokenKind, environment: TokenEnvironment, topic: String,
        pushType: PushType, priority: UInt8, expiration: GatewayTime, collapseID: String, body: [UInt8], attempt: Int,
        acceptedAt: GatewayTime
    ) {
        (self.channel, self.message, self.leaseID, self.leasedUntil) = (channel, message, leaseID, leasedUntil)
        self.task = task
        (self.app, self.cid, self.token, self.tokenKind) = (app, cid, token, tokenKind)
        (self.environment, self.topic, self.pushType, self.priority) = (environment, topic, pushType, priority)
        (self.expiration, self.collapseID, self.body) = (expiration, collapseID, body)
        (self.attempt, self.acceptedAt) = (attempt, acceptedAt)
    }
}

public struct ResultVerdict: Sendable, Equatable {
    public enum Verdict: UInt8, Sendable {
        /// The shard takes it, or took an earlier copy of the same result.
        case recorded = 0
        /// The lease is over and the outcome is not one that counts late.
        case stale
        /// The message ended otherwise; `extend` stops here.
        case cancelled
        case unknownJob
        /// The reader could not read the store; nothing changed, and the sender repeats the result.
        case storeFailed
    }
    public var job: MessageID
    public var verdict: Verdict
    public init(job: MessageID, verdict: Verdict) { (self.job, self.verdict) = (job, verdict) }
}

/// What a question for a message finds.
public enum TraceAnswer: Sendable {
    case known(MessageTrace)
    /// No such message, or it ended longer ago than the store keeps traces.
    case unknown
    /// A reader could not read its rows, or too many such questions wait: the caller asks again.
    case unreadable

    /// The trace, if there is one.
    public var trace: MessageTrace? {
        if case .known(let trace) = self { trace } else { nil }
    }
}

/// What a question for a device finds.
public enum DeviceAnswer: Sendable {
    case known(DeviceStatus)
    /// No such device in this app.
    case unknown
    /// A reader could not read its record, or too many commands wait: the caller asks again.
    case unreadable

    /// The status, if there is one.
    public var status: DeviceStatus? {
        if case .known(let status) = self { status } else { nil }
    }
}

/// A device as the admin API and `user/status` show it.
public struct DeviceStatus: Sendable {
    public struct Token: Sendable {
        public var channel: VendorChannel
        public var kind: TokenKind
        public var environment: TokenEnvironment
        public var topic: String
        /// Only a prefix is ever shown.
        public var token: String
        /// Of a Live Activity's token; empty: it names none.
        public var activity: String
        public var isQuarantined: Bool
        public init(
            channel: VendorChannel, kind: TokenKind, environment: TokenEnvironment, topic: String, token: String,
            activity: String = "", isQuarantined: Bool
        ) {
            (self.channel, self.kind, self.environment, self.topic) = (channel, kind, environment, topic)
            (self.token, self.activity, self.isQuarantined) = (token, activity, isQuarantined)
        }
    }
    public var app: AppKey
    public var isConnected: Bool
    public var isReachable: Bool
    public var isSuspect: Bool
    public var applicationState: ApplicationState
    public var keepsRunning: Bool
    public var generation: UInt64
    public var heartbeatSeconds: Int64
    public var lastSeenAt: GatewayTime
    /// Of the last accepted Hello, as the device's corrected clock had it.
    public var lastLoginAt: GatewayTime
    public var registeredAt: GatewayTime
    public var queuedMessageCount: Int
    public var queuedByteCount: Int
    public var inFlightCount: Int
    public var nextSequence: UInt64
    public var badge: Int32
    public var pushModeOff: Bool
    public var tokens: [Token]
    public init(
        app: AppKey, isConnected: Bool, isReachable: Bool, isSuspect: Bool, applicationState: ApplicationState,
        keepsRunning: Bool, generation: UInt64, heartbeatSeconds: Int64, lastSeenAt: GatewayTime,
        lastLoginAt: GatewayTime, registeredAt: GatewayTime, queuedMessageCount: Int, queuedByteCount: Int,
        inFlightCount: Int,
        nextSequence: UInt64, badge: Int32, pushModeOff: Bool, tokens: [Token]
    ) {
        (self.app, self.isConnected, self.isReachable, self.isSuspect) = (app, isConnected, isReachable, isSuspect)
        (self.applicationState, self.keepsRunning) = (applicationState, keepsRunning)
        (self.generation, self.heartbeatSeconds) = (generation, heartbeatSeconds)
        (self.lastSeenAt, self.lastLoginAt, self.registeredAt) = (lastSeenAt, lastLoginAt, registeredAt)
        (self.queuedMessageCount, self.queuedByteCount) = (queuedMessageCount, queuedByteCount)
        (self.inFlightCount, self.nextSequence, self.badge) = (inFlightCount, nextSequence, badge)
        (self.pushModeOff, self.tokens) = (pushModeOff, tokens)
    }
}

/// How every accepted message ends, exactly once.
///
/// Raw values are stored.
public enum FinalState: UInt8, Sendable, CaseIterable {
    case delivered = 1, deliveredOffline, opened, handedOff, expired, collapsed, revoked, overflowed, failed
}

/// The steps of one message, in order.
public struct MessageTrace: Sendable {
    public struct Step: Sendable, Equatable {
        /// What happened; docs/Errors.md, "Trace events", lists them.
        public var event: TraceEvent
        public var time: GatewayTime
        public var detail: String
        public init(event: TraceEvent, time: GatewayTime, detail: String = "") {
            (self.event, self.time, self.detail) = (event, time, detail)
        }
    }
    public var message: MessageID
    public var task: TaskID
    public var cid: DeviceID
    public var app: AppKey
    public var strategy: Strategy
    public var isOffline: Bool
    public var sequence: UInt64
    public var acceptedAt: GatewayTime
    public var expiresAt: GatewayTime
    /// `nil`: still pending.
    public var finalState: FinalState?
    public var finalReason: String
    /// What the answer to its publish said of its fallback; `nil`: it ended under a version that did not keep it.
    public var fallback: PublishOutcome.Fallback?
    public var fallbackReason = PublishOutcome.FallbackReason.applies
    /// The channel of its job; `nil`: it had none, or one of a channel that only a later version knows.
    public var channel: VendorChannel?
    public var steps: [Step]
    public init(
        message: MessageID, task: TaskID, cid: DeviceID, app: AppKey, strategy: Strategy, isOffline: Bool,
        sequence: UInt64, acceptedAt: GatewayTime, expiresAt: GatewayTime, finalState: FinalState?,
        finalReason: String, steps: [Step]
    ) {
        (self.message, self.task, self.cid, self.app, self.strategy) = (message, task, cid, app, strategy)
        (self.isOffline, self.sequence, self.acceptedAt, self.expiresAt) = (isOffline, sequence, acceptedAt, expiresAt)
        (self.finalState, self.finalReason, self.steps) = (finalState, finalReason, steps)
    }
}

/// The steps a trace names.
///
/// Raw values are stored; nothing has ever written 3.
public enum TraceEvent: UInt8, Sendable, CaseIterable {
    case accepted = 1, sent, timedOut = 4, jobDue, leased, leaseLapsed, vendorAccepted, vendorRetry, vendorRejected,
        badToken, exhausted, cancelled, alertedTwice, opened, shown, acked, ended, action
}

public struct LogEvent: Sendable {
    public enum Level: UInt8, Sendable { case debug, info, warning, error }
    public var level: Level
    public var name: StaticString
    public var text: String
    public init(level: Level, name: StaticString, text: String) {
        (self.level, self.name, self.text) = (level, name, text)
    }
}
