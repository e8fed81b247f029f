internal import Cryptography
package import Delivery
internal import MessageStore
package import PushAPI
internal import Wire

/// The rows of the table `meta`: the gateway's own data, which must survive a restart or a move of the store to another machine.
package struct MetaRows: Sendable {
    /// The kind of a row; raw values are stored.
    enum Kind: UInt64, CaseIterable {
        case tokenKey = 1, queueEpoch, clock, revokedToken, onlinePoint, onlinePeak, rate, testDevice
        case foldedDay, foldedLife  // CounterFold.RowKind
        case app, appsVersion
    }

    package private(set) var tokenKey: [UInt8] = []
    package private(set) var queueEpoch: UInt64 = 0
    package private(set) var clock: ClockRecord?
    package private(set) var revoked: Set<TokenID> = []
    /// The number of connected devices by app and time, the daily peaks, and the usage of daily quotas.
    private(set) var onlinePoints: [(app: AppKey, time: Int64, count: Int)] = []
    private(set) var onlinePeaks: [(app: AppKey, day: UInt32, count: Int)] = []
    private(set) var rates: [(app: AppKey, kind: UInt64, day: Int64, count: Int)] = []
    private(set) var testDevices: [(app: AppKey, device: TestDevice)] = []
    private(set) var fold = CounterFold()
    private var apps: [ManagedApp] = []
    private var appsVersion: UInt64 = 0
    private(set) var unreadAppCount = 0
    private var isNew = false

    var book: ManagedApps { ManagedApps(apps, version: appsVersion) }

    /// Reads the rows of the table.
    ///
    /// - Parameter store: The store of bucket 0's owner, before its first write.
    /// - Throws: `.database` if a row cannot be read.
    init(loading store: any LoopStore) throws(StoreError) {
        try store.loadAll(table: .meta) { take($0) }
    }

    package init() {}

    /// Reads a row; ignores kinds that this version does not know.
    package mutating func take(_ row: StoredRow) {
        switch Kind(rawValue: row.key.ownerHigh) {
        case .tokenKey: tokenKey = Array(row.value)
        case .queueEpoch:
            if row.value.count == 8 { queueEpoch = UInt64(bigEndian: row.value.loadUnaligned(as: UInt64.self)) }
        case .clock: clock = ClockRecord(bytes: row.value)
        case .revokedToken:
            revoked.insert(TokenID(expiresAt: Int64(bitPattern: row.key.item), random: row.key.ownerLow))
        case .onlinePoint:
            guard let count = Self.number(row.value, 0) else { return }
            onlinePoints.append((AppKey(row.key.ownerLow), Int64(bitPattern: row.key.item), Int(count)))
        case .onlinePeak:
            guard let count = Self.number(row.value, 0) else { return }
            onlinePeaks.append((AppKey(row.key.ownerLow), UInt32(truncatingIfNeeded: row.key.item), Int(count)))
        case .rate:
            guard let day = Self.number(row.value, 0), let count = Self.number(row.value, 8) else { return }
            rates.append((AppKey(row.key.ownerLow), row.key.item, Int64(day), Int(count)))
        case .testDevice:
            guard let device = TestDevice(bytes: row.value, low: row.key.item) else { return }
            testDevices.append((AppKey(row.key.ownerLow), device))
        case .foldedDay, .foldedLife: _ = fold.take(row)
        case .app:
            if let app = ManagedApp(row: row.value) { apps.append(app) } else { unreadAppCount += 1 }
        case .appsVersion: appsVersion = Self.number(row.value, 0) ?? 0
        case nil: break
        }
    }

    private static func number(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt64? {
        guard bytes.count >= offset + 8 else { return nil }
        let word = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        return word < 1 << 62 ? word : nil
    }

    private static func bytes(_ numbers: [UInt64]) -> [UInt8] {
        numbers.flatMap { number in (0..<8).map { UInt8(truncatingIfNeeded: number >> UInt64(56 - 8 * $0)) } }
    }

    static func writeOnline(_ count: Int, app: AppKey, at time: Int64, on partition: Partition) {
        partition.putMeta(
            high: Kind.onlinePoint.rawValue, low: app.word, item: UInt64(bitPattern: time), bytes([UInt64(count)])
        ) {}
    }

    static func deleteOnline(app: AppKey, at time: Int64, on partition: Partition) {
        partition.deleteMeta(high: Kind.onlinePoint.rawValue, low: app.word, item: UInt64(bitPattern: time))
    }

    static func writePeak(_ count: Int, app: AppKey, day: UInt32, on partition: Partition) {
        partition.putMeta(high: Kind.onlinePeak.rawValue, low: app.word, item: UInt64(day), bytes([UInt64(count)])) {}
    }

    static func deletePeak(app: AppKey, day: UInt32, on partition: Partition) {
        partition.deleteMeta(high: Kind.onlinePeak.rawValue, low: app.word, item: UInt64(day))
    }

    static func writeRate(_ count: Int, app: AppKey, kind: UInt64, day: Int64, on partition: Partition) {
        partition.putMeta(
            high: Kind.rate.rawValue, low: app.word, item: kind, bytes([UInt64(max(0, day)), UInt64(count)])
        ) {}
    }

    static func deleteRate(app: AppKey, kind: UInt64, on partition: Partition) {
        partition.deleteMeta(high: Kind.rate.rawValue, low: app.word, item: kind)
    }

    static func write(_ change: TestDeviceChange, app: AppKey, on partition: Partition) {
        switch change {
        case .put(let device):
            partition.putMeta(high: Kind.testDevice.rawValue, low: app.word, item: device.cid.low, device.bytes) {}
        case .remove(let cid):
            partition.deleteMeta(high: Kind.testDevice.rawValue, low: app.word, item: cid.low)
        }
    }

    /// Writes or removes an app's row, and writes the version of the app list, which must not decrease when an app is removed.
    static func write(
        _ app: ManagedApp, isDeleted: Bool, on partition: Partition, done: @escaping () -> Void,
        failed: @escaping () -> Void
    ) {
        partition.putMeta(high: Kind.appsVersion.rawValue, low: 0, item: 0, bytes([app.version])) {}
        if isDeleted {
            partition.deleteMeta(high: Kind.app.rawValue, low: app.key.word, item: 0)
            partition.afterMeta(done, failed: failed)
        } else {
            partition.putMeta(high: Kind.app.rawValue, low: app.key.word, item: 0, app.row, done: done, failed: failed)
        }
    }

    /// Creates missing values at the first start.
    mutating func complete() {
        if tokenKey.count != 32 {
            tokenKey = SecureRandom.bytes(32)
            isNew = true
        }
        if queueEpoch == 0 {
            queueEpoch = SecureRandom.word() | 1
            isNew = true
        }
    }

    /// Writes the values that `complete` created, and makes the gateway ready when they are durable.
    ///
    /// Tokens signed with a key that is not durable would become invalid after a crash.
    func write(on partition: Partition) {
        guard isNew else { return partition.context.setReady() }
        let epoch = (0..<8).map { UInt8(truncatingIfNeeded: queueEpoch >> UInt64(56 - 8 * $0)) }
        partition.putMeta(high: Kind.tokenKey.rawValue, low: 0, item: 0, tokenKey) {}
        partition.putMeta(high: Kind.queueEpoch.rawValue, low: 0, item: 0, epoch) { partition.context.setReady() }
    }

    static func write(_ record: ClockRecord, on partition: Partition, done: @escaping () -> Void = {}) {
        partition.putMeta(high: Kind.clock.rawValue, low: 0, item: 0, record.bytes, done: done, failed: done)
    }

    static func write(
        _ token: TokenID, on partition: Partition, done: @escaping () -> Void, failed: @escaping () -> Void
    ) {
        partition.putMeta(
            high: Kind.revokedToken.rawValue, low: token.random, item: UInt64(bitPattern: token.expiresAt), [1],
            done: done, failed: failed)
    }
}

extension MetaRows {
    static func delete(_ token: TokenID, on partition: Partition) {
        partition.deleteMeta(
            high: Kind.revokedToken.rawValue, low: token.random, item: UInt64(bitPattern: token.expiresAt))
    }
}

/// The callbacks of a write to the table `meta` that is not durable yet.
struct MetaWaiter {
    var ticket: Ticket
    var done: () -> Void
    /// Called if the partition was released before the row was known to be durable.
    var failed: () -> Void = {}
}

extension Partition {
    /// Writes a `meta` row on bucket 0's partition; calls `done` when it is durable, or `failed` if the partition closes first.
    func putMeta(
        high: UInt64, low: UInt64, item: UInt64, _ value: [UInt8], done: @escaping () -> Void,
        failed: @escaping () -> Void = {}
    ) {
        let bucket = Bucket(0)
        precondition(number == 0, "meta rows belong to bucket 0")
        guard isServing else { return failed() }
        store.beginBatch(bucket)
        store.put(
            StoreKey(bucket, .meta, ownerHigh: high, ownerLow: low, item: item), wakeAt: 0, prior: .maybe(wakeAt: 0),
            byteCount: value.count
        ) { $0.copyBytes(from: value) }
        metaWaiters.append(MetaWaiter(ticket: store.endBatch(), done: done, failed: failed))
    }

    func deleteMeta(high: UInt64, low: UInt64, item: UInt64) {
        guard isServing else { return }
        store.beginBatch(Bucket(0))
        store.delete(
            StoreKey(Bucket(0), .meta, ownerHigh: high, ownerLow: low, item: item), prior: .maybe(wakeAt: 0))
        metaWaiters.append(MetaWaiter(ticket: store.endBatch(), done: {}))
    }

    /// Runs `done` when all earlier writes to `meta` are durable.
    func afterMeta(_ done: @escaping () -> Void, failed: @escaping () -> Void) {
        guard isServing else { return failed() }
        guard let last = metaWaiters.last else { return done() }
        metaWaiters.append(MetaWaiter(ticket: last.ticket, done: done, failed: failed))
    }
}
