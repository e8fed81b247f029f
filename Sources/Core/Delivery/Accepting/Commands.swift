// What goes into a shard. Commands are plain values; the pointers in them are valid during the call that takes them.

package import Wire

/// Gateway time: milliseconds since 1970 UTC, slewed, never backwards (docs/Architecture.md, "Clocks").
package typealias GatewayTime = Int64

/// One connection of a device as its loop knows it: a slot in the loop's slab and the slot's stamp.
///
/// The stamp identifies a late event of an earlier connection in the same slot.
public struct SessionRef: Hashable, Sendable {
    public var slot: UInt32
    public var stamp: UInt32
    @inlinable public init(slot: UInt32, stamp: UInt32) { (self.slot, self.stamp) = (slot, stamp) }
    public static let none = SessionRef(slot: .max, stamp: 0)
}

/// The address of an answer.
///
/// The shard carries it and never looks inside.
public struct Origin: Hashable, Sendable, Codable {
    /// The gateway's routing word: loop, kind and slot of the caller.
    public var route: UInt64
    /// The caller's own number for this request.
    public var request: UInt64
    @inlinable public init(route: UInt64, request: UInt64) { (self.route, self.request) = (route, request) }
    public static let none = Origin(route: .max, request: 0)
}

/// A vendor's content, rendered once per task: for APNs its JSON body with two holes, and its headers.
///
/// `@safe`: its maker keeps the bytes during the call that gets it; Delivery reads them in `Store/Rows` alone.
@safe package struct VendorContent {
    /// How the icon's number changes with this message.
    package enum Badge: Equatable, Sendable { case none, set(Int32), add(Int32) }

    package var channel: VendorChannel
    package var tokenKind: TokenKind
    /// The activity that it is for, as `Activity.word` has it; 0: any.
    package var activity: UInt64
    package var pushType: PushType
    /// 5 or 10.
    package var priority: UInt8
    package var badge: Badge
    /// The JSON body.
    ///
    /// At `messageIDOffset` (if ≥ 0) are 32 characters that the msgId's hex digits overwrite. At `badgeOffset` (if ≥ 0)
    /// the shard inserts the badge's digits. When both are set, the msgId may be on either side.
    package var body: UnsafeRawBufferPointer
    package var messageIDOffset: Int32
    package var badgeOffset: Int32
    /// apns-collapse-id as the publisher gave it; empty: the msgId.
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
    /// The token that it goes to.
    var need: TokenNeed { TokenNeed(channel: channel, kind: tokenKind, activity: activity) }
}

/// Names the Live Activity that a content or a token is for.
package enum Activity {
    /// The word that stands for a name in contents and rows: equal for equal names; 0 for none.
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
/// `@safe`: as a `VendorContent`.
@safe package struct PublishCommand {
    package var origin: Origin
    package var app: AppKey
    package var bucket: Bucket
    package var cid: DeviceID
    package var task: TaskID
    /// The first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), network order: the msgId's tail.
    package var messageDigest: UInt64
    package var strategy: Strategy
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    package var timeToLive: Int64
    /// Digest of (app, endpoint, request id); both words 0: not deduplicated.
    package var requestKey: (UInt64, UInt64)
    /// Digest of the request's body, to tell a retry from a conflict.
    package var requestDigest: UInt64
    /// Bulk jobs lease after those of single pushes.
    package var isBulk: Bool
    /// When a task of several messages was made; 0: not known (see `AcceptanceFilter`).
    package var taskCreatedAt: GatewayTime = 0
    /// The task that this message withdraws, and the tail of that task's msgId for this device; `.none`: an ordinary
    /// message.
    package var revokes = TaskID.none
    package var revokedDigest: UInt64 = 0
    /// The ack of one device ends the task's messages for the others.
    package var firstAckWins = false
    /// Each content for a vendor carries all that the live channel does: a device whose user opened the alert needs no copy.
    package var vendorCarriesAll = false
    package var payload: UnsafeRawBufferPointer
    package var collapseKey: UnsafeRawBufferPointer
    package var alertTitle: UnsafeRawBufferPointer
    package var alertBody: UnsafeRawBufferPointer
    package var contents: VendorContents

    /// Makes a command with one content for a vendor at most; more are added to `contents`.
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
    /// The first of its contents: the one that a message's row has.
    package var vendor: VendorContent? { contents.first }
}

/// A device's Hello after its connection reached the device's loop.
package struct HelloCommand {
    package var session: SessionRef
    package var app: AppKey
    package var bucket: Bucket
    /// For a registration, freshly minted by the gateway.
    package var cid: DeviceID
    /// 32 random bytes for a registration, whose proof the gateway has checked; `nil` for a known device.
    package var newSecret: [UInt8]?
    /// The bytes under the proof: "longwire hello 1" ‖ the Hello as received with its proof left out.
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

/// Checks a device's proof, and gives the ids of messages of broadcasts.
///
/// A protocol, so that Delivery links no cryptography.
package protocol ProofVerifier: AnyObject {
    /// True when `proof` is HMAC-SHA256(key: secret, transcript), compared in constant time.
    func isProof(_ proof: [UInt8], of transcript: [UInt8], secret: [UInt8]) -> Bool
    /// The first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), network order: the tail of a msgId.
    func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64
    /// The name of a vendor token's row: a digest of the app, the channel, the kind and the token.
    ///
    /// A token is hexadecimal: large and small letters are the same token.
    func tokenName(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) -> AliasName
}

/// A sender service asks for due jobs of this shard.
package struct LeaseCommand: Sendable {
    package var origin: Origin
    package var channel: VendorChannel
    /// Apps that the credential may see; `nil`: all.
    package var apps: Set<AppKey>?
    package var limit: Int
    package var leaseMilliseconds: Int64
    /// 128 random bits; the leaseId of each job of this lease.
    package var leaseID: (UInt64, UInt64)
    package init(
        origin: Origin, channel: VendorChannel, apps: Set<AppKey>?, limit: Int, leaseMilliseconds: Int64,
        leaseID: (UInt64, UInt64)
    ) {
        (self.origin, self.channel, self.apps, self.limit) = (origin, channel, apps, limit)
        (self.leaseMilliseconds, self.leaseID) = (leaseMilliseconds, leaseID)
    }
}

/// A sender's result for one job.
package struct JobResult: Sendable {
    /// What became of the job; `unsent`: the vendor never got it, so that its lease counts as no attempt.
    package enum Outcome: UInt8, Sendable, CaseIterable, Codable {
        case accepted = 1, retry, rejected, badToken, unsent
    }
    static let reasonByteCount = 64
    package var job: MessageID
    package var leaseID: (UInt64, UInt64)
    package var outcome: Outcome
    /// The vendor's reason; the shard keeps up to `reasonByteCount`.
    package var reason: String
    package var vendorID: String
    /// The vendor's own time, ms; 0: unknown.
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

/// An app as the shards need it; a reload replaces the snapshot.
package struct AppSettings: Sendable {
    package enum OverflowPolicy: Sendable { case reject, dropOldest }
    /// How many messages an operator may let one device's queue hold.
    package static let queuedMessageLimits: ClosedRange<Int64> = 1...1_000_000
    package var key: AppKey
    package var appID: String
    /// The topic of tokens that name none.
    package var apnsTopic: String
    package var queuedMessageLimit = 1_000
    package var queuedByteLimit = 4 << 20
    package var overflowPolicy = OverflowPolicy.reject
    package var maxAttempts = 5
    /// What the app keeps of its devices' messages; `nil`: it takes none.
    package var upstream: FeedLimits?
    /// What the app keeps of its events; `nil`: it has none.
    package var events: FeedLimits?
    /// False for an app that is switched off, whose jobs are leased and whose events are kept as before.
    package var isServed = true
    package init(key: AppKey, appID: String, apnsTopic: String) {
        (self.key, self.appID, self.apnsTopic) = (key, appID, apnsTopic)
    }

    /// The topic of a channel's tokens that name none.
    func topic(of channel: VendorChannel) -> String {
        switch channel {
        case .apns: apnsTopic
        }
    }
}

/// The numbers a shard works with.
///
/// Defaults are the documented ones; tests and simulations change them.
package struct ShardLimits: Sendable {
    package var window = 32
    package var windowByteCount = 64 << 10
    /// Ack deadline and fallback deadline of a foreground device, and of a background one that keeps running.
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
    /// Commands that wait for one device's record, and for all of them.
    package var waitingPerDevice = 64
    package var waitingInAll = 16_384
    /// How many due jobs are held in memory; as many held jobs besides.
    ///
    /// More stay in the store until senders lease these. An app that has its share may take more while all apps
    /// together are below the bound.
    package var dueJobReadAhead = 65_536
    static let smallestDueShare = 256
    /// When held jobs that are not in memory are due again: at the end of the first, but within these bounds.
    package var heldJobPause: ClosedRange<Int64> = 60_000...600_000
    package var cachedDeviceCount = 200_000
    /// Rows that the measure of a device's queue reads: all that any app's queue may hold.
    package var measuredRowCount = Int(AppSettings.queuedMessageLimits.upperBound)
    /// Alarms of cold rows taken from the store at a time.
    package var alarmBatch = 256
    /// The longest delay before a job is due again when its result names none.
    package var retryDelay: ClosedRange<Int64> = 1_000...60_000
    /// When a job that its sender gave back unsent is due again, unless the sender names a time.
    ///
    /// A named time is at least `retryDelay.lowerBound`, so that a sender which gives all back does not keep the shard busy.
    package var unsentDelay: Int64 = 5_000
    package var sessionlessDeviceLifetime: Int64 = 24 * 3_600_000
    /// Getui: a device not seen for this long gets nothing.
    package var inactiveDeviceLifetime: Int64 = 90 * 86_400_000
    /// Getui: an alias names up to ten devices; a device has up to 100 tags of 512 characters in all.
    package var devicesPerAlias = 10
    package var tagsPerDevice = 100
    package var tagCharactersPerDevice = 512
    /// Characters of one tag and of one alias; callers check them.
    package var tagCharacters = 32
    package var aliasCharacters = 39
    /// How often one device's tags may be replaced on one day (UTC); 0: any number.
    package var tagReplacementsPerDay = 100
    /// Walks over all tag rows that one loop runs at a time.
    package var tagWalks = 4
    /// Devices times tags and conditions that a walk checks in a turn: a fraction of a millisecond.
    package var tagWalkWork = 65_536
    /// Messages that one turn ends, or makes jobs for, by itself: about a millisecond's work.
    ///
    /// The rest waits for the next turn.
    package var sliceCount = 64
    /// A device does not take a reserved alias after this time.
    package var aliasReservationLifetime: Int64 = 30_000
    /// How long the store keeps what reports need.
    package var reportRetention: Int64 = 90 * 24 * 3_600_000
    /// The retry delay of a scheduled or stopping task, or a first ack, that the gateway has not reported done.
    package var taskPatience: Int64 = 60_000
    /// Memory for the filter of devices that a task has not reached yet.
    package var acceptanceFilterByteCount = 32 << 20
    /// Live broadcasts of one app; and how many devices a scan of sessions evaluates them for in one turn.
    package var liveBroadcasts = 512
    package var broadcastSlice = 512
    /// How long a device's broadcast cursor may be ahead of its row.
    package var cursorDelay: Int64 = 1_000
    /// Larger calls under way at once.
    package var callsUnderWay = 16_384
    #if DEBUG
    /// A planted bug; only tests of the tests set it.
    package var planted: PlantedFault?
    #endif
    package init() {}

    /// What each of several shards on one loop may hold, so that together they hold what the loop may.
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
