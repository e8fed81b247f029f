internal import Delivery
internal import Wire

final class Identity {
    let index: Int
    let cid: DeviceID
    let bucket: Bucket
    let app: Int
    let secret: [UInt8]
    let device: Int
    /// False for a device that sends acks for messages it has not handled.
    let isHonest: Bool

    // The state that the device reported to the gateway over the connection of its current session.
    var liveLink: Link?
    /// The previous connection, to which the shard sent first in the same call.
    var formerLink: Link?
    var formerUntil = 0
    var state = ApplicationState.terminated
    var keepsRunning = false
    var pushModeOff = false
    var isBlacklisted = false
    var wasBlacklisted = false
    /// The steps for this device that have reached its loop and have no answer.
    var openSteps: [Int] = []
    var isSuspect = false
    /// The time at which an update or the blacklist last made it unreachable.
    var leftAt: GatewayTime = -1
    /// Connections whose Hello the shard is verifying.
    var callers: [Link] = []
    var tokens: [String] = []
    /// The tokens that a sender service reported as invalid after it had received them.
    var badTokens: Set<String> = []

    // The device's state according to its rows.
    var isRegistered = false
    /// The simulation time at which its first row was written; 0 if never.
    var registeredAt: Int64 = 0
    /// Whether a crash lost its first row.
    var wasLost = false
    var tags: [TagName] = []
    var tagsChangedAt: Int64 = 0
    var isDurable = false
    var generation: UInt64 = 0
    var durableGeneration: UInt64 = 0
    var badge: Int32 = 0
    var durableBadge: Int32 = 0
    /// The number of times the badge was set, as in the row.
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

    /// Whether docs/Semantics.md, "Reachability and fallback", calls the device reachable, given the gateway's information.
    var isReachable: Bool {
        guard liveLink != nil, !isSuspect, !pushModeOff, !isBlacklisted else { return false }
        return state == .foreground || state == .background && keepsRunning
    }
}
