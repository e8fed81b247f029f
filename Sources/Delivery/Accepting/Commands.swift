// What goes into a shard. Commands are plain values; the pointers in them are valid during the call that takes them.

public import Wire

/// Gateway time: milliseconds since 1970 UTC, slewed, never backwards (docs/Architecture.md, "Clocks").
public typealias GatewayTime = Int64

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
public struct Origin: Hashable, Sendable {
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
@safe public struct VendorContent {
    /// How the icon's number changes with this message.
    public enum Badge: Equatable, Sendable { case none, set(Int32), add(Int32) }

    public var channel: VendorChannel
    public var tokenKind: TokenKind
    /// The activity that it is for, as `Activity.word` has it; 0: any.
    public var activity: UInt64
    public var pushType: PushType
    /// 5 or 10.
    public var priority: UInt8
    public var badge: Badge
    /// The JSON body.
    ///
    /// At `messageIDOffset` (if ≥ 0) are 32 characters that the msgId's hex digits overwrite. At `badgeOffset` (if ≥ 0)
    /// the shard inserts the badge's digits. When both are set, the msgId may be on either side.
    public var body: UnsafeRawBufferPointer
    public var messageIDOffset: Int32
    public var badgeOffset: Int32
    /// apns-collapse-id as the publisher gave it; empty: the msgId.
    public var collapseID: UnsafeRawBufferPointer

    public init(
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
public enum Activity {
    /// The word that stands for a name in contents and rows: equal for equal names; 0 for none.
    public static func word(_ name: some Collection<UInt8>) -> UInt64 {
        name.isEmpty ? 0 : max(1, Fingerprint.of(name))
    }
}

/// Raw values are stored in four bits.
public enum TokenKind: UInt8, Sendable, CaseIterable { case alert = 0, voip, liveActivity, liveActivityStart }
public enum TokenEnvironment: UInt8, Sendable { case production = 0, sandbox }
public enum PushType: UInt8, Sendable { case alert = 0, background, voip, liveActivity }

/// One message for one device, parsed, authenticated and validated.
///
/// `@safe`: as a `VendorContent`.
@safe public struct PublishCommand {
    public var origin: Origin
    public var app: AppKey
    public var bucket: Bucket
    public var cid: DeviceID
    public var task: TaskID
    /// The first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), network order: the msgId's tail.
    public var messageDigest: UInt64
    public var strategy: Strategy
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    public var timeToLive: Int64
    /// Digest of (app, endpoint, request id); both words 0: not deduplicated.
    public var requestKey: (UInt64, UInt64)
    /// Digest of the request's body, to tell a retry from a conflict.
    public var requestDigest: UInt64
    /// Bulk jobs lease after those of single pushes.
    public var isBulk: Bool
    /// When a task of several messages was made; 0: not known (see `AcceptanceFilter`).
    public var taskCreatedAt: GatewayTime = 0
    /// Keeps a row that finds the message of a single push by its task.
    public var isTracked = false
    /// The task that this message withdraws, and the tail of that task's msgId for this device; `.none`: an ordinary
    /// message.
    public var revokes = TaskID.none
    public var revokedDigest: UInt64 = 0
    /// The ack of one device ends the task's messages for the others.
    public var firstAckWins = false
    public var payload: UnsafeRawBufferPointer
    public var collapseKey: UnsafeRawBufferPointer
    public var alertTitle: UnsafeRawBufferPointer
    public var alertBody: UnsafeRawBufferPointer
    public var contents: VendorContents

    /// Makes a command with one content for a vendor at most; more are added to `contents`.
    public init(
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
    public var vendor: VendorContent? { contents.first }
}

/// A device's Hello after its connection reached the device's loop.
public struct HelloCommand {
    public var session: SessionRef
    public var app: AppKey
    public var bucket: Bucket
    /// For a registration, freshly minted by the gateway.
    public var cid: DeviceID
    /// 32 random bytes for a registration, whose proof the gateway has checked; `nil` for a known device.
    public var newSecret: [UInt8]?
    /// The bytes under the proof: "longwire hello 1" ‖ the Hello as received with its proof left out.
    public var transcript: [UInt8]
    public var proof: [UInt8]
    public var hello: Hello

    public init(
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
public protocol ProofVerifier: AnyObject {
    /// True when `proof` is HMAC-SHA256(key: secret, transcript), compared in constant time.
    func isProof(_ proof: [UInt8], of transcript: [UInt8], secret: [UInt8]) -> Bool
    /// The first eight bytes of SHA-256(task's 16 bytes ‖ cid's 16 bytes), network order: the tail of a msgId.
    func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64
}

/// A sender service asks for due jobs of this shard.
public struct LeaseCommand: Sendable {
    public var origin: Origin
    public var channel: VendorChannel
    /// Apps that the credential may see; `nil`: all.
    public var apps: Set<AppKey>?
    public var limit: Int
    public var leaseMilliseconds: Int64
    /// 128 random bits; the leaseId of each job of this lease.
    public var leaseID: (UInt64, UInt64)
    public init(
        origin: Origin, channel: VendorChannel, apps: Set<AppKey>?, limit: Int, leaseMilliseconds: Int64,
        leaseID: (UInt64, UInt64)
    ) {
        (self.origin, self.channel, self.apps, self.limit) = (origin, channel, apps, limit)
        (self.leaseMilliseconds, self.leaseID) = (leaseMilliseconds, leaseID)
    }
}

/// A sender's result for one job.
public struct JobResult: Sendable {
    public enum Outcome: UInt8, Sendable { case accepted = 1, retry, rejected, badToken }
    public var job: MessageID
    public var leaseID: (UInt64, UInt64)
    public var outcome: Outcome
    /// The vendor's reason; the shard keeps up to 64 bytes.
    public var reason: String
    public var vendorID: String
    /// The vendor's own time, ms; 0: unknown.
    public var timestamp: GatewayTime
    public var retryAfterMilliseconds: Int64
    public init(
        job: MessageID, leaseID: (UInt64, UInt64), outcome: Outcome, reason: String = "", vendorID: String = "",
        timestamp: GatewayTime = 0, retryAfterMilliseconds: Int64 = 0
    ) {
        (self.job, self.leaseID, self.outcome, self.reason) = (job, leaseID, outcome, reason)
        (self.vendorID, self.timestamp, self.retryAfterMilliseconds) = (vendorID, timestamp, retryAfterMilliseconds)
    }
}

/// An app as the shards need it; a reload replaces the snapshot.
public struct AppSettings: Sendable {
    public enum OverflowPolicy: Sendable { case reject, dropOldest }
    /// How many messages an operator may let one device's queue hold.
    public static let queuedMessageLimits: ClosedRange<Int64> = 1...1_000_000
    public var key: AppKey
    public var appID: String
    /// The topic of tokens that name none.
    public var apnsTopic: String
    public var queuedMessageLimit = 1_000
    public var queuedByteLimit = 4 << 20
    public var overflowPolicy = OverflowPolicy.reject
    public var maxAttempts = 5
    public init(key: AppKey, appID: String, apnsTopic: String) {
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
public struct ShardLimits: Sendable {
    public var window = 32
    public var windowByteCount = 64 << 10
    /// Ack deadline and fallback deadline of a foreground device, and of a background one that keeps running.
    public var liveDeadline: Int64 = 10_000
    public var backgroundLiveDeadline: Int64 = 3_000
    public var unannouncedCloseDelay: Int64 = 2_000
    public var suspectSilence: Int64 = 10_000
    public var clockTolerance: Int64 = 120_000
    public var heartbeatSeconds: ClosedRange<Int64> = 30...1_800
    public var defaultHeartbeatSeconds: Int64 = 300
    public var sequenceBlock: UInt64 = 1_024
    public var vendorFirstPatience: Int64 = 30_000
    public var noStorageLeasable: Int64 = 60_000
    /// Commands that wait for one device's record, and for all of them.
    public var waitingPerDevice = 64
    public var waitingInAll = 16_384
    /// How many due jobs are held in memory; as many held jobs besides.
    ///
    /// More stay in the store until senders lease these. An app that has its share may take more while all apps
    /// together are below the bound.
    public var dueJobReadAhead = 65_536
    static let smallestDueShare = 256
    /// When held jobs that are not in memory are due again: at the end of the first, but within these bounds.
    public var heldJobPause: ClosedRange<Int64> = 60_000...600_000
    public var cachedDeviceCount = 200_000
    /// Rows that the measure of a device's queue reads: all that any app's queue may hold.
    public var measuredRowCount = Int(AppSettings.queuedMessageLimits.upperBound)
    /// Alarms of cold rows taken from the store at a time.
    public var alarmBatch = 256
    /// The longest delay before a job is due again when its result names none.
    public var retryDelay: ClosedRange<Int64> = 1_000...60_000
    public var sessionlessDeviceLifetime: Int64 = 24 * 3_600_000
    /// Getui: a device not seen for this long gets nothing.
    public var inactiveDeviceLifetime: Int64 = 90 * 86_400_000
    /// Getui: an alias names up to ten devices; a device has up to 100 tags of 512 characters in all.
    public var devicesPerAlias = 10
    public var tagsPerDevice = 100
    public var tagCharactersPerDevice = 512
    /// Characters of one tag and of one alias; callers check them.
    public var tagCharacters = 32
    public var aliasCharacters = 39
    /// How often one device's tags may be replaced on one day (UTC); 0: any number.
    public var tagReplacementsPerDay = 100
    /// Walks over all tag rows that one loop runs at a time.
    public var tagWalks = 4
    /// Devices times tags and conditions that a walk checks in a turn: a fraction of a millisecond.
    public var tagWalkWork = 65_536
    /// Messages that one turn ends, or makes jobs for, by itself: about a millisecond's work.
    ///
    /// The rest waits for the next turn.
    public var sliceCount = 64
    /// A device does not take a reserved alias after this time.
    public var aliasReservationLifetime: Int64 = 30_000
    /// How long the store keeps what reports need.
    public var reportRetention: Int64 = 90 * 24 * 3_600_000
    /// The retry delay of a scheduled or stopping task, or a first ack, that the gateway has not reported done.
    public var taskPatience: Int64 = 60_000
    /// Memory for the filter of devices that a task has not reached yet.
    public var acceptanceFilterByteCount = 32 << 20
    /// Live broadcasts of one app; and how many devices a scan of sessions evaluates them for in one turn.
    public var liveBroadcasts = 512
    public var broadcastSlice = 512
    /// How long a device's broadcast cursor may be ahead of its row.
    public var cursorDelay: Int64 = 1_000
    /// Larger calls under way at once.
    public var callsUnderWay = 16_384
    #if DEBUG
    /// A planted bug; only tests of the tests set it.
    public var planted: PlantedFault?
    #endif
    public init() {}
}
