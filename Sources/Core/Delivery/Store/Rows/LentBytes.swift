// Rows and texts as bytes. Only this folder uses pointers; the shard's rules pass bytes on and read rows.

internal import Structures
internal import Wire

/// Borrowed bytes: a row's value, a text or a frame.
///
/// `@safe`: only the code of this folder reads through the pointer, and that code checks lengths. A store's bytes stay valid
/// until the next call into the shard. A reply's bytes stay valid while the reply exists, a device's bytes until its profile is
/// replaced.
@safe struct LentBytes {
    let pointer: UnsafeRawBufferPointer

    @inline(__always) init(_ pointer: UnsafeRawBufferPointer) { unsafe self.pointer = pointer }

    static var none: LentBytes { unsafe LentBytes(UnsafeRawBufferPointer(start: nil, count: 0)) }

    var count: Int { unsafe pointer.count }
    var array: [UInt8] { unsafe Array(pointer) }
    func prefix(_ count: Int) -> [UInt8] { unsafe Array(pointer.prefix(count)) }
    var text: String { unsafe String(decoding: pointer, as: UTF8.self) }
}

/// An allocation whose address is stable while this object exists.
///
/// `@safe`: the initializer fills the bytes once, and only `LentBytes` refer to them.
@safe final class KeptBytes {
    private let room: UnsafeMutableRawBufferPointer

    init(byteCount: Int, _ fill: (UnsafeMutableRawBufferPointer) -> Void) {
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, byteCount), alignment: 8)
        unsafe room = UnsafeMutableRawBufferPointer(rebasing: memory[..<byteCount])
        unsafe fill(room)
    }

    convenience init(_ bytes: [UInt8]) {
        unsafe self.init(byteCount: bytes.count) { unsafe $0.copyBytes(from: bytes) }
    }

    convenience init(byteCount: Int, _ texts: MessageRow.Texts, _ facts: MessageFacts) {
        unsafe self.init(byteCount: byteCount) { unsafe MessageRow.write(texts, facts: facts, into: $0) }
    }

    var bytes: LentBytes { unsafe LentBytes(UnsafeRawBufferPointer(room)) }

    deinit { unsafe room.deallocate() }
}

// MARK: Reading

extension StoredRow {
    var bytes: LentBytes { @inline(__always) get { unsafe LentBytes(value) } }
}

extension ShardStore {
    @inline(__always)
    func bytes(at location: ValueLocation) -> LentBytes { unsafe LentBytes(value(at: location)) }
}

extension StoreRead {
    static func search(_ bucket: Bucket, table: StoreKey.Table, _ message: MessageID) -> StoreRead {
        unsafe .search(bucket: bucket, table: table) { unsafe MessageRow($0)?.messageID == message }
    }

    static func traces(of cid: DeviceID, in bucket: Bucket, limit: Int) -> StoreRead {
        // The table also contains late events, whose keys have a number in the id's top bits.
        unsafe .traces(bucket: bucket, limit: limit) { key, bytes in
            guard MessageID(high: key.ownerHigh, low: key.ownerLow).bucket != nil else { return false }
            return unsafe TraceRow.device(of: bytes) == cid
        }
    }
}

protocol RowOfBytes {
    /// - Returns: `nil` unless the bytes are a row of this type and of a known version.
    init?(_ bytes: UnsafeRawBufferPointer)
}

extension RowOfBytes {
    @inline(__always) init?(_ bytes: LentBytes) { unsafe self.init(bytes.pointer) }
}

extension MessageRow: RowOfBytes {
    var lent: LentBytes { unsafe LentBytes(bytes) }
    var collapseHash: UInt64 { unsafe collapseKey.isEmpty ? 0 : Fingerprint.of(collapseKey) }
}

extension JobRow: RowOfBytes {}
extension LedgerRow: RowOfBytes {}
extension TaskEventRow: RowOfBytes {}
extension AliasRow: RowOfBytes {}
extension CountersRow: RowOfBytes {}
extension UpstreamRow: RowOfBytes {}
extension DeviceProfile: RowOfBytes {}

extension TraceRow {
    init?(_ bytes: LentBytes, of message: MessageID) { unsafe self.init(bytes.pointer, of: message) }
}

extension PushRow {
    init?(_ bytes: LentBytes, under key: StoreKey) { unsafe self.init(bytes.pointer, under: key) }
}

extension RequestRow {
    static func read(_ bytes: LentBytes) -> (outcome: PublishOutcome, digest: UInt64)? { unsafe read(bytes.pointer) }
}

extension TaskRow {
    static func read(_ bytes: LentBytes) -> TaskRecord? { unsafe read(bytes.pointer) }
}

extension TargetsRow {
    static func read(_ bytes: LentBytes) -> [DeviceID]? { unsafe read(bytes.pointer) }
}

extension CallRow {
    static func read(_ bytes: LentBytes) -> (digest: UInt64, task: TaskID, targets: [DeviceID])? {
        unsafe read(bytes.pointer)
    }

    static func readAnswer(_ bytes: LentBytes) -> [PublishOutcome]? { unsafe readAnswer(bytes.pointer) }
}

extension FeedHeadRow {
    static func read(_ bytes: LentBytes) -> (state: FeedState, first: UInt64)? { unsafe read(bytes.pointer) }
}

extension FeedRow {
    static func read(_ bytes: LentBytes) -> [FeedItem]? { unsafe read(bytes.pointer) }
    static func glance(_ bytes: LentBytes) -> (count: Int, at: GatewayTime)? { unsafe glance(bytes.pointer) }
}

extension LateEventRow {
    static func read(_ bytes: LentBytes) -> [MessageTrace.Step] { unsafe read(bytes.pointer) }
}

extension CallbackRow {
    static func read(_ bytes: LentBytes) -> [UInt8]? { unsafe read(bytes.pointer) }
}

extension AttributesRow {
    static func read(_ bytes: LentBytes) -> DeviceAttributes? { unsafe read(bytes.pointer) }
}

extension DeviceRow {
    static func read(_ bytes: LentBytes) -> (row: DeviceRow, profile: LentBytes)? {
        unsafe read(bytes.pointer).map { unsafe ($0.row, LentBytes($0.profile)) }
    }
}

extension RowReader {
    init(_ bytes: LentBytes) { unsafe self.init(bytes.pointer) }
}

// MARK: Writing

/// The memory that the store provides for one row.
///
/// `@safe`: a row's writer fills exactly the announced `byteCount`.
@safe struct RowBuffer {
    fileprivate let pointer: UnsafeMutableRawBufferPointer

    @inline(__always) fileprivate init(_ pointer: UnsafeMutableRawBufferPointer) { unsafe self.pointer = pointer }
}

extension ShardStore {
    /// Adds a row to the open batch; `write` fills all `byteCount` bytes.
    @discardableResult @inline(__always)
    func putRow(
        _ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, _ write: (RowBuffer) -> Void
    ) -> ValueLocation {
        unsafe put(key, wakeAt: wakeAt, prior: prior, byteCount: byteCount) { unsafe write(RowBuffer($0)) }
    }

    // These functions use one closure per row instead of the two of `putRow`, for speed: every message writes such rows.

    @inline(__always)
    func putMessage(_ command: PublishCommand, _ facts: MessageFacts, _ byteCount: Int) -> ValueLocation {
        unsafe put(facts.key, wakeAt: facts.wakeAt, prior: .none, byteCount: byteCount) {
            unsafe MessageRow.write(MessageRow.Texts(command), facts: facts, into: $0)
        }
    }

    @inline(__always)
    func putPush(_ row: PushRow, under key: StoreKey) {
        unsafe put(key, wakeAt: 0, prior: .none, byteCount: row.byteCount(under: key)) {
            unsafe row.write(under: key, into: $0)
        }
    }

    @inline(__always)
    func putTrace(
        _ key: StoreKey, _ byteCount: Int, _ facts: MessageFacts, finalState: FinalState, isOffline: Bool,
        sentAt: GatewayTime, endedAt: GatewayTime, job: JobRow?, reason: String
    ) {
        unsafe put(key, wakeAt: 0, prior: .none, byteCount: byteCount) {
            unsafe TraceRow.write(
                facts, finalState: finalState, isOffline: isOffline, sentAt: sentAt, endedAt: endedAt, job: job,
                reason: reason, into: $0)
        }
    }

    @inline(__always)
    func addCounts(_ key: StoreKey, _ change: CounterChange, to row: Place<CountersRow>) {
        unsafe add(key, change) { unsafe row.value.write(into: $0) }
    }
}

extension RowWriter {
    @inline(__always) init(_ room: RowBuffer) { unsafe self.init(room.pointer) }
}

protocol WritableRow {
    func write(into bytes: UnsafeMutableRawBufferPointer)
}

extension WritableRow {
    @inline(__always) func write(into room: RowBuffer) { unsafe write(into: room.pointer) }
}

extension JobRow: WritableRow {}
extension LedgerRow: WritableRow {}
extension TaskEventRow: WritableRow {}
extension AliasRow: WritableRow {}
extension CountersRow: WritableRow {}
extension UpstreamRow: WritableRow {}

extension MessageRow {
    @inline(__always)
    static func write(_ texts: borrowing Texts, facts: MessageFacts, into room: RowBuffer) {
        unsafe write(texts, facts: facts, into: room.pointer)
    }
}

extension TaskRow {
    static func write(_ record: TaskRecord, into room: RowBuffer) { unsafe write(record, into: room.pointer) }
}

extension TargetsRow {
    static func write(_ targets: [DeviceID], into room: RowBuffer) { unsafe write(targets, into: room.pointer) }
}

extension CallRow {
    static func write(digest: UInt64, task: TaskID, targets: [DeviceID], into room: RowBuffer) {
        unsafe write(digest: digest, task: task, targets: targets, into: room.pointer)
    }

    static func writeAnswer(_ outcomes: [PublishOutcome], digest: UInt64, into room: RowBuffer) {
        unsafe writeAnswer(outcomes, digest: digest, into: room.pointer)
    }
}

extension FeedHeadRow {
    static func write(_ state: FeedState, first: UInt64, into room: RowBuffer) {
        unsafe write(state, first: first, into: room.pointer)
    }
}

extension FeedRow {
    static func write(_ items: ArraySlice<FeedItem>, into room: RowBuffer) { unsafe write(items, into: room.pointer) }
}

extension CallbackRow {
    static func write(_ text: [UInt8], into room: RowBuffer) { unsafe write(text, into: room.pointer) }
}

extension AttributesRow {
    static func write(_ attributes: DeviceAttributes, into room: RowBuffer) {
        unsafe write(attributes, into: room.pointer)
    }

    static func digest(_ attributes: DeviceAttributes) -> UInt64 {
        let byteCount = byteCount(attributes)
        return unsafe withUnsafeTemporaryAllocation(byteCount: byteCount, alignment: 1) { buffer in
            unsafe write(attributes, into: buffer)
            return unsafe Fingerprint.of(buffer)
        }
    }
}

extension LateEventRow {
    static func write(_ steps: [MessageTrace.Step], into room: RowBuffer) { unsafe write(steps, into: room.pointer) }
}

extension DeviceRow {
    @inline(__always)
    func write(profile: LentBytes, into room: RowBuffer) {
        unsafe write(profile: profile.pointer, into: room.pointer)
    }
}

extension Device {
    /// The profile's bytes, valid until the profile is replaced.
    var profileBytes: LentBytes {
        guard let profilePlace else { return .none }
        return unsafe LentBytes(ByteCells.bytes(profilePlace, isCell: flags.contains(.profileInCell)))
    }
}

extension ByteCells {
    mutating func put(_ bytes: LentBytes) -> (place: Place, isCell: Bool) { unsafe put(bytes.pointer) }
}

extension DeviceProfile {
    func withBytes(_ body: (LentBytes) -> Void) {
        unsafe withUnsafeTemporaryAllocation(byteCount: byteCount, alignment: 1) { buffer in
            var writer = unsafe RowWriter(buffer)
            write(&writer)
            unsafe body(LentBytes(UnsafeRawBufferPointer(rebasing: buffer[..<writer.offset])))
        }
    }
}

// MARK: Effects

extension DeliverEffect {
    @inline(__always)
    init(row: LentBytes, sequence: UInt64, isOffline: Bool, alertedAt: GatewayTime, attempt: UInt32) {
        unsafe self.init(
            row: row.pointer, sequence: sequence, isOffline: isOffline, alertedAt: alertedAt, attempt: attempt)
    }
}

extension BroadcastEffect {
    init(frame: LentFrame, message: MessageID) {
        unsafe self.init(frame: frame.bytes.pointer, messageIDOffset: frame.messageIDOffset, message: message)
    }
}
