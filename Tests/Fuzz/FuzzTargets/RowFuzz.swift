internal import Delivery
internal import Gateway
internal import LongwireClient
internal import Wire

/// Stored rows of a damaged or foreign store, and the client's state file: rereading written rows yields the same rows.
///
/// Input: a byte for the kind, then the row.
enum RowFuzz {
    static func run(_ input: [UInt8]) throws {
        guard let first = input.first else { return }
        // A separate allocation lets AddressSanitizer detect a read past the row.
        let row = Array(input.dropFirst())
        switch first % 9 {
        case 0: try message(row)
        case 1: try stable(row, "job", jobBytes)
        case 2: try stable(row, "device", deviceBytes)
        case 3: try stable(row, "counters", countersBytes)
        case 4: try stable(row, "request", requestBytes)
        case 5: try trace(row)
        case 6: try stable(row, "late event", lateEventBytes)
        case 7: try meta(row)
        default: try clientState(row)
        }
    }

    /// Reads and writes twice; the second write must reproduce the first.
    private static func stable(
        _ row: [UInt8], _ name: String, _ rewrite: (UnsafeRawBufferPointer) throws -> [UInt8]?
    ) throws {
        guard let once = try row.withUnsafeBytes(rewrite) else { return }
        guard let twice = try once.withUnsafeBytes(rewrite) else {
            throw FuzzFailure(description: "a written \(name) row cannot be read")
        }
        try require(once == twice, "a \(name) row changes when it is written")
    }

    private static func filled(
        _ count: Int, _ write: (UnsafeMutableRawBufferPointer) throws -> Void
    ) rethrows -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        try bytes.withUnsafeMutableBytes(write)
        return bytes
    }

    private static func message(_ bytes: [UInt8]) throws {
        try bytes.withUnsafeBytes { bytes in
            guard let row = MessageRow(bytes) else { return }
            let vendor = row.vendor
            let parts = [row.payload, row.collapseKey, row.alertTitle, row.alertBody]
            let total = parts.reduce(0) { $0 + $1.count } + (vendor.map { $0.body.count + $0.collapseID.count } ?? 0)
            try require(total <= bytes.count - 43, "parts beyond the row")
            try require(row.messageID.bucket != nil, "a message of no bucket")
            for part in parts { _ = part.reduce(0, &+) }
            _ = (row.taskID, row.acceptedAt, row.expiresAt, row.app, row.strategy)
            guard let vendor else { return }
            let body = Shard.rendered(vendor, message: row.messageID, badge: .min)
            try require(body.count <= vendor.body.count + 11, "a body grows beyond its badge")
        }
    }

    private static func jobBytes(_ bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        guard let row = JobRow(bytes) else { return nil }
        _ = row.wakeAt
        return filled(row.byteCount) { row.write(into: $0) }
    }

    private static func deviceBytes(_ bytes: UnsafeRawBufferPointer) throws -> [UInt8]? {
        guard let (row, profileBytes) = DeviceRow.read(bytes) else { return nil }
        guard let profile = DeviceProfile(profileBytes) else {
            throw FuzzFailure(description: "a device row with a profile that cannot be read")
        }
        let inner = try filled(profile.byteCount) {
            var writer = RowWriter($0)
            profile.write(&writer)
            try require(writer.offset == profile.byteCount, "a profile miscounts its size")
        }
        return inner.withUnsafeBytes { inner in
            filled(DeviceRow.headerByteCount + inner.count) { row.write(profile: inner, into: $0) }
        }
    }

    private static func countersBytes(_ bytes: UnsafeRawBufferPointer) throws -> [UInt8]? {
        guard let row = CountersRow(bytes) else { return nil }
        _ = row.ended
        let written = filled(CountersRow.byteCount) { row.write(into: $0) }
        try require(written.withUnsafeBytes { CountersRow($0) } == row, "counters change")
        return written
    }

    private static func requestBytes(_ bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        let key = StoreKey(Bucket(9), .request, ownerHigh: 9 << 20 | 7, ownerLow: 3)
        if let row = PushRow(bytes, under: key) {
            return filled(row.byteCount(under: key)) { row.write(under: key, into: $0) }
        }
        guard let (outcome, digest) = RequestRow.read(bytes) else { return nil }
        return filled(RequestRow.byteCount) { RequestRow.write(outcome, digest: digest, into: $0) }
    }

    private static func trace(_ bytes: [UInt8]) throws {
        let message = MessageID(bucket: Bucket(9), acceptedAt: 1_795_000_000_000, digest: 3)
        guard let row = bytes.withUnsafeBytes({ TraceRow($0, of: message) }) else { return }
        try require(row.steps.count <= bytes.count, "more steps than bytes")
        try require(row.reason.utf8.count <= 255 * 3, "a reason beyond its length")
    }

    private static func lateEventBytes(_ bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        let steps = LateEventRow.read(bytes)
        return steps.isEmpty ? nil : filled(LateEventRow.byteCount(steps)) { LateEventRow.write(steps, into: $0) }
    }

    /// Input: kind, owner and item, then the value.
    private static func meta(_ bytes: [UInt8]) throws {
        var script = Script(bytes)
        var rows = MetaRows()
        let key = StoreKey(
            Bucket(0), .meta, ownerHigh: UInt64(script.choice(9)), ownerLow: script.word(), item: script.word())
        let value = script.rest()
        value.withUnsafeBytes { rows.take(StoredRow(key: key, wakeAt: 0, value: $0)) }
        if let clock = rows.clock { try require(ClockRecord(bytes: clock.bytes) == clock, "the clock changes") }
        try require(rows.tokenKey.count <= value.count && rows.revoked.count <= 1, "more than was stored")
    }

    private static func clientState(_ bytes: [UInt8]) throws {
        do throws(LongwireClientError) {
            let state = try ClientState(serialized: bytes)
            let again: ClientState
            do { again = try ClientState(serialized: state.serialized) } catch {
                throw LongwireClientError(code: .badConfiguration, message: "a written state cannot be read")
            }
            guard again == state || !state.isRegistered else {
                throw LongwireClientError(code: .badConfiguration, message: "a state changes when it is written")
            }
        } catch {
            try require(error.code == .stateDamaged && !error.message.isEmpty, error.message)
        }
    }
}
