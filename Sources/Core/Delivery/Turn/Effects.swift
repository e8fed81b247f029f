// The output of a shard. The gateway performs the effects in order, immediately, before it calls the shard again. The batch that
// an effect depends on is already on disk.

package import Wire

/// An action for the gateway.
///
/// Rare cases are indirect, so that `deliver` and `broadcast`, which occur once per message, are cheap to copy.
package enum Effect {
    indirect case welcome(SessionRef, WelcomeEffect)
    /// The Hello was accepted, but the session ended before the Hello was durable.
    indirect case leftBeforeWelcome(DeviceID)
    /// Encode and send the message in `row`; see `DeliverEffect`.
    case deliver(SessionRef, DeliverEffect)
    /// Send an encoded frame after writing the msgId into it; see `BroadcastEffect`.
    case broadcast(SessionRef, BroadcastEffect)
    case ping(SessionRef)
    /// Answer the session's Ping; all reports before the Ping are durable.
    indirect case pong(SessionRef, UInt64)
    /// Send a keep-alive Ping because the session's Pong is delayed.
    case keepAlive(SessionRef)
    /// The device has half-closed its connection and the shard has sent it everything that was pending.
    case finished(SessionRef)
    indirect case updated(SessionRef, UpdateResult)
    /// Send Close and drop the connection; the shard has already removed the session.
    case close(SessionRef, CloseCode, reason: StaticString)
    case publishAnswered(Origin, PublishOutcome)
    indirect case leased(Origin, [Job])
    /// One verdict per result, in the order of the results.
    indirect case settled(Origin, [ResultVerdict])
    /// A channel got its first due jobs; long polls that wait for the channel may lease now.
    case jobsAvailable(VendorChannel)
    indirect case deviceStatus(Origin, DeviceID, DeviceAnswer)
    indirect case messageTrace(Origin, TraceAnswer)
    indirect case directoryAnswered(Origin, DirectoryReply)
    indirect case receiptAnswered(Origin, ReceiptAnswer)
    /// The answer to a `ShardQuestion`, of its `Answer` type; `nil`: nothing changed, and the caller must retry.
    indirect case answered(Origin, (any Codable & Sendable)?)
    /// A task is due, or was found incomplete after a restart; the gateway continues it.
    indirect case taskDue(TaskRecord)
    /// A broadcast is durable; the gateway calls `Shard.launch` on every loop, in the order of the broadcasts' numbers.
    indirect case launched(TaskRecord)
    /// A first ack is durable; the gateway ends the sibling messages, then asks `SettleFirstAck`.
    indirect case firstAck(FirstAck)
    /// A device's tokens changed durably; the gateway updates the tokens' rows (`DirectoryOperation.Work.tokens`).
    indirect case tokens(TokenNews)
    /// A log event for the operator, once per occurrence; the text contains no secret and no payload.
    indirect case log(LogEvent)
}

package struct WelcomeEffect {
    package var welcome: Welcome
    package var cid: DeviceID
    package init(welcome: Welcome, cid: DeviceID) { (self.welcome, self.cid) = (welcome, cid) }
}

/// One Deliver frame to encode.
///
/// `row` is the stored message (see MessageRow), valid until the next call into the shard.
///
/// `@safe`: the gateway reads the row through `MessageRow`, before it calls the shard again.
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

/// A broadcast's Deliver frame, encoded once for all devices; valid until the next call into the shard.
///
/// `@safe`: only `write` reads the frame, before the gateway calls the shard again.
@safe package struct BroadcastEffect {
    package var frame: UnsafeRawBufferPointer
    /// The offset of the msgId's sixteen bytes in the frame, in network order.
    package var messageIDOffset: Int
    package var message: MessageID
    package init(frame: UnsafeRawBufferPointer, messageIDOffset: Int, message: MessageID) {
        unsafe (self.frame, self.messageIDOffset, self.message) = (frame, messageIDOffset, message)
    }

    /// Copies the whole frame to `target`, with the msgId.
    @unsafe package func write(into target: UnsafeMutableRawBufferPointer) {
        unsafe target.copyMemory(from: frame)
        unsafe target.storeBytes(of: message.high.bigEndian, toByteOffset: messageIDOffset, as: UInt64.self)
        unsafe target.storeBytes(of: message.low.bigEndian, toByteOffset: messageIDOffset + 8, as: UInt64.self)
    }
}

/// The result of a publish for one device.
///
/// The code `accepted` is sent only after the message is durable.
package struct PublishOutcome: Sendable, Equatable, Codable {
    package enum Code: UInt8, Sendable, Codable {
        case accepted = 0
        /// The app has no such cid.
        case unknownDevice
        case queueFull
        /// Strategy 2 or 4 without a usable token.
        case noToken
        /// The request id was used with a different body.
        case requestConflict
        /// The same request is still in progress; the caller retries later.
        case requestPending
        /// The store or a command queue is full; the shard accepted nothing, and the caller retries later.
        case busy
        /// A read failed; the shard accepted nothing; the caller retries later.
        case storeFailed
        /// No message: the device is blacklisted or inactive, or the revoke has nothing to withdraw.
        case ignored
        /// The task is stopped; it accepts no further messages.
        case stopped
        /// The row would exceed the store's limit; the shard accepted nothing, and a retry does not help.
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
    /// Whether the message was sent on the live channel at acceptance; otherwise it is queued or only with the vendor.
    package var isLive: Bool
    package var fallback: Fallback
    package var fallbackReason: FallbackReason
    /// The effective TTL in milliseconds; 0 and −1 as given by the caller.
    package var timeToLive: Int64
    /// Whether the answer repeats the first answer to the same request id.
    package var isRepeat: Bool
    /// The state of a message that ended in the batch that accepted it and was not sent.
    package var endedAs: FinalState?
    /// The channel of the fallback; `nil` without one.
    package var vendor: VendorChannel?

    package init(
        code: Code, cid: DeviceID, message: MessageID = .none, task: TaskID, isLive: Bool = false,
        fallback: Fallback = .none, fallbackReason: FallbackReason = .applies, timeToLive: Int64 = 0,
        isRepeat: Bool = false, endedAs: FinalState? = nil, vendor: VendorChannel? = nil
    ) {
        self.vendor = vendor
        (self.code, self.cid, self.message, self.task, self.isLive) = (code, cid, message, task, isLive)
        (self.fallback, self.fallbackReason) = (fallback, fallbackReason)
        (self.timeToLive, self.isRepeat, self.endedAs) = (timeToLive, isRepeat, endedAs)
    }
}

package struct Job: Sendable, Codable {
    package var channel: VendorChannel
    package var message: MessageID  // Also the job's id.
    @Words package var leaseID: (UInt64, UInt64)
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
    /// The absolute expiration in ms; 0: APNs must not store the message.
    package var expiration: GatewayTime
    package var collapseID: String
    /// The complete JSON body with the badge filled in.
    package var body: [UInt8]
    /// The number of the attempt, from 1.
    package var attempt: Int
    package var acceptedAt: GatewayTime
    /// The time from which the job may be leased, set by the strategy or, after a failed attempt, by the sender's result.
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
        /// The shard recorded the result, now or from an earlier copy.
        case recorded = 0
        /// The result's lease is unknown or has ended, and the result does not count.
        case stale
        /// The message has ended; the sender must not extend the lease.
        case cancelled
        case unknownJob
        /// The store could not be read and nothing changed; the sender repeats the result.
        case storeFailed
    }
    package var job: MessageID
    package var verdict: Verdict
    package init(job: MessageID, verdict: Verdict) { (self.job, self.verdict) = (job, verdict) }
}

package enum TraceAnswer: Sendable, Codable {
    case known(MessageTrace)
    /// There is no such message, or its trace is past retention.
    case unknown
    /// The answer to `Shard.trace(of: task)` if the app has no such task or the task has no message for the device.
    case unknownTask
    /// The rows could not be read, or too many queries wait; the caller retries.
    case unreadable

    package var trace: MessageTrace? {
        if case .known(let trace) = self { trace } else { nil }
    }
}

package enum DeviceAnswer: Sendable, Codable {
    case known(DeviceStatus)
    /// No such device in this app.
    case unknown
    /// The record could not be read, or too many commands wait; the caller retries.
    case unreadable

    package var status: DeviceStatus? {
        if case .known(let status) = self { status } else { nil }
    }
}

/// A device as shown by the admin API and `user/status`.
package struct DeviceStatus: Sendable, Codable {
    package struct Token: Sendable, Codable {
        package var channel: VendorChannel
        package var kind: TokenKind
        package var environment: TokenEnvironment
        package var topic: String
        /// The token; callers show only a prefix of it.
        package var token: String
        /// The activity of a Live Activity's token; empty for other tokens.
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
    package struct QueueBounds: Sendable, Codable {
        package var messageCount: Int
        package var byteCount: Int
        package init(messageCount: Int, byteCount: Int) {
            (self.messageCount, self.byteCount) = (messageCount, byteCount)
        }
    }
    /// The device's aliases (without their types) and tags, as text.
    package struct Names: Sendable, Codable {
        package var aliases: [String]
        package var tags: [String]
        package init(aliases: [String], tags: [String]) { (self.aliases, self.tags) = (aliases, tags) }
    }
    /// A Hello that the gateway refused.
    package struct RefusedHello: Sendable, Equatable, Codable {
        package var time: GatewayTime
        /// The Close code.
        package var code: UInt32
        package var reason: String
        package init(time: GatewayTime, code: UInt32, reason: String) {
            (self.time, self.code, self.reason) = (time, code, reason)
        }
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
    /// The timestamp of the last accepted Hello, by the device's corrected clock.
    package var lastLoginAt: GatewayTime
    package var registeredAt: GatewayTime
    package var queuedMessageCount: Int
    package var queuedByteCount: Int
    package var inFlightCount: Int
    package var nextSequence: UInt64
    package var badge: Int32
    package var pushModeOff: Bool
    package var isBlacklisted: Bool
    /// Whether publishes ignore the device because it was absent for too long.
    package var isInactive: Bool
    package var tokens: [Token]
    /// The vendor's last failure; `nil` if the vendor accepted the last offered message, or no message was offered.
    package var vendorFailure: VendorFailure?
    package var bounds: QueueBounds
    package var names: Names
    /// Whether the device lost a token to another device and has registered no token since.
    package var hasLostToken = false
    /// Whether the app has a topic; without one, tokens that name no topic are unusable.
    package var appHasTopic = false
    /// The attributes from the device's last Hello that had any; `nil` without them.
    package var attributes: DeviceAttributes?
    /// The time until which Hellos of the device are refused because it reconnects too often; the device's gateway sets it.
    package var slowedUntil: GatewayTime?
    /// The last refused Hello since the gateway's start; the device's gateway sets it.
    package var refusedHello: RefusedHello?
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

/// The final state of an accepted message, set exactly once; raw values are stored.
package enum FinalState: UInt8, Sendable, CaseIterable, Codable {
    case delivered = 1, deliveredOffline, opened, handedOff, expired, collapsed, revoked, overflowed, failed
}

package struct MessageTrace: Sendable, Codable {
    package struct Step: Sendable, Equatable, Codable {
        /// The event of the step; docs/use/Errors.md, "Trace events", lists the events.
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
    /// The final state; `nil` while the message is pending.
    package var finalState: FinalState?
    package var finalReason: String
    package var fallback = PublishOutcome.Fallback.none
    package var fallbackReason = PublishOutcome.FallbackReason.applies
    /// The channel of the job; `nil` without a job, or if only a later version knows the channel.
    package var channel: VendorChannel?
    /// The number of leases of the job, without leases that senders returned as `unsent`.
    package var attempts: UInt16 = 0
    /// Whether the message has a custom callback; only an answer about one message contains its text.
    package var hasCallback = false
    package var customCallback = ""
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
    /// The reason of the vendor's last result, which may be empty; `nil` after an acceptance or without a result.
    package var vendorReason: String? {
        let words: Set<TraceEvent> = [.vendorAccepted, .vendorRetry, .vendorRejected, .badToken]
        guard let last = steps.last(where: { words.contains($0.event) }), last.event != .vendorAccepted else {
            return nil
        }
        return last.detail
    }
}

/// The events of a trace.
///
/// Raw values are stored. The value 3 was never written.
package enum TraceEvent: UInt8, Sendable, CaseIterable, Codable {
    case accepted = 1, sent, timedOut = 4, jobDue, leased, leaseLapsed, vendorAccepted, vendorRetry, vendorRejected,
        badToken, exhausted, cancelled, alertedTwice, opened, shown, acked, ended, action, unsent, followedUp
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
