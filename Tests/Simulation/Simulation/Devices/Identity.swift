internal import Delivery
internal import Wire

/// One cid that the gateway was asked to mint.
final class Identity {
    let index: Int
    let cid: DeviceID
    let bucket: Bucket
    let app: Int
    let secret: [UInt8]
    let device: Int
    /// False: the device lies, and what it acks need not have been handled.
    let isHonest: Bool

    // As the gateway was told, on the connection that counts.
    var liveLink: Link?
    /// The one before it: what the shard did in the same call went to that one first.
    var formerLink: Link?
    var formerUntil = 0
    var state = ApplicationState.terminated
    var keepsRunning = false
    var pushModeOff = false
    var isBlacklisted = false
    var wasBlacklisted = false
    /// Steps for this device that have reached its loop and are not answered.
    var openSteps: [Int] = []
    var isSuspect = false
    /// When an update or the blacklist last made it unreachable.
    var leftAt: GatewayTime = -1
    /// Connections whose Hello the shard is looking at.
    var callers: [Link] = []
    var tokens: [String] = []
    /// Those that some sender service called bad after it had got them.
    var badTokens: Set<String> = []

    // As rows say.
    var isRegistered = false
    /// When its first row was written, in the simulation's time; 0: never.
    var registeredAt: Int64 = 0
    /// A crash took its first row with it.
    var wasLost = false
    var tags: [TagName] = []
    var tagsChangedAt: Int64 = 0
    var isDurable = false
    var generation: UInt64 = 0
    var durableGeneration: UInt64 = 0
    var badge: Int32 = 0
    var durableBadge: Int32 = 0
    /// Counts what set the badge, as the row has it.
    var badgeRound: UInt8 = 0
    var durableBadgeRound: UInt8 = 0
    var reserved: UInt64 = 0
    var durableReserved: UInt64 = 0
    var durablePushModeOff = false
    var durableBlacklisted = false
    var durableAlias: AliasName?
    var durableTags: [TagName] = []
    var durableTokens: [String] = []
    var highestSequence: UInt64 = 0
    var durableHighest: UInt64 = 0
    var queueEpoch: UInt64 = 0
    var pendingCount = 0
    var bySequence: [UInt64: Record] = [:]
    var newestOfKey = [Int](repeating: -1, count: 4)

    init(index: Int, cid: DeviceID, bucket: Bucket, app: Int, secret: [UInt8], device: Int, isHonest: Bool) {
        (self.index, self.cid, self.bucket, self.app) = (index, cid, bucket, app)
        (self.secret, self.device, self.isHonest) = (secret, device, isHonest)
    }

    /// As docs/Semantics.md, "Reachability and fallback", has it, from what the gateway was told.
    var isReachable: Bool {
        guard liveLink != nil, !isSuspect, !pushModeOff, !isBlacklisted else { return false }
        return state == .foreground || state == .background && keepsRunning
    }
}
