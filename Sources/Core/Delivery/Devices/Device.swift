internal import Structures
internal import Wire

/// The record of a device in memory: 128 bytes, which are two cache lines.
///
/// The queue's fields are in a `DeviceQueue`, which exists only while the device has a queue. The secret and tokens are stored as
/// bytes outside the record.
struct Device {
    struct Flags: OptionSet {
        let rawValue: UInt32
        /// The record is loaded; a slot without this flag only holds jobs and waiting commands.
        static let loaded = Flags(rawValue: 1)
        static let loading = Flags(rawValue: 2)
        // Bit 2 is `busy`, which only Shard+WhileBusy may access.
        static let connected = Flags(rawValue: 8)
        /// Delivery is blocked until the Welcome or UpdateResult is sent.
        static let gated = Flags(rawValue: 16)
        static let suspect = Flags(rawValue: 32)
        static let keepsRunning = Flags(rawValue: 64)
        fileprivate static let pushModeOff = Flags(rawValue: 128)
        fileprivate static let replayOpened = Flags(rawValue: 256)
        fileprivate static let established = Flags(rawValue: 512)
        static let paging = Flags(rawValue: 1024)
        /// The open batch must write the device row; see `Place.change`.
        fileprivate static let dirty = Flags(rawValue: 2048)
        /// Used since the last pass of the eviction hand.
        static let touched = Flags(rawValue: 4096)
        /// Included in the count of reachable devices.
        static let countedReachable = Flags(rawValue: 8192)
        /// The device's row and its roster row exist.
        fileprivate static let stored = Flags(rawValue: 32768)
        /// Rows may be on disk at or after the cursor.
        static let coldAhead = Flags(rawValue: 16384)
        /// Gets no messages; queued ones stay queued.
        fileprivate static let blacklisted = Flags(rawValue: 1 << 19)
        /// All pending messages of broadcasts are in memory.
        static let resolved = Flags(rawValue: 1 << 21)
        /// The row does not have the current broadcast cursor.
        fileprivate static let cursorMoved = Flags(rawValue: 1 << 22)
        /// The last read of the row found invalid bytes.
        static let damaged = Flags(rawValue: 1 << 23)
        /// The profile is in a cell of `ByteCells`.
        static let profileInCell = Flags(rawValue: 1 << 24)
        static let vendorFailed = Flags(rawValue: 1 << 27)
        /// Has a token whose claim is not confirmed; see Shard+TokenOwners.
        static let claimsTokens = Flags(rawValue: 1 << 29)
        /// Held jobs were returned to the store.
        fileprivate static let heldInStore = Flags(rawValue: 1 << 26)
        /// Lost a token to another device and has registered none since.
        fileprivate static let tokenMoved = Flags(rawValue: 1 << 28)
    }

    // The first cache line: fields that every message uses.

    let cid: DeviceID
    /// The shared empty record while the device has no queue; see `DeviceQueue`.
    var queue: Place<DeviceQueue>
    var session = SessionRef.none
    fileprivate(set) var nextSequence: UInt64 = 1
    /// The time of the last read from the session; between sessions, the time at which the device was last seen.
    var lastHeardAt: GatewayTime = 0
    var flags: Flags = []
    /// The number of sequences reserved by a durable row, from `nextSequence` on.
    private var reservedCount: UInt32 = 0
    /// The number of ended messages; a scan that began with another number is stale.
    var endings: UInt32 = 0
    let bucket: Bucket
    var appIndex: UInt16 = .max
    /// The tokens that are not in quarantine.
    var tokens: TokenSet = []

    // The second cache line.

    /// The number up to which broadcasts are settled according to the row.
    private(set) var broadcastSettled: UInt64 = 0
    private var broadcastEvaluatedBeyond: UInt32 = 0
    var window: UInt16 = 32
    /// The number of Welcome and UpdateResult frames not yet sent; the stream is gated until the last one is sent.
    var gates: UInt16 = 0
    fileprivate(set) var queueEpoch: UInt64 = 0
    /// The bytes of the `DeviceProfile`, owned by the slot; see `DeviceTable`.
    var profilePlace: ByteCells.Place?
    fileprivate(set) var badge: Int32 = 0
    var heartbeatSeconds: UInt16 = 0
    private var packedGeneration = Packed48()
    private var packedTimestamp = Packed48()
    private var packedRegisteredAt = Packed48()
    private var packedWakeAt = Packed48()
    var state = ApplicationState.terminated
    /// The number, modulo 256, of times the client or its server set the badge.
    fileprivate(set) var badgeRound: UInt8 = 0

    init(cid: DeviceID, bucket: Bucket, queue: Place<DeviceQueue>) {
        (self.cid, self.bucket, self.queue) = (cid, bucket, queue)
    }

    fileprivate(set) var reservedSequence: UInt64 {
        get { nextSequence &- 1 &+ UInt64(reservedCount) }
        set { reservedCount = UInt32(clamping: newValue &+ 1 &- nextSequence) }
    }

    mutating func takeSequence() -> UInt64 {
        precondition(reservedCount > 0, "a sequence is given before it is reserved")
        reservedCount -= 1
        nextSequence += 1
        return nextSequence - 1
    }

    /// The number up to which the shard has evaluated broadcasts for the device.
    var broadcastEvaluated: UInt64 {
        get { broadcastSettled &+ UInt64(broadcastEvaluatedBeyond) }
        set { broadcastEvaluatedBeyond = UInt32(clamping: newValue &- broadcastSettled) }
    }

    /// Raises the settled number; the evaluated number never decreases.
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

    /// The row's alarm as last written.
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

    /// The time of the device's last login: its registration, or the timestamp of its last Hello.
    ///
    /// The device's clock may run ahead of the gateway's by the tolerance, so the time is capped at the last frame.
    var lastLoginAt: GatewayTime { min(lastHeardAt, max(registeredAt, Int64(clamping: lastTimestamp))) }

    /// Whether the device can get messages now; see docs/Semantics.md, "Reachability and fallback".
    var isReachable: Bool {
        guard flags.contains(.connected), flags.isDisjoint(with: [.suspect, .pushModeOff, .blacklisted]) else {
            return false
        }
        return state == .foreground || state == .background && flags.contains(.keepsRunning)
    }

    /// Returns whether the device has a usable token for a content; without `appHasTopic`, an APNs token must name its topic.
    func hasToken(for need: TokenNeed, appHasTopic: Bool) -> Bool {
        guard !tokens.isDisjoint(with: TokenSet(need.platform, need.kind)) else { return false }
        guard need.platform == .apple else { return true }
        // `tokens` does not distinguish activities and topics. If these matter, the profile's tokens decide.
        return need.activity == 0 && appHasTopic
            || DeviceProfile(profileBytes)?.appleToken(for: need, appHasTopic: appHasTopic) != nil
    }

    /// Whether the record may be evicted: no session, message, job, command or unwritten change needs it.
    var isIdle: Bool {
        flags.isDisjoint(with: [.connected, .loading, .dirty, .paging, .cursorMoved]) && !isBusy
            && firstMessage == .none && firstVendor == .none && firstBroadcast == .none
            && firstJob == .none && waiting == .none
    }

    var key: StoreKey { StoreKey(bucket, .device, cid) }

    // MARK: The row

    var isDirty: Bool { flags.contains(.dirty) }

    /// Sets the row's fields for a new device, except app and profile; the Welcome's batch writes the row.
    mutating func register(queueEpoch: UInt64, broadcastSettled: UInt64, now: GatewayTime) {
        (self.queueEpoch, self.broadcastSettled) = (queueEpoch, broadcastSettled)
        registeredAt = now
        coldKeys = 0
        flags.formUnion([.touched, .resolved])
    }

    /// Sets the fields from the row, except the profile.
    ///
    /// The process before a restart may have assigned any sequence of the reserved block. The next sequence is therefore after
    /// the block, minus `repeating` (a planted fault).
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

    var rowFlags: DeviceRow.Flags {
        var rowFlags: DeviceRow.Flags = []
        if flags.contains(.pushModeOff) { rowFlags.insert(.pushModeOff) }
        if flags.contains(.replayOpened) { rowFlags.insert(.replayOpened) }
        if flags.contains(.tokenMoved) { rowFlags.insert(.tokenMoved) }
        if flags.contains(.established) { rowFlags.insert(.established) }
        if flags.contains(.blacklisted) { rowFlags.insert(.blacklisted) }
        return rowFlags
    }

    mutating func noteWritten(wakeAt: GatewayTime) {
        rowWakeAt = wakeAt
        flags.insert(.stored)
        flags.subtract([.dirty, .cursorMoved])
    }

    /// Discards unwritten changes because the open batch deletes the row.
    mutating func dropChanges() { flags.subtract([.dirty, .cursorMoved]) }

    mutating func needsRow() { flags.insert(.dirty) }

    /// Records an accepted Hello; the Welcome's batch writes it.
    mutating func admitHello(timestamp: UInt64) {
        lastTimestamp = timestamp
        flags.insert(.established)
    }

    /// Records `replayOpened` of a Hello; the Welcome's batch writes it.
    mutating func noteReplay() { flags.insert(.replayOpened) }

    /// Changes the queue epoch because the queue lost messages; the Welcome's batch writes it.
    mutating func renewQueueEpoch(atLeast epoch: UInt64) { queueEpoch = max(queueEpoch &+ 1, epoch) }

    /// Records that the broadcast cursor moved.
    ///
    /// - Returns: false if that was already recorded.
    mutating func moveCursor() -> Bool {
        defer { flags.insert(.cursorMoved) }
        return !flags.contains(.cursorMoved)
    }

    // MARK: Other flags

    /// Records a use, so the eviction hand skips the record once.
    @inline(__always)
    mutating func touch() { flags.insert(.touched) }

    mutating func openGate() { flags.remove(.gated) }

    mutating func noteResolved() { flags.insert(.resolved) }

    mutating func noteHeldInStore() { flags.insert(.heldInStore) }

    /// Clears the flag `heldInStore`.
    ///
    /// - Returns: whether the flag was set.
    mutating func takeHeldInStore() -> Bool {
        defer { flags.remove(.heldInStore) }
        return flags.contains(.heldInStore)
    }
}

/// The row fields that a change may set; only `Place.change` creates one.
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

    @inline(__always)
    func reserveSequences(_ count: UInt64) { device.value.reservedSequence = device.value.nextSequence + count - 1 }

    func setPushModeOff(_ isOn: Bool) { set(.pushModeOff, isOn) }
    func setBlacklisted(_ isOn: Bool) { set(.blacklisted, isOn) }
    func setReplayOpened(_ isOn: Bool) { set(.replayOpened, isOn) }
    func setTokenMoved(_ isOn: Bool) { set(.tokenMoved, isOn) }
    func establish() { set(.established, true) }

    func countSession(timestamp: UInt64?) {
        device.value.generation &+= 1
        if let timestamp { device.value.lastTimestamp = max(device.value.lastTimestamp, timestamp) }
    }

    private func set(_ flag: Device.Flags, _ isOn: Bool) {
        if isOn { device.value.flags.insert(flag) } else { device.value.flags.remove(flag) }
    }
}

extension Place<Device> {
    /// Changes fields of the device's row.
    ///
    /// The open batch writes the row; without an open batch, the device's next batch writes it.
    ///
    /// No other code may set these fields of a loaded device, except a Hello's functions whose changes the Welcome's batch writes
    /// (`admitHello`, `noteReplay`, `renewQueueEpoch`).
    @inline(__always)
    func change(_ body: (DeviceRowChange) -> Void) {
        body(DeviceRowChange(device: self))
        value.needsRow()
    }
}
