internal import Delivery
internal import Wire

/// The simulator's own record of one publish, independent of the gateway's answers.
final class Record {
    let index: Int
    let identity: Identity
    let strategy: Strategy
    /// The TTL; for a dealt-out broadcast it decreases until the message is created.
    var timeToLive: Int64
    let hasVendor: Bool
    let badge: VendorContent.Badge
    let collapse: UInt8
    let isBulk: Bool
    /// The request number, shared by all attempts; 0: not deduplicated.
    let request: Int
    let digest: UInt64
    let payloadCount: Int

    /// The list of the message; later attempts of a list call have the digest of the first.
    var task: SimulatedTask?
    /// The broadcast of which this is one device's message, and whether the device has received it.
    var broadcast: SimulatedBroadcast?
    var everMet = false
    /// The broadcast of strategy 2 or 4 that created this message, and the number of its scan.
    var dealt: SimulatedBroadcast?
    var dealStamp = 0
    /// The process run in which the first ack of the task ended or blocked this message; 0 if none.
    var endedBySiblingIn = 0
    /// The simulation time at which the message became durable.
    var durableSince: Int64 = 0
    /// The time of the first publish.
    var askedAt: Int64 = 0
    var revokes: Record?
    /// Whether a caller stopped or revoked the message.
    var mayBeRevoked = false

    var outcome: PublishOutcome?
    /// Whether a later attempt of the same request received this record's message.
    var isSuperseded = false

    // The state according to the rows, visible and durable.
    var id = MessageID.none
    var acceptedAt: GatewayTime = 0
    var expiresAt: GatewayTime = 0
    var byteCount = 0
    var charge = 0
    var wasAcceptedOffline = false
    /// The device's connection at acceptance; −1 if none.
    var acceptedLink = -1
    /// The time from which its row implies a due job, until a job row exists; 0 if never.
    var jobDueAt: GatewayTime = 0
    /// The live deadline in the row.
    var fallbackAt: GatewayTime = 0
    var sequence: UInt64 = 0
    var table: StoreKey.Table?
    var rowTicket: Ticket = 0
    var rowLife = 0
    var durableTable: StoreKey.Table?
    var durableSequence: UInt64 = 0
    /// The share of the app's queued bytes while the row exists, in blocks.
    var durableBlocks = 0
    var everDurable = false
    var job: RowInspection.Job?
    var durableJob: RowInspection.Job?
    var final: FinalState?
    var durableFinal: FinalState?
    var finalReason = ""
    var wasVendorFirst = false

    var durableLeases: [UInt64] = []
    var durableResults: [(lease: UInt64, outcome: UInt8)] = []
    var hasLateAccept = false
    var openLease: UInt64 = 0
    var openLeaseUntil: GatewayTime = 0
    var badgeAtLease: (lease: UInt64, badge: Int32) = (0, 0)
    var badgeChange: Int32 = 0
    var tokensAtLease: [String] = []
    /// Leases from another history of the store; they settle nothing in the current history.
    var foreignLeases: Set<UInt64> = []
    var leaseTokens: [UInt64: String] = [:]
    var wasReportedAccepted = false
    /// Whether a verdict confirmed that report.
    var acceptWasRecorded = false
    /// The same, but only for vendors' leases, because an accepted follow-up shows nothing on the device.
    var (alertWasReported, alertWasRecorded) = (false, false)
    var alertCount = 0

    // The live channel.
    /// The connection in which the message is in flight, sent and not settled; −1 if none.
    var flightLink = -1
    var sentAt: GatewayTime = 0
    var wasSent = false
    var mustBeOffline = false

    // The device.
    enum Handling { case none, volatile, persisted }
    var handling = Handling.none
    /// The queue epoch under which the app handled the message.
    var handledUnder: UInt64 = 0
    var wasHandled = false
    var wasSuppressedAsOpened = false
    var openedByUser = false
    /// Whether an extension may report the alert; a report is the vendor's acceptance of a leased job.
    var isReportedByExtension = false
    var rejectedByClient = false

    init(
        index: Int, identity: Identity, strategy: Strategy, timeToLive: Int64, hasVendor: Bool,
        badge: VendorContent.Badge, collapse: UInt8, isBulk: Bool, request: Int, digest: UInt64, payloadCount: Int
    ) {
        (self.index, self.identity, self.strategy, self.timeToLive) = (index, identity, strategy, timeToLive)
        (self.hasVendor, self.badge, self.collapse, self.isBulk) = (hasVendor, badge, collapse, isBulk)
        (self.request, self.digest, self.payloadCount) = (request, digest, payloadCount)
    }

    /// Whether a sender or a device may have reported the vendor's alert.
    var mayBeAlerted: Bool { alertWasReported || openedByUser || isReportedByExtension }
    /// Whether the alert contains everything that the live channel carries.
    var carriesAll: Bool { ((broadcast ?? dealt)?.index ?? identity.device) % 3 != 2 }
    /// The delay of the message's follow-up, in milliseconds; `nil` without one.
    var followUpDelay: Int64? {
        guard hasVendor, strategy.allowsFollowUp, broadcast == nil, dealt == nil, (digest >> 40) % 3 == 0 else {
            return nil
        }
        let delay = Int64(digest >> 32 % 120) * 1_000
        return delay < timeToLive ? delay : nil
    }
    /// Whether the ledger limits the message to one delivery per device, even for repeated calls.
    var isOnce: Bool { task != nil || dealt != nil }
    var isPending: Bool { table != nil && final == nil }

    /// Returns whether its job may be leased according to the rows.
    func isDue(at time: GatewayTime) -> Bool {
        job.map { $0.state == .due } ?? (jobDueAt > 0 && jobDueAt <= time)
    }
}
