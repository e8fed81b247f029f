internal import Wire

/// A device as its shard remembers it.
///
/// One fixed-size value; its secret and tokens stay as bytes out of line.
struct Device {
    struct Flags: OptionSet {
        let rawValue: UInt32
        /// The record is in memory; without it the slot only holds jobs and waiting commands.
        static let loaded = Flags(rawValue: 1)
        static let loading = Flags(rawValue: 2)
        /// A step that needs the disk is under way for this device: its commands wait.
        static let busy = Flags(rawValue: 4)
        static let connected = Flags(rawValue: 8)
        /// Nothing is delivered before Welcome or UpdateResult has gone out.
        static let gated = Flags(rawValue: 16)
        static let suspect = Flags(rawValue: 32)
        static let keepsRunning = Flags(rawValue: 64)
        static let pushModeOff = Flags(rawValue: 128)
        static let replayOpened = Flags(rawValue: 256)
        static let established = Flags(rawValue: 512)
        /// A page of the backlog has been asked for.
        static let paging = Flags(rawValue: 1024)
        /// The device row must be written with the open batch.
        static let dirty = Flags(rawValue: 2048)
        /// Touched since the eviction hand last passed.
        static let touched = Flags(rawValue: 4096)
        /// Counted among the reachable.
        static let countedReachable = Flags(rawValue: 8192)
        /// Its row has been written before.
        static let stored = Flags(rawValue: 32768)
        /// There may be cold rows at or beyond the cursor.
        static let coldAhead = Flags(rawValue: 16384)
        /// An alert token that is not quarantined, and so on by kind.
        static let alertToken = Flags(rawValue: 1 << 16)
        static let voipToken = Flags(rawValue: 1 << 17)
        static let liveActivityToken = Flags(rawValue: 1 << 18)
        /// Gets no messages; what is queued is sent nowhere.
        static let blacklisted = Flags(rawValue: 1 << 19)
        /// Its roster row is written.
        static let listed = Flags(rawValue: 1 << 20)
        /// Its pending messages of broadcasts are in memory, all of them.
        static let resolved = Flags(rawValue: 1 << 21)
        /// Its broadcast cursor is not written yet.
        static let cursorMoved = Flags(rawValue: 1 << 22)
        /// Its row could not be understood when it was read last.
        static let damaged = Flags(rawValue: 1 << 23)
        static let silenced: Flags = [.pushModeOff, .blacklisted]
        static let allTokens: Flags = [.alertToken, .voipToken, .liveActivityToken]

        static func token(_ kind: TokenKind) -> Flags { Flags(rawValue: 1 << (16 + UInt32(kind.rawValue))) }
    }

    // What every message uses comes first, in as few lines of the cache as it takes.

    let cid: DeviceID
    let bucket: Bucket
    var appIndex: UInt16 = .max
    var flags: Flags = []
    var session = SessionRef.none
    /// The next sequence to give, and the last that a durable row reserves.
    var nextSequence: UInt64 = 1
    var reservedSequence: UInt64 = 0
    /// The next sequence this session has not been offered yet.
    var cursor: UInt64 = 0
    /// One above the highest sequence sent in this session.
    var offeredBelow: UInt64 = 0
    /// Sequences below this were sent in this session before and are being sent again.
    var resentBelow: UInt64 = 0
    var lastHeardAt: GatewayTime = 0
    /// Rows in the stores, young and cold.
    var messageCount: Int32 = 0
    /// Messages in memory, of either table, linked in sequence order; those of the vendor table are in their own list.
    var listedCount: Int32 = 0
    var messageBytes: Int64 = 0
    var firstMessage: UInt32 = .max
    var lastMessage: UInt32 = .max
    /// The first listed message of the live stream that this session has not been offered.
    var firstUnsent: UInt32 = .max
    var inFlightCount: UInt16 = 0
    var window: UInt16 = 32
    var inFlightBytes: UInt32 = 0
    var round: UInt16 = 1
    var state = ApplicationState.terminated
    var firstJob: UInt32 = .max
    /// Counts messages of the live stream that were left to the disk: a page asked for before does not have them.
    var departures: UInt32 = 0
    /// Counts messages that ended: a scan that saw another number is out of date.
    var endings: UInt32 = 0
    /// Messages of broadcasts in memory, by number.
    var firstBroadcast: UInt32 = .max
    var lastBroadcast: UInt32 = .max
    /// Broadcasts up to this number have met the device: it has their message, had it, or is passed over.
    var broadcastMet: UInt64 = 0
    var vendorCount: Int32 = 0
    var listedVendorCount: Int32 = 0
    var firstVendor: UInt32 = .max
    var lastVendor: UInt32 = .max
    var vendorBytes: Int64 = 0
    /// Digests of collapse keys among cold rows; all ones until they were looked through.
    var coldKeys: UInt64 = .max
    /// Its place in `waitLists`.
    var waiting: UInt32 = .max
    var dropped = DroppedCounts()

    /// Broadcasts up to this number are settled for the device, as far as its row knows.
    var broadcastSettled: UInt64 = 0
    var generation: UInt64 = 0
    var lastTimestamp: UInt64 = 0
    var queueEpoch: UInt64 = 0
    var suspectSince: GatewayTime = 0
    var registeredAt: GatewayTime = 0
    var lastSeenAt: GatewayTime = 0
    /// The row's alarm as it was last written.
    var rowWakeAt: GatewayTime = 0
    var badge: Int32 = 0
    /// Results that are under way to the client; it is gated until the last one is out.
    var gates: UInt16 = 0
    var heartbeatSeconds: UInt16 = 0
    /// The bytes of its `DeviceProfile`, owned by the slot.
    var profile = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    init(cid: DeviceID, bucket: Bucket) { (self.cid, self.bucket) = (cid, bucket) }

    var isStored: Bool {
        get { flags.contains(.stored) }
        set { if newValue { flags.insert(.stored) } else { flags.remove(.stored) } }
    }

    var isLoaded: Bool { flags.contains(.loaded) }
    var isConnected: Bool { flags.contains(.connected) }

    /// Semantics, "Reachability": foreground, or background and kept running; not suspect; push mode on, not blacklisted.
    var isReachable: Bool {
        guard flags.contains(.connected), flags.isDisjoint(with: [.suspect, .pushModeOff, .blacklisted]) else {
            return false
        }
        return state == .foreground || state == .background && flags.contains(.keepsRunning)
    }

    /// Nothing refers to the slot's record but itself.
    var isIdle: Bool {
        flags.isDisjoint(with: [.connected, .busy, .loading, .dirty, .paging, .cursorMoved]) && firstMessage == .max
            && firstVendor == .max && firstBroadcast == .max
            && firstJob == .max && waiting == .max
    }

    /// Rows that are only on disk.
    var coldMessageCount: Int32 { messageCount - listedCount }
    var coldVendorCount: Int32 { vendorCount - listedVendorCount }

    var key: StoreKey { StoreKey(bucket, .device, cid) }
}

/// A message in memory: young, or sent in the current session.
struct Message {
    struct Flags: OptionSet {
        let rawValue: UInt16
        static let inFlight = Flags(rawValue: 1)
        /// Its bytes are on disk only.
        static let cold = Flags(rawValue: 2)
        /// Its live attempt timed out, or its device left before it acked.
        static let missed = Flags(rawValue: 4)
        /// It was sent in an earlier session or earlier in this one.
        static let attempted = Flags(rawValue: 8)
        /// A newer message under its key ends it as soon as it is not in flight.
        static let collapsed = Flags(rawValue: 16)
        /// Sent, and its ack is overdue: its job may be leased though the device is reachable.
        static let overdue = Flags(rawValue: 32)
        /// It stands in the vendor table.
        static let vendorOnly = Flags(rawValue: 64)
        /// It was sent in the current session, so an ack of it counts even when it is not in flight any more.
        static let sentHere = Flags(rawValue: 128)
        /// Later messages were sent though it was not (again): a position beyond it says nothing of it.
        static let passedOver = Flags(rawValue: 256)
    }

    var facts: MessageFacts
    var device: UInt32
    var next: UInt32 = .max
    var previous: UInt32 = .max
    var job: UInt32 = .max
    var flags: Flags = []
    var location = ValueLocation(block: 0, offset: 0, byteCount: 0)
    var ticket: Ticket = 0
    /// When its job falls due unless it is acked; 0: never.
    var fallbackAt: GatewayTime = 0
    var sentAt: GatewayTime = 0
    var ackDeadline: GatewayTime = 0
    var collapseHash: UInt64 = 0

    init(facts: MessageFacts, device: UInt32) { (self.facts, self.device) = (facts, device) }

    var isOffline: Bool { facts.flags.contains(.offline) || flags.contains(.missed) }
}

/// A job row in memory.
struct JobEntry {
    enum Place: UInt8 { case none, due, held, leasing }

    var row: JobRow
    var device: UInt32
    var appIndex: UInt16
    var place = Place.none
    /// The message in memory, if it is.
    var message: UInt32 = .max
    /// In the app's due list.
    var next: UInt32 = .max
    var previous: UInt32 = .max
    /// Among the device's jobs.
    var nextOfDevice: UInt32 = .max
    var previousOfDevice: UInt32 = .max
    /// The alarm of the row as it was last written; 0: not written yet.
    var storedWakeAt: GatewayTime = 0
    var isStored = false
    /// Its row is on disk and not young.
    var isCold = false
    /// The store has reported its alarm and will not do so again.
    var wasReported = false
    var countsAsLeased = false

    init(row: JobRow, device: UInt32, appIndex: UInt16) {
        (self.row, self.device, self.appIndex) = (row, device, appIndex)
    }
}
