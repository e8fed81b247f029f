internal import Delivery
internal import Wire

/// What the simulator itself knows of one publish, whatever the gateway says.
final class Record {
    let index: Int
    let identity: Identity
    let strategy: Strategy
    /// What a broadcast is dealt out with has less of it the later that is.
    var timeToLive: Int64
    let hasVendor: Bool
    let badge: VendorContent.Badge
    let collapse: UInt8
    let isBulk: Bool
    /// Records with the same number are attempts at one request; 0: not deduplicated.
    let request: Int
    let digest: UInt64
    let payloadCount: Int

    /// The list it belongs to; later attempts of a list's call have the digest of the first.
    var task: SimulatedTask?
    /// The broadcast that it is a device's message of, and whether the device has met it.
    var broadcast: SimulatedBroadcast?
    var everMet = false
    /// The broadcast of strategy 2 or 4 that was dealt to its device as a message of its own, and by which scan.
    var dealt: SimulatedBroadcast?
    var dealStamp = 0
    /// The run of the process in which the first ack of its task ended it, or kept it out; 0: it has not.
    var endedBySiblingIn = 0
    /// When it became durable, in the simulation's time.
    var durableSince: Int64 = 0
    /// When it was first published.
    var askedAt: Int64 = 0
    /// What it withdraws.
    var revokes: Record?
    /// A caller stopped or revoked it.
    var mayBeRevoked = false

    var outcome: PublishOutcome?
    /// A later attempt of the same request got this record's message.
    var isSuperseded = false

    // As rows say, visible and durable.
    var id = MessageID.none
    var acceptedAt: GatewayTime = 0
    var expiresAt: GatewayTime = 0
    var byteCount = 0
    /// What its queue counts for it.
    var charge = 0
    var wasAcceptedOffline = false
    /// The device's connection at acceptance; −1: none.
    var acceptedLink = -1
    /// Since when its row implies a due job, until a job's row says more; 0: never.
    var jobDueAt: GatewayTime = 0
    /// The live deadline in its row.
    var fallbackAt: GatewayTime = 0
    var sequence: UInt64 = 0
    var table: StoreKey.Table?
    var rowTicket: Ticket = 0
    var rowLife = 0
    var durableTable: StoreKey.Table?
    var durableSequence: UInt64 = 0
    /// What it counts among its app's queued bytes while its row is there.
    var durableBlocks = 0
    var everDurable = false
    var job: RowInspection.Job?
    var durableJob: RowInspection.Job?
    var final: FinalState?
    var durableFinal: FinalState?
    var finalReason = ""
    var wasVendorFirst = false

    // Leases and results.
    var durableLeases: [UInt64] = []
    var durableResults: [(lease: UInt64, outcome: UInt8)] = []
    var hasLateAccept = false
    var openLease: UInt64 = 0
    var openLeaseUntil: GatewayTime = 0
    var badgeAtLease: (lease: UInt64, badge: Int32) = (0, 0)
    /// By how much its first lease moved the badge.
    var badgeChange: Int32 = 0
    var tokensAtLease: [String] = []
    /// Leases that another history of the store gave: they settle nothing in this one.
    var foreignLeases: Set<UInt64> = []
    /// By lease: the token that went out with it.
    var leaseTokens: [UInt64: String] = [:]
    /// Some sender said that the vendor took it.
    var wasReportedAccepted = false
    /// A verdict confirmed that to the sender.
    var acceptWasRecorded = false
    var alertCount = 0

    // The live channel.
    /// The connection in which it is in flight, as far as it was sent and is not settled; −1: none.
    var flightLink = -1
    var sentAt: GatewayTime = 0
    var wasSent = false
    /// The next Deliver of it must carry the offline flag.
    var mustBeOffline = false

    // The device.
    enum Handling { case none, volatile, persisted }
    var handling = Handling.none
    /// The queue epoch under which its app handled it.
    var handledUnder: UInt64 = 0
    var wasHandled = false
    var wasSuppressedAsOpened = false
    var openedByUser = false
    var rejectedByClient = false

    init(
        index: Int, identity: Identity, strategy: Strategy, timeToLive: Int64, hasVendor: Bool,
        badge: VendorContent.Badge, collapse: UInt8, isBulk: Bool, request: Int, digest: UInt64, payloadCount: Int
    ) {
        (self.index, self.identity, self.strategy, self.timeToLive) = (index, identity, strategy, timeToLive)
        (self.hasVendor, self.badge, self.collapse, self.isBulk) = (hasVendor, badge, collapse, isBulk)
        (self.request, self.digest, self.payloadCount) = (request, digest, payloadCount)
    }

    /// The alert of some messages leaves out what the live channel carries.
    var carriesAll: Bool { ((broadcast ?? dealt)?.index ?? identity.device) % 3 != 2 }
    /// The ledger lets its device have it once, however often the call is repeated.
    var isOnce: Bool { task != nil || dealt != nil }
    var isPending: Bool { table != nil && final == nil }

    /// Its job may be leased, as far as rows say.
    func isDue(at time: GatewayTime) -> Bool {
        job.map { $0.state == .due } ?? (jobDueAt > 0 && jobDueAt <= time)
    }
}
