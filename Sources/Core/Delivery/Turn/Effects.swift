// What comes out of a shard. The gateway performs the effects in order, at once, before it calls the shard again.
// Where an effect depends on a batch, that batch is on disk already.

package import Wire

/// One thing for the gateway to do.
///
/// The rare cases are indirect, so that the two that every message makes are small and cheap to copy.
package enum Effect {
    indirect case welcome(SessionRef, WelcomeEffect)
    /// A device's Hello was good, and its session was over when that was durable.
    indirect case leftBeforeWelcome(DeviceID)
    /// Encode and send the message in `row`; see `DeliverEffect`.
    case deliver(SessionRef, DeliverEffect)
    /// Send a frame that is already encoded, with the message's id in its place; see `BroadcastEffect`.
    case broadcast(SessionRef, BroadcastEffect)
    case ping(SessionRef)
    /// Answer the session's Ping: all that it reported before is durable.
    indirect case pong(SessionRef, UInt64)
    /// Send a keep-alive Ping: the session's Pong has to wait.
    case keepAlive(SessionRef)
    /// The session's device sends no more, and all that the shard owes it is out.
    case finished(SessionRef)
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
    indirect case receiptAnswered(Origin, ReceiptAnswer)
    indirect case task(Origin, TaskAnswer)
    /// A task is due, or a restart found it half done: the gateway goes on with it.
    indirect case taskDue(TaskRecord)
    /// A broadcast is out, durably: the gateway calls `Shard.launch` on every loop, in the order of their numbers.
    indirect case launched(TaskRecord)
    /// A first ack is durable: the gateway ends the siblings of this message, then tells its shard
    /// (`TaskCommand.settleFirstAck`).
    indirect case firstAck(FirstAck)
    /// A device's tokens changed, durably: the gateway has their rows follow (`DirectoryOperation.Work.tokens`).
    indirect case tokens(TokenNews)
    /// Something an operator must see, once per occurrence: name is the log event, text has no secret and no payload.
    indirect case log(LogEvent)
}

package struct WelcomeEffect {
    package var welcome: Welcome
    package var cid: DeviceID
    package init(welcome: Welcome, cid: DeviceID) { (self.welcome, self.cid) = (welcome, cid) }
}

/// One Deliver frame to encode: `row` is the stored message (see MessageRow), valid until the shard is next called.
///
/// `@safe`: the gateway reads the row through `MessageRow`, before that call.
@safe package struct DeliverEffect {
    package var row: UnsafeRawBufferPointer
    package var sequence: UInt64
    package var isOffline: Bool
    package var alertedAt: GatewayTime
    package var attempt: UInt32
    package init(
        row: UnsafeRawBufferPointer, sequence: UInt64, isOffline: Bool, alertedAt: GatewayTime, attempt: UInt32
    ) {
        unsafe (self.row, self.sequence, self.isOffline) = (row, sequence, isOffline)
        (self.alertedAt, self.attempt) = (alertedAt, attempt)
    }
}

/// A broadcast's Deliver frame, encoded once for all its devices; valid until the shard is next called.
///
/// `@safe`: its one reader is `write`, and the shard keeps the frame that long.
@safe package struct BroadcastEffect {
    package var frame: UnsafeRawBufferPointer
    /// Where in it the sixteen bytes of the msgId belong, in network order.
    package var messageIDOffset: Int
    package var message: MessageID
    package init(frame: UnsafeRawBufferPointer, messageIDOffset: Int, message: MessageID) {
        unsafe (self.frame, self.messageIDOffset, self.message) = (frame, messageIDOffset, message)
    }

    /// Copies the frame, whole, to `target`.
    @unsafe package func write(into target: UnsafeMutableRawBufferPointer) {
        unsafe target.copyMemory(from: frame)
        unsafe target.storeBytes(of: message.high.bigEndian, toByteOffset: messageIDOffset, as: UInt64.self)
        unsafe target.storeBytes(of: message.low.bigEndian, toByteOffset: messageIDOffset + 8, as: UInt64.self)
    }
}

/// How a publish ended for one device.
///
/// `accepted` is durable.
package struct PublishOutcome: Sendable, Equatable, Codable {
    package enum Code: UInt8, Sendable, Codable {
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
    package enum Fallback: UInt8, Sendable, Codable { case none = 0, armed, due }
    package enum FallbackReason: UInt8, Sendable, Codable {
        case applies = 0, noToken, noContent, strategy, timeToLive, pushModeOff
    }

    package var code: Code
    package var cid: DeviceID
    package var message: MessageID
    package var task: TaskID
    /// Sent on the live channel at acceptance; otherwise queued (or with the vendor only).
    package var isLive: Bool
    package var fallback: Fallback
    package var fallbackReason: FallbackReason
    /// The TTL in force, in milliseconds; 0 and −1 as the caller asked.
    package var timeToLive: Int64
    /// The answer is the one that the same request id got before.
    package var isRepeat: Bool
    /// The message ended in the batch that accepted it: the shard sent it nowhere.
    package var endedAs: FinalState?

    package init(
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
package struct Job: Sendable {
    package var channel: VendorChannel
    package var message: MessageID  // the jobId, too
    package var leaseID: (UInt64, UInt64)
    package var leasedUntil: GatewayTime
    package var task: TaskID
    package var app: AppKey
    package var cid: DeviceID
    package var token: String
    package var tokenKind: TokenKind
    package var environment: TokenEnvironment
    package var topic: String
    package var pushType: PushType
    package var priority: UInt8
    /// Absolute, ms; 0: APNs must not store it.
    package var expiration: GatewayTime
    package var collapseID: String
    /// Complete JSON, badge resolved.
    package var body: [UInt8]
    /// 1 the first time.
    package var attempt: Int
    package var acceptedAt: GatewayTime
    /// Since when it may be leased: at first as its strategy says, after a retry as that was answered.
    package var dueAt: GatewayTime
    package init(
        channel: VendorChannel, message: MessageID, leaseID: (UInt64, UInt64), leasedUntil: GatewayTime, task: TaskID,
        app: AppKey, cid: DeviceID, token: String, tokenKind: TokenKind, environment: TokenEnvironment, topic: String,
        pushType: PushType, priority: UInt8, expiration: GatewayTime, collapseID: String, body: [UInt8], attempt: Int,
        acceptedAt: GatewayTime, dueAt: GatewayTime
    ) {
        (self.channel, self.message, self.leaseID, self.leasedUntil) = (channel, message, leaseID, leasedUntil)
        self.task = task
        (self.app, self.cid, self.token, self.tokenKind) = (app, cid, token, tokenKind)
        (self.environment, self.topic, self.pushType, self.priority) = (environment, topic, pushType, priority)
        (self.expiration, self.collapseID, self.body) = (expiration, collapseID, body)
        (self.attempt, self.acceptedAt, self.dueAt) = (attempt, acceptedAt, dueAt)
    }
}

package struct ResultVerdict: Sendable, Equatable, Codable {
    package enum Verdict: UInt8, Sendable, Codable {
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
    package var job: MessageID
    package var verdict: Verdict
    package init(job: MessageID, verdict: Verdict) { (self.job, self.verdict) = (job, verdict) }
}

/// What a question for a message finds.
package enum TraceAnswer: Sendable, Codable {
    case known(MessageTrace)
    /// No such message, or it ended longer ago than the store keeps traces.
    case unknown
    /// Answer to `Shard.trace(of: task)`: the app has no such task, or the task has no message for the device.
    case unknownTask
    /// A reader could not read its rows, or too many such questions wait: the caller asks again.
    case unreadable

    /// The trace, if there is one.
    package var trace: MessageTrace? {
        if case .known(let trace) = self { trace } else { nil }
    }
}

/// What a question for a device finds.
package enum DeviceAnswer: Sendable, Codable {
    case known(DeviceStatus)
    /// No such device in this app.
    case unknown
    /// A reader could not read its record, or too many commands wait: the caller asks again.
    case unreadable

    /// The status, if there is one.
    package var status: DeviceStatus? {
        if case .known(let status) = self { status } else { nil }
    }
}

/// A device as the admin API and `user/status` show it.
package struct DeviceStatus: Sendable, Codable {
    package struct Token: Sendable, Codable {
        package var channel: VendorChannel
        package var kind: TokenKind
        package var environment: TokenEnvironment
        package var topic: String
        /// Only a prefix is ever shown.
        package var token: String
        /// Of a Live Activity's token; empty: it names none.
        package var activity: String
        package var isQuarantined: Bool
        package init(
            channel: VendorChannel, kind: TokenKind, environment: TokenEnvironment, topic: String, token: String,
            activity: String = "", isQuarantined: Bool
        ) {
            (self.channel, self.kind, self.environment, self.topic) = (channel, kind, environment, topic)
            (self.token, self.activity, self.isQuarantined) = (token, activity, isQuarantined)
        }
    }
    /// What the app lets the device's queue hold.
    package struct QueueBounds: Sendable, Codable {
        package var messageCount: Int
        package var byteCount: Int
        package init(messageCount: Int, byteCount: Int) {
            (self.messageCount, self.byteCount) = (messageCount, byteCount)
        }
    }
    /// The app's own names for the device, as texts; an alias is without its type.
    package struct Names: Sendable, Codable {
        package var aliases: [String]
        package var tags: [String]
        package init(aliases: [String], tags: [String]) { (self.aliases, self.tags) = (aliases, tags) }
    }
    package var app: AppKey
    package var isConnected: Bool
    package var isReachable: Bool
    package var isSuspect: Bool
    package var applicationState: ApplicationState
    package var keepsRunning: Bool
    package var generation: UInt64
    package var heartbeatSeconds: Int64
    package var lastSeenAt: GatewayTime
    /// Of the last accepted Hello, as the device's corrected clock had it.
    package var lastLoginAt: GatewayTime
    package var registeredAt: GatewayTime
    package var queuedMessageCount: Int
    package var queuedByteCount: Int
    package var inFlightCount: Int
    package var nextSequence: UInt64
    package var badge: Int32
    package var pushModeOff: Bool
    package var isBlacklisted: Bool
    /// Not seen for so long that a publish makes no message.
    package var isInactive: Bool
    package var tokens: [Token]
    /// `nil`: the vendor took the last message that a sender offered it, or there was none.
    package var vendorFailure: VendorFailure?
    package var bounds: QueueBounds
    package var names: Names
    /// It lost a token to another device, and has registered none since.
    package var hasLostToken = false
    /// False: a token that names no topic is of no use.
    package var appHasTopic = false
    /// Until then its Hellos are refused, because it connects and leaves over and over; its gateway says so.
    package var slowedUntil: GatewayTime?
    package init(
        app: AppKey, isConnected: Bool, isReachable: Bool, isSuspect: Bool, applicationState: ApplicationState,
        keepsRunning: Bool, generation: UInt64, heartbeatSeconds: Int64, lastSeenAt: GatewayTime,
        lastLoginAt: GatewayTime, registeredAt: GatewayTime, queuedMessageCount: Int, queuedByteCount: Int,
        inFlightCount: Int,
        nextSequence: UInt64, badge: Int32, pushModeOff: Bool, isBlacklisted: Bool = false, isInactive: Bool = false,
        tokens: [Token], vendorFailure: VendorFailure? = nil, bounds: QueueBounds, names: Names
    ) {
        (self.app, self.isConnected, self.isReachable, self.isSuspect) = (app, isConnected, isReachable, isSuspect)
        (self.applicationState, self.keepsRunning) = (applicationState, keepsRunning)
        (self.generation, self.heartbeatSeconds) = (generation, heartbeatSeconds)
        (self.lastSeenAt, self.lastLoginAt, self.registeredAt) = (lastSeenAt, lastLoginAt, registeredAt)
        (self.queuedMessageCount, self.queuedByteCount) = (queuedMessageCount, queuedByteCount)
        (self.inFlightCount, self.nextSequence, self.badge) = (inFlightCount, nextSequence, badge)
        (self.pushModeOff, self.isBlacklisted, self.tokens) = (pushModeOff, isBlacklisted, tokens)
        (self.isInactive, self.vendorFailure) = (isInactive, vendorFailure)
        (self.bounds, self.names) = (bounds, names)
    }
}

/// How every accepted message ends, exactly once.
///
/// Raw values are stored.
package enum FinalState: UInt8, Sendable, CaseIterable, Codable {
    case delivered = 1, deliveredOffline, opened, handedOff, expired, collapsed, revoked, overflowed, failed
}

/// The steps of one message, in order.
package struct MessageTrace: Sendable, Codable {
    package struct Step: Sendable, Equatable, Codable {
        /// What happened; docs/use/Errors.md, "Trace events", lists them.
        package var event: TraceEvent
        package var time: GatewayTime
        package var detail: String
        package init(event: TraceEvent, time: GatewayTime, detail: String = "") {
            (self.event, self.time, self.detail) = (event, time, detail)
        }
    }
    package var message: MessageID
    package var task: TaskID
    package var cid: DeviceID
    package var app: AppKey
    package var strategy: Strategy
    package var isOffline: Bool
    package var sequence: UInt64
    package var acceptedAt: GatewayTime
    package var expiresAt: GatewayTime
    /// `nil`: still pending.
    package var finalState: FinalState?
    package var finalReason: String
    /// The fallback in the answer to its publish.
    package var fallback = PublishOutcome.Fallback.none
    package var fallbackReason = PublishOutcome.FallbackReason.applies
    /// The channel of its job; `nil`: it had none, or one of a channel that only a later version knows.
    package var channel: VendorChannel?
    /// The leases that senders got for its job, but for those that they gave back unsent.
    package var attempts: UInt16 = 0
    package var steps: [Step]
    package init(
        message: MessageID, task: TaskID, cid: DeviceID, app: AppKey, strategy: Strategy, isOffline: Bool,
        sequence: UInt64, acceptedAt: GatewayTime, expiresAt: GatewayTime, finalState: FinalState?,
        finalReason: String, steps: [Step]
    ) {
        (self.message, self.task, self.cid, self.app, self.strategy) = (message, task, cid, app, strategy)
        (self.isOffline, self.sequence, self.acceptedAt, self.expiresAt) = (isOffline, sequence, acceptedAt, expiresAt)
        (self.finalState, self.finalReason, self.steps) = (finalState, finalReason, steps)
    }
}

extension MessageTrace {
    /// The vendor's last word, if it was not that it took the message; empty when it gave no reason.
    package var vendorReason: String? {
        let words: Set<TraceEvent> = [.vendorAccepted, .vendorRetry, .vendorRejected, .badToken]
        guard let last = steps.last(where: { words.contains($0.event) }), last.event != .vendorAccepted else {
            return nil
        }
        return last.detail
    }
}

/// The steps a trace names.
///
/// Raw values are stored; nothing has ever written 3.
package enum TraceEvent: UInt8, Sendable, CaseIterable, Codable {
    case accepted = 1, sent, timedOut = 4, jobDue, leased, leaseLapsed, vendorAccepted, vendorRetry, vendorRejected,
        badToken, exhausted, cancelled, alertedTwice, opened, shown, acked, ended, action, unsent
}

package struct LogEvent: Sendable {
    package enum Level: UInt8, Sendable { case debug, info, warning, error }
    package var level: Level
    package var name: StaticString
    package var text: String
    package init(level: Level, name: StaticString, text: String) {
        (self.level, self.name, self.text) = (level, name, text)
    }
}
