internal import Delivery
internal import MessageStore
internal import Wire

struct StoreCheck {
    typealias Damage = StoreInspection.Damage

    struct Table {
        var rowCount = 0
        var byteCount = 0
    }

    struct Queue {
        var messageCount = 0
        var byteCount = 0
        /// The acceptance time of the oldest message, in gateway time.
        var oldest = GatewayTime.max
    }

    /// The maximum of damages kept; further ones are only counted.
    static let keptDamageCount = 1_000

    private(set) var tables: [StoreKey.Table: Table] = [:]
    private(set) var queues: [UInt64: Queue] = [:]
    private(set) var damages: [Damage] = []
    private(set) var damageCount = 0
    private(set) var staleAlarmCount = 0
    private(set) var log: StoreInspection.Log
    private(set) var format: Int

    /// Checks a store.
    ///
    /// - Parameters:
    ///   - inspection: the store.
    ///   - report: receives the number of checked buckets, once per 512.
    init(_ inspection: StoreInspection, report: (Int) -> Void = { _ in }) {
        (log, format) = (inspection.log, inspection.format)
        for damage in inspection.damages { note(damage) }
        for bucket in 0..<UInt16(Bucket.count) {
            var found: [Damage] = []
            let rows = inspection.rows(of: bucket) { found.append($0) }
            for damage in found { note(damage) }
            judge(rows)
            if bucket % 512 == 511 { report(Int(bucket) + 1) }
        }
        staleAlarmCount = inspection.staleAlarmCount
    }

    private mutating func note(_ damage: Damage) {
        damageCount += 1
        if damages.count < Self.keptDamageCount { damages.append(damage) }
    }

    /// Checks the rows of one bucket; all rows of a device are in one bucket.
    private mutating func judge(_ rows: [StoreInspection.Row]) {
        let keys = Set(rows.map(\.key))
        var devices: [StoreKey: UInt64] = [:]
        for row in rows where row.key.table == .device {
            let device = row.value.withUnsafeBytes { RowInspection.device($0) }
            if let device { devices[row.key] = device.reservedSequence }
        }
        for row in rows {
            tables[row.key.table, default: Table()].rowCount += 1
            tables[row.key.table, default: Table()].byteCount += row.value.count
            guard row.value.withUnsafeBytes({ RowInspection.isReadable(row.key, $0) }) else {
                note(Damage(.row, Self.name(row.key), "its \(row.value.count) bytes are no row of this table"))
                continue
            }
            switch row.key.table {
            case .message, .vendorMessage: judgeMessage(row, devices, keys)
            case .job:
                let message = row.value.withUnsafeBytes { RowInspection.messageKey(ofJob: $0) }
                if let message, !keys.contains(message) {
                    note(Damage(.queue, Self.name(row.key), "its message, \(Self.name(message)), is not there"))
                }
                if row.lacksAlarm { noteAlarm(row.key) }
            default: if row.lacksAlarm { noteAlarm(row.key) }
            }
        }
    }

    private mutating func judgeMessage(
        _ row: StoreInspection.Row, _ devices: [StoreKey: UInt64], _ keys: Set<StoreKey>
    ) {
        let (facts, waiting) = row.value.withUnsafeBytes {
            (RowInspection.message($0), RowInspection.waiting(row.key, $0))
        }
        guard let facts, let waiting else { return }
        var queue = queues[waiting.app.word] ?? Queue()
        queue.messageCount += 1
        queue.byteCount += row.value.count
        queue.oldest = min(queue.oldest, facts.acceptedAt)
        queues[waiting.app.word] = queue
        // If the message has a row for its job, that row has the alarm instead.
        if row.lacksAlarm, !keys.contains(waiting.job) { noteAlarm(row.key) }
        let device = StoreKey(row.key.bucket, .device, ownerHigh: row.key.ownerHigh, ownerLow: row.key.ownerLow)
        guard keys.contains(device) else {
            return note(Damage(.queue, Self.name(row.key), "its device has no row"))
        }
        if row.key.table == .message, let reserved = devices[device], row.key.item > reserved {
            note(
                Damage(
                    .queue, Self.name(row.key),
                    "its sequence is \(row.key.item), and the device's row has given up to \(reserved)"))
        }
    }

    private mutating func noteAlarm(_ key: StoreKey) {
        note(Damage(.alarm, Self.name(key), "the index of alarms has no entry for it"))
    }

    private static func name(_ key: StoreKey) -> String {
        let owner = hex(key.ownerHigh) + hex(key.ownerLow)
        let whose = key.table == .device || key.table == .message || key.table == .vendorMessage ? "cid" : "owner"
        let item = key.table.hasItems ? ", item \(key.item)" : ""
        return "table \(key.table), bucket \(key.bucket.index), \(whose) \(owner)\(item)"
    }

    static func hex(_ word: UInt64) -> String {
        let digits = String(word, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}

extension StoreInspection.Damage.Kind {
    var meaning: String {
        switch self {
        case .format: "the store cannot be used in this state"
        case .journal: "messages that were accepted in the last minutes may be lost; a gateway does not start on it"
        case .database: "rows of this place cannot be read; devices with such rows are refused and retry later"
        case .row: "the gateway passes over this row, as if it were not there"
        case .alarm: "a deadline of this row is not kept: an expiry or a vendor fallback comes late or never"
        case .queue: "this message is not delivered, or its state stays open"
        }
    }

    var advice: String {
        switch self {
        case .format: "do what the line says"
        case .journal: "restore a backup, or move the folder journal away to start without its messages"
        case .database: "look at the system's log for the disk, then restore a backup"
        case .row, .alarm, .queue: "keep a copy of the folder for a report; restore a backup if there are many"
        }
    }
}
