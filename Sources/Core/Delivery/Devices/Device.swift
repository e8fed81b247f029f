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
        fileprivate static let pushModeOff = Flags(rawValue: 128)
        fileprivate static let replayOpened = Flags(rawValue: 256)
        fileprivate static let established = Flags(rawValue: 512)
        /// The shard has asked for a page of the backlog.
        static let paging = Flags(rawValue: 1024)
        /// The device row must be written with the open batch; see `Place.change`.
        fileprivate static let dirty = Flags(rawValue: 2048)
        /// Used since the eviction hand last passed.
        static let touched = Flags(rawValue: 4096)
        /// Counted among the reachable.
        static let countedReachable = Flags(rawValue: 8192)
        /// A row of the device exists, and its roster row.
        fileprivate static let stored = Flags(rawValue: 32768)
        /// There may be cold rows at or beyond the cursor.
        static let coldAhead = Flags(rawValue: 16384)
        /// Gets no messages; the shard sends nothing that is queued.
        fileprivate static let blacklisted = Flags(rawValue: 1 << 19)
        /// Its pending messages of broadcasts are in memory, all of them.
        static let resolved = Flags(rawValue: 1 << 21)
        /// The row does not have the broadcast cursor yet.
        fileprivate static let cursorMoved = Flags(rawValue: 1 << 22)
        /// The shard could not decode its row at the last read.
        static let damaged = Flags(rawValue: 1 << 23)
        /// Its profile is in a cell of `ByteCells`.
        static let profileInCell = Flags(rawValue: 1 << 24)
        /// Its profile has a `VendorFailure`.
        static let vendorFailed = Flags(rawValue: 1 << 27)
        // Bits 16–18, 25 and 29–31 are for tokens, see `token`.
        /// The shard gave held jobs of it back to the store.
        fileprivate static let heldInStore = Flags(rawValue: 1 << 26)
        /// It lost a token to another device, and has registered none since.
        fileprivate static let tokenMoved = Flags(rawValue: 1 << 28)
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
    fileprivate(set) var nextSequence: UInt64 = 1
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
    private(set) var broadcastSettled: UInt64 = 0
    private var broadcastEvaluatedBeyond: UInt32 = 0
    var window: UInt16 = 32
    /// Results that have not gone out to the client; the stream is gated until the last one has.
    var gates: UInt16 = 0
    fileprivate(set) var queueEpoch: UInt64 = 0
    /// The bytes of its `DeviceProfile`, owned by the slot; see `DeviceTable`.
    var profilePlace: ByteCells.Place?
    fileprivate(set) var badge: Int32 = 0
    var heartbeatSeconds: UInt16 = 0
    private var packedGeneration = Packed48()
    private var packedTimestamp = Packed48()
    private var packedRegisteredAt = Packed48()
    private var packedWakeAt = Packed48()
    var state = ApplicationState.terminated
    /// Counts, modulo 256, the values that the client or its server set the badge to.
    fileprivate(set) var badgeRound: UInt8 = 0

    init(cid: DeviceID, bucket: Bucket, queue: Place<DeviceQueue>) {
        (self.cid, self.bucket, self.queue) = (cid, bucket, queue)
    }

    /// The last sequence that a durable row reserves.
    fileprivate(set) var reservedSequence: UInt64 {
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

    fileprivate(set) var generation: UInt64 {
        get { packedGeneration.value }
        set { packedGeneration.value = newValue }
    }

    fileprivate(set) var lastTimestamp: UInt64 {
        get { packedTimestamp.value }
        set { packedTimestamp.value = newValue }
    }

    private(set) var registeredAt: GatewayTime {
        get { GatewayTime(packedRegisteredAt.value) }
        set { packedRegisteredAt.value = UInt64(max(0, newValue)) }
    }

    /// The row's alarm as it was last written.
    private(set) var rowWakeAt: GatewayTime {
        get { GatewayTime(packedWakeAt.value) }
        set { packedWakeAt.value = UInt64(max(0, newValue)) }
    }

    var isStored: Bool { flags.contains(.stored) }
    var isPushModeOff: Bool { flags.contains(.pushModeOff) }
    var isBlacklisted: Bool { flags.contains(.blacklisted) }
    var isSilenced: Bool { !flags.isDisjoint(with: [.pushModeOff, .blacklisted]) }
    var replaysOpened: Bool { flags.contains(.replayOpened) }
    var isEstablished: Bool { flags.contains(.established) }
    var hasLostToken: Bool { flags.contains(.tokenMoved) }
    var isCursorMoved: Bool { flags.contains(.cursorMoved) }
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

    // MARK: The row

    /// True when the row must be written with the open batch.
    var isDirty: Bool { flags.contains(.dirty) }

    /// Sets all that a new device's row has, but the app and the profile; the Welcome's batch writes the row.
    mutating func register(queueEpoch: UInt64, broadcastSettled: UInt64, now: GatewayTime) {
        (self.queueEpoch, self.broadcastSettled) = (queueEpoch, broadcastSettled)
        registeredAt = now
        coldKeys = 0
        flags.formUnion([.touched, .resolved])
    }

    /// Sets all that the row has, but the profile.
    ///
    /// The process before the restart may have given any sequence of the reserved block. So the next one is beyond the
    /// block, or `repeating` sequences earlier.
    mutating func fill(from row: DeviceRow, appIndex: UInt16, wakeAt: GatewayTime, repeating: UInt64) {
        self.appIndex = appIndex
        flags.formUnion([.stored, .touched])
        if row.flags.contains(.pushModeOff) { flags.insert(.pushModeOff) }
        if row.flags.contains(.replayOpened) { flags.insert(.replayOpened) }
        if row.flags.contains(.tokenMoved) { flags.insert(.tokenMoved) }
        if row.flags.contains(.established) { flags.insert(.established) }
        if row.flags.contains(.blacklisted) { flags.insert(.blacklisted) }
        (badge, badgeRound) = (row.badge, row.badgeRound)
        (generation, lastTimestamp) = (row.generation, row.lastTimestamp)
        nextSequence = row.reservedSequence &+ 1 - repeating
        reservedSequence = row.reservedSequence
        (queueEpoch, registeredAt) = (row.queueEpoch, row.registeredAt)
        broadcastSettled = row.broadcastSettled
        broadcastEvaluated = row.broadcastSettled &+ UInt64(row.broadcastEvaluatedBeyond)
        (lastHeardAt, rowWakeAt) = (row.lastSeenAt, wakeAt)
        loadDropped(row.dropped)
    }

    /// The flags of the row.
    var rowFlags: DeviceRow.Flags {
        var rowFlags: DeviceRow.Flags = []
        if flags.contains(.pushModeOff) { rowFlags.insert(.pushModeOff) }
        if flags.contains(.replayOpened) { rowFlags.insert(.replayOpened) }
        if flags.contains(.tokenMoved) { rowFlags.insert(.tokenMoved) }
        if flags.contains(.established) { rowFlags.insert(.established) }
        if flags.contains(.blacklisted) { rowFlags.insert(.blacklisted) }
        return rowFlags
    }

    /// Notes that the open batch has the row as the device is now.
    mutating func noteWritten(wakeAt: GatewayTime) {
        rowWakeAt = wakeAt
        flags.insert(.stored)
        flags.subtract([.dirty, .cursorMoved])
    }

    /// Drops changes that are not written: the open batch deletes the row.
    mutating func dropChanges() { flags.subtract([.dirty, .cursorMoved]) }

    /// Marks the row, so that the device's next batch writes it.
    mutating func needsRow() { flags.insert(.dirty) }

    /// Notes a Hello that was admitted; the Welcome's batch writes it.
    mutating func admitHello(timestamp: UInt64) {
        lastTimestamp = timestamp
        flags.insert(.established)
    }

    /// Notes that the client set `replayOpened` in its Hello; the Welcome's batch writes the flag.
    mutating func noteReplay() { flags.insert(.replayOpened) }

    /// Gives the device another queue epoch, since its queue lost messages; the Welcome's batch writes it.
    mutating func renewQueueEpoch(atLeast epoch: UInt64) { queueEpoch = max(queueEpoch &+ 1, epoch) }

    /// Notes, until the row is written, that the broadcast cursor moved.
    ///
    /// - Returns: false when that was known.
    mutating func moveCursor() -> Bool {
        defer { flags.insert(.cursorMoved) }
        return !flags.contains(.cursorMoved)
    }

    // MARK: Other flags

    /// Notes a use, so that the eviction hand passes the record once more.
    @inline(__always)
    mutating func touch() { flags.insert(.touched) }

    /// Opens the stream: no result is due to the client any more.
    mutating func openGate() { flags.remove(.gated) }

    /// Notes that all its pending messages of broadcasts are in memory.
    mutating func noteResolved() { flags.insert(.resolved) }

    /// Notes that the shard gave held jobs of the device back to the store.
    mutating func noteHeldInStore() { flags.insert(.heldInStore) }

    /// Notes that no held job is in the store any more.
    ///
    /// - Returns: false when none was.
    mutating func takeHeldInStore() -> Bool {
        defer { flags.remove(.heldInStore) }
        return flags.contains(.heldInStore)
    }
}

/// The fields of a device's row that a change may set; only `Place.change` makes one.
struct DeviceRowChange {
    fileprivate let device: Place<Device>

    var badge: Int32 {
        get { device.value.badge }
        nonmutating set { device.value.badge = max(0, newValue) }
    }

    /// Sets the badge to a value that the client or its server chose.
    func chooseBadge(_ value: Int32) {
        badge = value
        device.value.badgeRound &+= 1
    }

    /// Reserves sequences, `count` of them from the next one on.
    @inline(__always)
    func reserveSequences(_ count: UInt64) { device.value.reservedSequence = device.value.nextSequence + count - 1 }

    func setPushModeOff(_ isOn: Bool) { set(.pushModeOff, isOn) }
    func setBlacklisted(_ isOn: Bool) { set(.blacklisted, isOn) }
    func setReplayOpened(_ isOn: Bool) { set(.replayOpened, isOn) }
    func setTokenMoved(_ isOn: Bool) { set(.tokenMoved, isOn) }
    func establish() { set(.established, true) }

    /// Counts a session; `timestamp` is that of its Hello.
    func countSession(timestamp: UInt64?) {
        device.value.generation &+= 1
        if let timestamp { device.value.lastTimestamp = max(device.value.lastTimestamp, timestamp) }
    }

    private func set(_ flag: Device.Flags, _ isOn: Bool) {
        if isOn { device.value.flags.insert(flag) } else { device.value.flags.remove(flag) }
    }
}

extension Place<Device> {
    /// Changes fields of the device's row: the open batch writes the row, or else the device's next batch.
    ///
    /// There is no other way to set these fields of a loaded device, but what a Hello notes for the Welcome's batch (`admitHello`,
    /// `noteReplay`, `renewQueueEpoch`).
    @inline(__always)
    func change(_ body: (DeviceRowChange) -> Void) {
        body(DeviceRowChange(device: self))
        value.needsRow()
    }
}
