// A request on its way to a reader thread and back. It belongs to one thread at a time: the loop fills in what to read,
// a reader adds what the disk has, the loop merges young rows over it, and the reply keeps it for its bytes' sake.

internal import Delivery

/// A row as the disk has it.
struct ColdRow {
    var key: StoreKey
    var wakeAt: Int64
    var value: UnsafeRawBufferPointer
}

/// A bucket whose alarms are wanted, and what came of it.
struct AlarmScan {
    /// Its place among the shard's buckets.
    var place: Int
    var bucket: UInt16
    /// The last alarm looked at; of a group, the first one to look at.
    var cursor: Alarm?
    /// Of a group: the last alarm to look at.
    var bound: Alarm?
    /// Only the first alarm is asked for, and no row.
    var isFirstLook: Bool
    /// The first one behind `cursor`; of a group, when to look at `rest`.
    var nextAlarm = Int64.max
    /// The alarm at which the next read of the group continues.
    var rest: Alarm?
    /// Of a group: the first alarm that was looked at and left, when the earliest of them is to be looked at again, how many.
    var left: (first: Alarm, until: Int64, count: Int)?
    var wasRead = false
    /// Not readable now: the pause in milliseconds before it is asked for again.
    var aside: Int64?

    var isOpen: Bool { !wasRead && aside == nil }
}

/// An entry of the alarm family that no row needs.
struct StaleAlarm {
    var alarm: Alarm
    /// The row that has taken the alarm over; `nil`: the alarm's row is gone or has another one.
    var successor: StoreKey?
}

final class ReadOperation: @unchecked Sendable {
    // Sound because it is handed from thread to thread through locked queues and used by one at a time.

    struct Part {
        var request: StoreRead
        var rows: [ColdRow] = []
        /// Nothing more on the disk: the partition ended, or memory knew the answer.
        var isComplete = false
    }

    struct AlarmWork {
        let request: AlarmRequest
        var scans: [AlarmScan]
        /// Alarms that became cold behind their bucket's cursor.
        var late: [Alarm]
        var stale: [StaleAlarm] = []
        var rows: [ColdRow] = []
        /// Due, and left to a group.
        var left: [(alarm: Alarm, group: AlarmGroup, until: Int64)] = []
        /// Due again at another time than the row's: at the end of a message whose job's row cannot be read.
        var postponed: [(alarm: Alarm, until: Int64)] = []
        /// Of `late`, not readable now, each with the pause in milliseconds before it is looked at again.
        var lateAside: [(alarm: Alarm, pause: Int64)] = []
        /// Alarms looked at.
        var count = 0
        /// Which of `scans` is being read.
        var underWay: Int?

        var hasRoom: Bool { rows.count < request.limit && count < Limits.alarmsPerRead }
    }

    let token: ReadToken
    let epoch: UInt64
    let mailbox: ShardMailbox
    var parts: [Part]
    var alarms: AlarmWork?
    var failure: String?
    /// Engines that ask servers: which of `parts` no server was asked for since the loop handed them over, and until when
    /// a server is waited for, in the network's milliseconds.
    var unread: [Int] = []
    var deadline: UInt64 = .max
    /// A stepped engine has tried it once.
    var hasBegun = false
    private var buffers: [UnsafeMutableRawBufferPointer] = []
    private var bufferUsed = 0

    init(token: ReadToken, epoch: UInt64, mailbox: ShardMailbox, parts: [Part], alarms: AlarmWork? = nil) {
        (self.token, self.epoch, self.mailbox) = (token, epoch, mailbox)
        (self.parts, self.alarms) = (parts, alarms)
    }

    deinit { for buffer in buffers { buffer.deallocate() } }

    /// Keeps a copy of `bytes` until the operation is released.
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
