// The input of a shard. Commands are plain values; their pointers are valid during the call that receives them.

package import Wire

/// The gateway time: milliseconds since 1970 UTC, slewed, never backwards (docs/Architecture.md, "Clocks").
package typealias GatewayTime = Int64

/// A reference to one connection of a device: a slot in the loop's slab, and the slot's stamp.
///
/// The stamp distinguishes a late event of an earlier connection in the same slot.
public struct SessionRef: Hashable, Sendable {
    public var slot: UInt32
    public var stamp: UInt32
    @inlinable public init(slot: UInt32, stamp: UInt32) { (self.slot, self.stamp) = (slot, stamp) }
    public static let none = SessionRef(slot: .max, stamp: 0)
}

/// The address of an answer, opaque to the shard.
public struct Origin: Hashable, Sendable, Codable {
    /// The gateway's routing word: loop, kind and slot of the caller.
    public var route: UInt64
    /// The caller's number for this request.
    public var request: UInt64
    @inlinable public init(route: UInt64, request: UInt64) { (self.route, self.request) = (route, request) }
    public static let none = Origin(route: .max, request: 0)
}

/// A pair of words with `Codable`, which Swift does not synthesize for tuples.
@propertyWrapper
package struct Words: Codable, Sendable {
    private var first: UInt64
    private var second: UInt64

    package init(wrappedValue: (UInt64, UInt64)) { (first, second) = wrappedValue }

    package var wrappedValue: (UInt64, UInt64) {
        get { (first, second) }
        set { (first, second) = newValue }
    }
}

/// A vendor's content, rendered once per task.
///
/// For APNs: the JSON body with two holes, and the headers. For other platforms: the publisher's fields as JSON, which the sender
/// renders for the token's vendor.
///
/// `@safe`: its creator keeps the bytes valid during the call that receives it. Delivery reads them only in `Store/Rows`.
@safe package struct VendorContent {
    package enum Badge: Equatable, Sendable { case none, set(Int32), add(Int32) }

    /// The channel of the device's token; before a device is chosen, any channel of the content's platform.
    package var channel: VendorChannel
    package var tokenKind: TokenKind
    /// The digest of the target activity's name (`Activity.word`); 0: any.
    ///
    /// A follow-up has its delay in milliseconds here.
    package var activity: UInt64
    package var pushType: PushType
    /// The APNs priority, 5 or 10.
    package var priority: UInt8
    package var badge: Badge
    /// The JSON body.
    ///
    /// The msgId's hex digits overwrite 32 characters at `messageIDOffset` (if ≥ 0). The shard inserts the badge's digits at
    /// `badgeOffset` (if ≥ 0). The two offsets may be in either order.
    package var body: UnsafeRawBufferPointer
    package var messageIDOffset: Int32
    package var badgeOffset: Int32
    /// The apns-collapse-id from the publisher; empty: the msgId.
    package var collapseID: UnsafeRawBufferPointer

    package init(
        channel: VendorChannel, tokenKind: TokenKind, activity: UInt64 = 0, pushType: PushType, priority: UInt8,
        badge: Badge, body: UnsafeRawBufferPointer, messageIDOffset: Int32, badgeOffset: Int32,
        collapseID: UnsafeRawBufferPointer
    ) {
        (self.channel, self.tokenKind, self.activity) = (channel, tokenKind, activity)
        (self.pushType, self.priority, self.badge) = (pushType, priority, badge)
        unsafe (self.body, self.messageIDOffset, self.badgeOffset) = (body, messageIDOffset, badgeOffset)
        unsafe self.collapseID = collapseID
    }
}

extension VendorContent {
    /// The time in ms from acceptance to the follow-up.
    var followUpDelay: Int64 { channel.isFollowUp ? Int64(clamping: activity) : 0 }
    var need: TokenNeed { TokenNeed(platform: channel.platform, kind: tokenKind, activity: activity) }
}

package enum Activity {
    /// Returns the digest that represents a name in contents and rows; 0 for the empty name.
    package static func word(_ name: some Collection<UInt8>) -> UInt64 {
        name.isEmpty ? 0 : max(1, Fingerprint.of(name))
    }
}

/// Raw values are stored in four bits.
package enum TokenKind: UInt8, Sendable, CaseIterable, Codable { case alert = 0, voip, liveActivity, liveActivityStart }
package enum TokenEnvironment: UInt8, Sendable, Codable { case production = 0, sandbox }
package enum PushType: UInt8, Sendable, Codable { case alert = 0, background, voip, liveActivity }

/// One message for one device, parsed, authenticated and validated.
///
/// `@safe`: the creator keeps the command's bytes valid during the call that receives it. Delivery reads them only in
/// `Store/Rows`.
@safe package struct PublishCommand {
    package var origin: Origin
    package var app: AppKey
    package var bucket: Bucket
    package var cid: DeviceID
    package var task: TaskID
    /// The first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), network order: the tail of the msgId.
    package var messageDigest: UInt64
    package var strategy: Strategy
    /// The strategies of single vendors; each replaces `strategy` for messages that go to its vendor.
    package var vendorStrategies = VendorStrategies()
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    package var timeToLive: Int64
    /// The digest of (app, endpoint, request id); both words 0: not deduplicated.
    package var requestKey: (UInt64, UInt64)
    /// The digest of the request's body; a different digest under the same request id is a conflict.
    package var requestDigest: UInt64
    /// Whether the job is leased after the jobs of single pushes.
    package var isBulk: Bool
    /// The creation time of a task with several messages; 0: unknown (see `AcceptanceFilter`).
    package var taskCreatedAt: GatewayTime = 0
    /// The task that this message revokes, and the tail of the msgId of that task's message for this device; `.none`: no revoke.
    package var revokes = TaskID.none
    package var revokedDigest: UInt64 = 0
    /// Whether the first ack of a device ends the task's messages for the other devices.
    package var firstAckWins = false
    /// Whether the vendor content carries everything that the live channel does; an opened message then needs no delivery.
    package var vendorCarriesAll = false
    /// The platforms besides Apple's whose content carries everything that the live channel does.
    package var carryingPlatforms: PlatformSet = []
    package var payload: UnsafeRawBufferPointer
    package var collapseKey: UnsafeRawBufferPointer
    package var alertTitle: UnsafeRawBufferPointer
    package var alertBody: UnsafeRawBufferPointer
    package var contents: VendorContents
    /// The `custom_callback` that the message's events repeat; empty without one.
    package var customCallback = unsafe UnsafeRawBufferPointer(start: nil, count: 0)

    /// Creates a command with at most one vendor content; more are added to `contents`.
    package init(
        origin: Origin, app: AppKey, bucket: Bucket, cid: DeviceID, task: TaskID, messageDigest: UInt64,
        strategy: Strategy, timeToLive: Int64, requestKey: (UInt64, UInt64) = (0, 0), requestDigest: UInt64 = 0,
        isBulk: Bool = false, payload: UnsafeRawBufferPointer,
        collapseKey: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0),
        alertTitle: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0),
        alertBody: UnsafeRawBufferPointer = unsafe UnsafeRawBufferPointer(start: nil, count: 0),
        vendor: VendorContent? = nil
    ) {
        (self.origin, self.app, self.bucket, self.cid, self.task) = (origin, app, bucket, cid, task)
        (self.messageDigest, self.strategy, self.timeToLive) = (messageDigest, strategy, timeToLive)
        (self.requestKey, self.requestDigest, self.isBulk) = (requestKey, requestDigest, isBulk)
        unsafe (self.payload, self.collapseKey) = (payload, collapseKey)
        unsafe (self.alertTitle, self.alertBody, self.contents) = (alertTitle, alertBody, VendorContents(vendor))
    }
}

extension PublishCommand {
    package var vendor: VendorContent? { contents.first }
}

package struct HelloCommand {
    package var session: SessionRef
    package var app: AppKey
    package var bucket: Bucket
    /// The device's id; new for a registration.
    package var cid: DeviceID
    /// The 32 random bytes of a registration whose proof the gateway has verified; `nil` for a known device.
    package var newSecret: [UInt8]?
    /// The signed bytes: "longwire hello 1" ‖ the Hello as received without its proof.
    package var transcript: [UInt8]
    package var proof: [UInt8]
    package var hello: Hello

    package init(
        session: SessionRef, app: AppKey, bucket: Bucket, cid: DeviceID, newSecret: [UInt8]?, transcript: [UInt8],
        proof: [UInt8], hello: Hello
    ) {
        (self.session, self.app, self.bucket, self.cid, self.newSecret) = (session, app, bucket, cid, newSecret)
        (self.transcript, self.proof, self.hello) = (transcript, proof, hello)
    }
}

/// Verifies a device's proof and computes digests; a protocol, so Delivery links no cryptography.
package protocol ProofVerifier: AnyObject {
    /// Returns whether `proof` is HMAC-SHA256(key: secret, transcript), compared in constant time.
    func isProof(_ proof: [UInt8], of transcript: [UInt8], secret: [UInt8]) -> Bool
    /// Returns the first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), network order: the tail of a msgId.
    func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64
    /// Returns the name of a vendor token's row: a digest of the app, the channel, the kind and the token.
    ///
    /// Tokens of APNs are hexadecimal, so upper and lower case are the same token; others are case-sensitive.
    func tokenName(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) -> AliasName
}

package struct LeaseCommand: Sendable, Codable {
    package var origin: Origin
    package var channel: VendorChannel
    /// The apps that the credential may access; `nil`: all.
    package var apps: Set<AppKey>?
    package var limit: Int
    package var leaseMilliseconds: Int64
    /// 128 random bits: the leaseId of each job of this lease.
    @Words package var leaseID: (UInt64, UInt64)
    package init(
        origin: Origin, channel: VendorChannel, apps: Set<AppKey>?, limit: Int, leaseMilliseconds: Int64,
        leaseID: (UInt64, UInt64)
    ) {
        (self.origin, self.channel, self.apps, self.limit) = (origin, channel, apps, limit)
        (self.leaseMilliseconds, self.leaseID) = (leaseMilliseconds, leaseID)
    }
}

package struct JobResult: Sendable, Codable {
    /// The outcome of a job; after `unsent` the lease does not count as an attempt because the vendor never got the job.
    package enum Outcome: UInt8, Sendable, CaseIterable, Codable {
        case accepted = 1, retry, rejected, badToken, unsent
    }
    static let reasonByteCount = 64
    package var job: MessageID
    @Words package var leaseID: (UInt64, UInt64)
    package var outcome: Outcome
    /// The vendor's reason; the shard keeps up to `reasonByteCount`.
    package var reason: String
    package var vendorID: String
    /// The vendor's timestamp in ms; 0: unknown.
    package var timestamp: GatewayTime
    package var retryAfterMilliseconds: Int64
    package init(
        job: MessageID, leaseID: (UInt64, UInt64), outcome: Outcome, reason: String = "", vendorID: String = "",
        timestamp: GatewayTime = 0, retryAfterMilliseconds: Int64 = 0
    ) {
        (self.job, self.leaseID, self.outcome, self.reason) = (job, leaseID, outcome, reason)
        (self.vendorID, self.timestamp, self.retryAfterMilliseconds) = (vendorID, timestamp, retryAfterMilliseconds)
    }
}

/// An app's settings for the shards; a reload replaces this snapshot.
package struct AppSettings: Sendable {
    package enum OverflowPolicy: Sendable { case reject, dropOldest }
    /// The range that an operator may set for the queue limit of one device.
    package static let queuedMessageLimits: ClosedRange<Int64> = 1...1_000_000
    package var key: AppKey
    package var appID: String
    /// The topic of APNs tokens that name no topic.
    package var apnsTopic: String
    package var queuedMessageLimit = 1_000
    package var queuedByteLimit = 4 << 20
    package var overflowPolicy = OverflowPolicy.reject
    package var maxAttempts = 5
    /// The order of vendors for a device with tokens of several; vendors not listed follow in the order of registration.
    package var vendorOrder: [VendorChannel] = []
    /// The limits of the upstream feed; `nil`: the app accepts no upstream messages.
    package var upstream: FeedLimits?
    /// The limits of the event feed; `nil`: the app has none.
    package var events: FeedLimits?
    /// False for a disabled app; its jobs are still leased and its events still recorded.
    package var isServed = true
    package init(key: AppKey, appID: String, apnsTopic: String) {
        (self.key, self.appID, self.apnsTopic) = (key, appID, apnsTopic)
    }

    /// Returns the default topic of a channel's tokens; empty for channels other than APNs, where the sender's credential
    /// determines the app.
    func topic(of channel: VendorChannel) -> String { channel == .apns ? apnsTopic : "" }
}

/// The limits of a shard; production uses the defaults, tests and simulations change them.
package struct ShardLimits: Sendable {
    package var window = 32
    package var windowByteCount = 64 << 10
    /// The ack and fallback deadlines in ms of a foreground device, and of a background device that keeps running.
    package var liveDeadline: Int64 = 10_000
    package var backgroundLiveDeadline: Int64 = 3_000
    package var unannouncedCloseDelay: Int64 = 2_000
    package var suspectSilence: Int64 = 10_000
    package var clockTolerance: Int64 = 120_000
    package var heartbeatSeconds: ClosedRange<Int64> = 30...1_800
    package var defaultHeartbeatSeconds: Int64 = 300
    package var sequenceBlock: UInt64 = 1_024
    package var vendorFirstPatience: Int64 = 30_000
    package var noStorageLeasable: Int64 = 60_000
    /// The time in ms for which the custom callback of a single push is kept after its message's expiry.
    ///
    /// A leased message ends with its lease, perhaps after its expiry. Its trace is kept for a day after its end; later reports
    /// are ignored.
    package var callbackRetention: Int64 = 2 * 86_400_000
    /// The maximum number of commands that wait for one device's record, and for all records together.
    package var waitingPerDevice = 64
    package var waitingInAll = 16_384
    /// The maximum number of due jobs in memory; the same limit applies to held jobs.
    ///
    /// The store keeps further jobs until senders have leased these. An app may exceed its share of the limit while all apps
    /// together are below the limit.
    package var dueJobReadAhead = 65_536
    static let smallestDueShare = 256
    /// The range in ms of the delay after which held jobs outside memory are due again.
    package var heldJobPause: ClosedRange<Int64> = 60_000...600_000
    package var cachedDeviceCount = 200_000
    /// The number of rows read to measure a device's queue: the maximum that any queue may hold.
    package var measuredRowCount = Int(AppSettings.queuedMessageLimits.upperBound)
    /// The number of alarms of rows on disk that are read at once.
    package var alarmBatch = 256
    /// The range in ms of the retry delay if the result names none.
    package var retryDelay: ClosedRange<Int64> = 1_000...60_000
    /// The delay in ms before an `unsent` job is due again, unless the sender names a time.
    ///
    /// A named time is at least `retryDelay.lowerBound`, so a sender that returns all jobs does not keep the shard busy.
    package var unsentDelay: Int64 = 5_000
    package var sessionlessDeviceLifetime: Int64 = 24 * 3_600_000
    /// The absence in ms after which a device gets no new messages, as in Getui.
    package var inactiveDeviceLifetime: Int64 = 90 * 86_400_000
    /// Getui's limits: ten devices per alias, 100 tags per device with 512 characters in total.
    package var devicesPerAlias = 10
    package var tagsPerDevice = 100
    package var tagCharactersPerDevice = 512
    /// The maximum lengths of a tag and of an alias in characters; callers check them.
    package var tagCharacters = 32
    package var aliasCharacters = 39
    /// The number of tag replacements per device and day (UTC); 0: unlimited.
    package var tagReplacementsPerDay = 100
    /// The number of concurrent walks over all tag rows of one loop.
    package var tagWalks = 4
    /// The work of a tag walk per turn, in devices × (tags and conditions): a fraction of a millisecond.
    package var tagWalkWork = 65_536
    /// The number of messages that one turn ends, or makes jobs for: about a millisecond of work.
    package var sliceCount = 64
    /// The time in ms after which a device no longer takes a reserved alias.
    package var aliasReservationLifetime: Int64 = 30_000
    /// The retention in ms of report data in the store.
    package var reportRetention: Int64 = 90 * 24 * 3_600_000
    /// The retry delay in ms of a scheduled or stopping task, or a first ack, that the gateway has not reported done.
    package var taskPatience: Int64 = 60_000
    /// The memory bound of `AcceptanceFilter`.
    package var acceptanceFilterByteCount = 32 << 20
    /// The maximum number of live broadcasts per app; the number of devices per turn for which a scan evaluates broadcasts.
    package var liveBroadcasts = 512
    package var broadcastSlice = 512
    /// The time in ms by which a device's broadcast cursor may be ahead of its row.
    package var cursorDelay: Int64 = 1_000
    /// The number of concurrent list calls.
    package var callsUnderWay = 16_384
    #if DEBUG
    /// A planted fault, which only tests enable, to show that the simulation finds it.
    package var planted: PlantedFault?
    #endif
    package init() {}

    /// Returns the limits of each of `count` shards on one loop, which together use the loop's limits.
    package func share(of count: Int) -> ShardLimits {
        guard count > 1 else { return self }
        var limits = self
        limits.waitingInAll = max(1, waitingInAll / count)
        limits.dueJobReadAhead = max(1, dueJobReadAhead / count)
        limits.cachedDeviceCount = max(1, cachedDeviceCount / count)
        limits.callsUnderWay = max(1, callsUnderWay / count)
        limits.acceptanceFilterByteCount = acceptanceFilterByteCount / count
        return limits
    }
}
