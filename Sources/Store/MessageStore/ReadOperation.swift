// A read that travels to a reader thread and back. One thread at a time owns it. The loop fills in the request, a reader adds
// rows from disk, and the loop merges young rows. The reply keeps the operation alive because it owns the bytes.

internal import Delivery

struct ColdRow {
    var key: StoreKey
    var wakeAt: Int64
    var value: UnsafeRawBufferPointer
}

struct AlarmScan {
    /// The bucket's index among the shard's buckets.
    var place: Int
    var bucket: UInt16
    /// The last alarm that was read; for a group: the first alarm to read.
    var cursor: Alarm?
    /// For a group: the last alarm to read.
    var bound: Alarm?
    /// Whether only the time of the first alarm is requested, without rows.
    var isFirstLook: Bool
    /// The time of the first alarm behind `cursor`; for a group: the time at which to read `rest`.
    var nextAlarm = Int64.max
    /// The alarm at which the next read of the group continues.
    var rest: Alarm?
    /// For a group: the first alarm that was left, the earliest time to read one of them again, and their number.
    var left: (first: Alarm, until: Int64, count: Int)?
    var wasRead = false
    /// The pause in milliseconds before an unreadable bucket is read again.
    var aside: Int64?

    var isOpen: Bool { !wasRead && aside == nil }
}

/// An entry of the alarm index that no row needs.
struct StaleAlarm {
    var alarm: Alarm
    /// The row that took over the alarm; `nil` if the alarm's row is deleted or has another alarm.
    var successor: StoreKey?
}

final class ReadOperation: @unchecked Sendable {
    // Sound because it is passed between threads through locked queues and used by one thread at a time.

    struct Part {
        var request: StoreRead
        var rows: [ColdRow] = []
        /// Whether no more rows have to be read: the disk has none left, or memory has the row.
        var isComplete = false
    }

    struct AlarmWork {
        let request: AlarmRequest
        var scans: [AlarmScan]
        /// Alarms that sort before their bucket's cursor, because their rows became cold after the cursor had passed.
        var late: [Alarm]
        var stale: [StaleAlarm] = []
        var rows: [ColdRow] = []
        /// Due alarms that were left to a group.
        var left: [(alarm: Alarm, group: AlarmGroup, until: Int64)] = []
        /// Alarms postponed to the end of their message, because the message's job row cannot be read.
        var postponed: [(alarm: Alarm, until: Int64)] = []
        /// Unreadable alarms of `late`, each with the pause in milliseconds before the next read.
        var lateAside: [(alarm: Alarm, pause: Int64)] = []
        var count = 0
        var underWay: Int?

        var hasRoom: Bool { rows.count < request.limit && count < Limits.alarmsPerRead }
    }

    let token: ReadToken
    let epoch: UInt64
    let mailbox: ShardMailbox
    var parts: [Part]
    var alarms: AlarmWork?
    var failure: String?
    /// For engines that read from servers: the indexes of `parts` not requested yet, and the reply deadline in the network's
    /// milliseconds.
    var unread: [Int] = []
    var deadline: UInt64 = .max
    /// Whether an engine without threads (`isStepped`) has tried the operation once; its deadline counts from then on.
    var hasBegun = false
    private var buffers: [UnsafeMutableRawBufferPointer] = []
    private var bufferUsed = 0

    init(token: ReadToken, epoch: UInt64, mailbox: ShardMailbox, parts: [Part], alarms: AlarmWork? = nil) {
        (self.token, self.epoch, self.mailbox) = (token, epoch, mailbox)
        (self.parts, self.alarms) = (parts, alarms)
    }

    deinit { for buffer in buffers { buffer.deallocate() } }

    /// Copies `bytes` to memory that is freed with the operation.
    func keep(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        guard !bytes.isEmpty else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        if buffers.last.map({ $0.count - bufferUsed < bytes.count }) ?? true {
            buffers.append(.allocate(byteCount: max(bytes.count, buffers.isEmpty ? 1024 : 16 << 10), alignment: 8))
            bufferUsed = 0
        }
        guard let buffer = buffers.last else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        let copy = UnsafeMutableRawBufferPointer(rebasing: buffer[bufferUsed..<bufferUsed + bytes.count])
        copy.copyMemory(from: bytes)
        bufferUsed = min((bufferUsed + bytes.count + 7) & ~7, buffer.count)
        return UnsafeRawBufferPointer(copy)
    }
}
