internal import Structures
internal import Wire

/// A device as its shard keeps it in memory: what an idle device needs too, in two cache lines.
///
/// Its queue's fields are in a `DeviceQueue`, which exists while there is a queue. Its secret and tokens stay as bytes
/// outside the record.
struct Device {
    struct Flags: OptionSet {
        let rawValue: UInt32
        /// The record is in memory; without it the slot only holds jobs and waiting commands.
        static let loaded = Flags(rawValue: 1)
        static let loading = Flags(rawValue: 2)
        // Bit 2 is `busy`, which only Shard+WhileBusy may see.
        static let connected = Flags(rawValue: 8)
        /// Nothing is delivered before Welcome or UpdateResult has gone out.
        static let gated = Flags(rawValue: 16)
        static let suspect = Flags(rawValue: 32)
        static let keepsRunning = Flags(rawValue: 64)
        static let pushModeOff = Flags(rawValue: 128)
        static let replayOpened = Flags(rawValue: 256)
        static let established = Flags(rawValue: 512)
        /// The shard has asked for a page of the backlog.
        static let paging = Flags(rawValue: 1024)
        /// The device row must be written with the open batch.
        static let dirty = Flags(rawValue: 2048)
        /// Used since the eviction hand last passed.
        static let touched = Flags(rawValue: 4096)
        /// Counted among the reachable.
        static let countedReachable = Flags(rawValue: 8192)
        /// A row of the device exists, and its roster row.
        static let stored = Flags(rawValue: 32768)
        /// There may be cold rows at or beyond the cursor.
        static let coldAhead = Flags(rawValue: 16384)
        /// Gets no messages; the shard sends nothing that is queued.
        static let blacklisted = Flags(rawValue: 1 << 19)
        /// Its pending messages of broadcasts are in memory, all of them.
        static let resolved = Flags(rawValue: 1 << 21)
        /// The row does not have the broadcast cursor yet.
        static let cursorMoved = Flags(rawValue: 1 << 22)
        /// The shard could not decode its row at the last read.
        static let damaged = Flags(rawValue: 1 << 23)
        /// Its profile is in a cell of `ByteCells`.
        static let profileInCell = Flags(rawValue: 1 << 24)
        /// Its profile has a `VendorFailure`.
        static let vendorFailed = Flags(rawValue: 1 << 27)
        // Bits 16–18, 25 and 29–31 are for tokens, see `token`.
        /// The shard gave held jobs of it back to the store.
        static let heldInStore = Flags(rawValue: 1 << 26)
        /// It lost a token to another device, and has registered none since.
        static let tokenMoved = Flags(rawValue: 1 << 28)
        static let silenced: Flags = [.pushModeOff, .blacklisted]
        /// The flags of all tokens.
        static let allTokens: Flags = VendorChannel.allCases.reduce(into: []) { all, channel in
            for kind in TokenKind.allCases { all.insert(.token(channel, kind)) }
        }

        /// A token of this channel and kind that is not in quarantine.
        static func token(_ channel: VendorChannel, _ kind: TokenKind) -> Flags {
            switch (channel, kind) {
            case (.apns, .alert): Flags(rawValue: 1 << 16)
            case (.apns, .voip): Flags(rawValue: 1 << 17)
            case (.apns, .liveActivity): Flags(rawValue: 1 << 18)
            case (.apns, .liveActivityStart): Flags(rawValue: 1 << 25)
            }
        }
    }

    // Fields that every message uses come first: they share the first cache line.

    let cid: DeviceID
    /// The shared record of no queue while there is none; see `DeviceQueue`.
    var queue: Place<DeviceQueue>
    var session = SessionRef.none
    /// The next sequence to give.
    var nextSequence: UInt64 = 1
    /// When the loop last read something from its session; between sessions, when the gateway saw it last.
    var lastHeardAt: GatewayTime = 0
    var flags: Flags = []
    /// How many sequences, from the next one on, a durable row reserves.
    private var reservedCount: UInt32 = 0
    /// Counts the messages that ended: a scan that saw another number is out of date.
    var endings: UInt32 = 0
    let bucket: Bucket
    var appIndex: UInt16 = .max

    // The second cache line.

    /// Broadcasts up to this number are settled for the device, as far as its row knows.
    var broadcastSettled: UInt64 = 0
    private var broadcastEvaluatedBeyond: UInt32 = 0
    var window: UInt16 = 32
    /// Results that have not gone out to the client; the stream is gated until the last one has.
    var gates: UInt16 = 0
    var queueEpoch: UInt64 = 0
    /// The bytes of its `DeviceProfile`, owned by the slot; see `DeviceTable`.
    var profilePlace: ByteCells.Place?
    var badge: Int32 = 0
    var heartbeatSeconds: UInt16 = 0
    private var packedGeneration = Packed48()
    private var packedTimestamp = Packed48()
    private var packedRegisteredAt = Packed48()
    private var packedWakeAt = Packed48()
    var state = ApplicationState.terminated
    /// Counts, modulo 256, the values that the client or its server set the badge to.
    var badgeRound: UInt8 = 0

    init(cid: DeviceID, bucket: Bucket, queue: Place<DeviceQueue>) {
        (self.cid, self.bucket, self.queue) = (cid, bucket, queue)
    }

    /// The last sequence that a durable row reserves.
    var reservedSequence: UInt64 {
        get { nextSequence &- 1 &+ UInt64(reservedCount) }
        set { reservedCount = UInt32(clamping: newValue &+ 1 &- nextSequence) }
    }

    /// Gives the next of the reserved sequences.
    mutating func takeSequence() -> UInt64 {
        precondition(reservedCount > 0, "a sequence is given before it is reserved")
        reservedCount -= 1
        nextSequence += 1
        return nextSequence - 1
    }

    /// The shard has evaluated broadcasts up to this number: the device has or had their message, or was passed over.
    var broadcastEvaluated: UInt64 {
        get { broadcastSettled &+ UInt64(broadcastEvaluatedBeyond) }
        set { broadcastEvaluatedBeyond = UInt32(clamping: newValue &- broadcastSettled) }
    }

    /// Moves the settled number up; what the shard has evaluated stays evaluated.
    mutating func settleBroadcasts(upTo number: UInt64) {
        let evaluated = broadcastEvaluated
        broadcastSettled = number
        broadcastEvaluated = max(evaluated, number)
    }

    var generation: UInt64 {
        get { packedGeneration.value }
        set { packedGeneration.value = newValue }
    }

    var lastTimestamp: UInt64 {
        get { packedTimestamp.value }
        set { packedTimestamp.value = newValue }
    }

    var registeredAt: GatewayTime {
        get { GatewayTime(packedRegisteredAt.value) }
        set { packedRegisteredAt.value = UInt64(max(0, newValue)) }
    }

    /// The row's alarm as it was last written.
    var rowWakeAt: GatewayTime {
        get { GatewayTime(packedWakeAt.value) }
        set { packedWakeAt.value = UInt64(max(0, newValue)) }
    }

    /// Sets the badge to a value that the client or its server chose.
    mutating func setBadge(_ value: Int32) {
        badge = max(0, value)
        badgeRound &+= 1
    }

    var isStored: Bool {
        get { flags.contains(.stored) }
        set { if newValue { flags.insert(.stored) } else { flags.remove(.stored) } }
    }

    var isLoaded: Bool { flags.contains(.loaded) }
    var isConnected: Bool { flags.contains(.connected) }

    /// When the device last said Hello: a registration's time, or the timestamp of the last Hello after it.
    ///
    /// Its clock may run ahead of the gateway's by the tolerance, never ahead of the last frame.
    var lastLoginAt: GatewayTime { min(lastHeardAt, max(registeredAt, Int64(clamping: lastTimestamp))) }

    /// In the foreground, or in the background and kept running; not suspect; push mode on, not blacklisted.
    ///
    /// See docs/Semantics.md, "Reachability and fallback".
    var isReachable: Bool {
        guard flags.contains(.connected), flags.isDisjoint(with: [.suspect, .pushModeOff, .blacklisted]) else {
            return false
        }
        return state == .foreground || state == .background && flags.contains(.keepsRunning)
    }

    /// True when the device has a token that a content may go to; without `appHasTopic` only one that names a topic counts.
    func hasToken(for need: TokenNeed, appHasTopic: Bool) -> Bool {
        guard flags.contains(.token(need.channel, need.kind)) else { return false }
        // The flags distinguish neither activities nor topics.
        return need.activity == 0 && appHasTopic
            || DeviceProfile(profileBytes)?.token(for: need, appHasTopic: appHasTopic) != nil
    }

    /// Nothing refers to the slot's record but itself.
    var isIdle: Bool {
        flags.isDisjoint(with: [.connected, .loading, .dirty, .paging, .cursorMoved]) && !isBusy
            && firstMessage == .none && firstVendor == .none && firstBroadcast == .none
            && firstJob == .none && waiting == .none
    }

    var key: StoreKey { StoreKey(bucket, .device, cid) }
}

/// A message in memory: young, or sent in the current session.
struct Message {
    struct Flags: OptionSet {
        let rawValue: UInt16
        static let inFlight = Flags(rawValue: 1)
        /// Its bytes are on disk only.
        static let cold = Flags(rawValue: 2)
        /// Its live attempt timed out, or its device disconnected before the ack.
        static let missed = Flags(rawValue: 4)
        /// It was sent in an earlier session or earlier in this one.
        static let attempted = Flags(rawValue: 8)
        /// A newer message under its key ends it as soon as it is not in flight.
        static let collapsed = Flags(rawValue: 16)
        /// Sent, and its ack is overdue: its job may be leased though the device is reachable.
        static let overdue = Flags(rawValue: 32)
        /// It was sent in the current session, so an ack of it counts even when it is not in flight any more.
        static let sentHere = Flags(rawValue: 128)
        /// The session sent later messages but not this one (again): a position beyond it is no evidence of it.
        static let passedOver = Flags(rawValue: 256)
        /// The store has reported the alarm of its row and will not do so again.
        static let reported = Flags(rawValue: 512)
    }

    var facts: MessageFacts
    var device: DeviceSlot
    var links = SlotLinks<Message>()
    var job = JobSlot.none
    var flags: Flags = []
    var location = ValueLocation(block: 0, offset: 0, byteCount: 0)
    var ticket: Ticket = 0
    /// When its job is due unless the device acks it; 0: never.
    var fallbackAt: GatewayTime = 0
    var sentAt: GatewayTime = 0
    var ackDeadline: GatewayTime = 0
    var collapseHash: UInt64 = 0

    /// The next and the previous message in its device's list.
    var next: MessageSlot { links.next }
    var previous: MessageSlot { links.previous }

    init(facts: MessageFacts, device: DeviceSlot) { (self.facts, self.device) = (facts, device) }

    var isOffline: Bool { facts.flags.contains(.offline) || flags.contains(.missed) }
}

/// A job in memory: as its row says, or as the row of its message implies while it has none.
struct JobEntry {
    enum Place: UInt8 { case none, due, held, leasing }

    var row: JobRow
    var device: DeviceSlot
    var appIndex: UInt16
    var place = Place.none
    /// Its message's slot, if the message is in memory.
    var message = MessageSlot.none
    /// In the app's due list.
    var dueLinks = SlotLinks<JobEntry>()
    /// Among the device's jobs.
    var deviceLinks = SlotLinks<JobEntry>()
    /// The alarm of the row that has the job, as it was last written; 0: no row has it.
    var storedWakeAt: GatewayTime = 0
    /// The job has a row of its own.
    var isStored = false
    /// The row that has the job is on disk and not young.
    var isCold = false
    /// The store has reported that row's alarm and will not do so again.
    var wasReported = false
    var countsAsLeased = false

    /// The row that has the job: its own, or its message's.
    var alarmKey: StoreKey { isStored ? row.facts.jobKey : row.facts.key }

    var nextOfDevice: JobSlot { deviceLinks.next }

    init(row: JobRow, device: DeviceSlot, appIndex: UInt16) {
        (self.row, self.device, self.appIndex) = (row, device, appIndex)
    }
}
