internal import CLibevent
internal import Cryptography
internal import Platform

/// What one open stream needs; lies in the slab, 224 bytes with libevent's event.
struct StreamSlot {
    typealias Pointer = UnsafeMutablePointer<StreamSlot>

    struct Flags: OptionSet {
        let rawValue: UInt16
        /// The socket took no more; the next edge says when it does.
        static let isBlocked = Flags(rawValue: 1)
        static let isPaused = Flags(rawValue: 1 << 1)
        static let isHandshaking = Flags(rawValue: 1 << 3)
        static let isDirty = Flags(rawValue: 1 << 4)
        /// In the list of streams that must read again.
        static let isReadingAgain = Flags(rawValue: 1 << 5)
        /// Takes no more output and ignores input; flushes, then ends.
        static let isClosing = Flags(rawValue: 1 << 6)
        /// Our half is shut; waiting for the peer's end.
        static let isShut = Flags(rawValue: 1 << 7)
        /// The kernel saw the peer's end; a short read is not the last one.
        static let hasPeerEnd = Flags(rawValue: 1 << 8)
        /// The delegate knows that the outbox was full.
        static let hasToldSlow = Flags(rawValue: 1 << 9)
        /// Received bytes were held back and must be shown again, without new ones.
        static let mustRedeliver = Flags(rawValue: 1 << 10)
        static let isInWheel = Flags(rawValue: 1 << 11)
        /// Something may have come while reading was paused, and no further edge will tell.
        static let hasMissedEdge = Flags(rawValue: 1 << 12)
        /// Something was refused or had to wait, so the delegate wants to hear when the outbox is empty.
        static let owesDrained = Flags(rawValue: 1 << 2)
    }

    var event = CLibevent.event()
    var descriptor: CInt = -1
    var flags: Flags = []
    var bucket: UInt16 = 0
    /// In ticks of the wheel; 0 for none.
    var deadline: UInt32 = 0
    /// The slot's own number, and its neighbours' in the wheel; `StreamTable.none` for none.
    var number: UInt32 = StreamTable.none
    var nextInBucket: UInt32 = StreamTable.none
    var previousInBucket: UInt32 = StreamTable.none
    var outbox = Outbox(byteLimit: 0)
    var unconsumed: Block.Pointer?
    var tls: TLSSession?
    var delegate: StreamDelegate?
    /// What the delegate will want to have at hand when something comes.
    var hint: UnsafeRawPointer?
    /// `nil` for a free slot.
    var table: UnsafeMutablePointer<StreamTable>?
    /// Counts the slot's occupants: a handle of an earlier one finds that its stream is over.
    var serial: UInt32 = 0
}

/// All streams of one loop: their slots, their timeouts, their blocks and their lists of work.
///
/// Every static function takes the loop, so that no `inout` access is open while a delegate runs.
struct StreamTable {
    static let none = UInt32.max

    struct Ending {
        let stream: ByteStream
        let delegate: StreamDelegate?
        let reason: CloseReason
    }

    /// Its owner; not counted, since each use would count twice.
    unowned(unsafe) let loop: EventLoop
    var pool = BlockPool()
    /// Slots with something to send; one that has changed hands meanwhile is not marked as dirty, or stands here twice.
    var dirty: [StreamSlot.Pointer] = []
    var readAgain: [ByteStream] = []
    var slow: [ByteStream] = []
    var drained: [ByteStream] = []
    var endings: [Ending] = []
    private(set) var openCount = 0
    /// Where every stream receives: room for what was unconsumed, then room for what is new.
    let scratch: UnsafeMutableRawPointer

    private var chunks: [StreamSlot.Pointer] = []
    private var freeSlots: [UInt32] = []
    private var buckets: [UInt32]
    private var currentTick: UInt32 = 1
    private let startedAt: UInt64

    init(of loop: EventLoop, now: UInt64) {
        self.loop = loop
        startedAt = now
        buckets = Array(repeating: Self.none, count: Limits.wheelBucketCount)
        scratch = .allocate(byteCount: Limits.unconsumedByteCount + Limits.receiveByteCount, alignment: 64)
    }

    mutating func deallocate() {
        precondition(openCount == 0, "an event loop died with open streams; stop it first")
        for chunk in chunks {
            chunk.deinitialize(count: Limits.slabSlotCount)
            chunk.deallocate()
        }
        chunks = []
        pool.deallocate()
        scratch.deallocate()
    }

    // MARK: Slots

    func slot(_ number: UInt32) -> StreamSlot.Pointer {
        chunks[Int(number) / Limits.slabSlotCount] + Int(number) % Limits.slabSlotCount
    }

    mutating func takeSlot() -> StreamSlot.Pointer {
        if freeSlots.isEmpty {
            let chunk = StreamSlot.Pointer.allocate(capacity: Limits.slabSlotCount)
            chunk.initialize(repeating: StreamSlot(), count: Limits.slabSlotCount)
            let first = UInt32(chunks.count * Limits.slabSlotCount)
            chunks.append(chunk)
            // In reverse, so that low slots are used first and lie together.
            for offset in (0..<UInt32(Limits.slabSlotCount)).reversed() {
                chunk[Int(offset)].number = first + offset
                freeSlots.append(first + offset)
            }
        }
        openCount += 1
        return slot(freeSlots.removeLast())
    }

    mutating func putSlot(_ slot: StreamSlot.Pointer) {
        let (number, serial) = (slot.pointee.number, slot.pointee.serial)
        slot.pointee = StreamSlot()
        (slot.pointee.number, slot.pointee.serial) = (number, serial &+ 1)
        freeSlots.append(number)
        openCount -= 1
    }

    // MARK: Timeouts

    /// The tick of a moment, rounded up; never 0.
    private func tick(at milliseconds: UInt64) -> UInt32 {
        let since = milliseconds > startedAt ? milliseconds - startedAt : 0
        return UInt32(truncatingIfNeeded: since / Limits.tickMilliseconds + 1)
    }

    /// Sets the one deadline of a slot, in constant time; a later one only changes the number: the old bucket finds out.
    mutating func setDeadline(_ slot: StreamSlot.Pointer, at milliseconds: UInt64) {
        let new = max(tick(at: milliseconds), currentTick + 1)
        let isLater = slot.pointee.flags.contains(.isInWheel) && new >= slot.pointee.deadline
        // An entry of an earlier rotation is looked at in its bucket once a rotation, and moved there.
        slot.pointee.deadline = new
        if isLater { return }
        unlink(slot)
        link(slot)
    }

    mutating func clearDeadline(_ slot: StreamSlot.Pointer) {
        unlink(slot)
        slot.pointee.deadline = 0
    }

    private mutating func link(_ slot: StreamSlot.Pointer) {
        let bucket = Int(slot.pointee.deadline) % Limits.wheelBucketCount
        let head = buckets[bucket]
        slot.pointee.bucket = UInt16(bucket)
        slot.pointee.previousInBucket = Self.none
        slot.pointee.nextInBucket = head
        if head != Self.none { self.slot(head).pointee.previousInBucket = slot.pointee.number }
        buckets[bucket] = slot.pointee.number
        slot.pointee.flags.insert(.isInWheel)
    }

    private mutating func unlink(_ slot: StreamSlot.Pointer) {
        guard slot.pointee.flags.contains(.isInWheel) else { return }
        let (previous, next) = (slot.pointee.previousInBucket, slot.pointee.nextInBucket)
        if previous != Self.none {
            self.slot(previous).pointee.nextInBucket = next
        } else {
            buckets[Int(slot.pointee.bucket)] = next
        }
        if next != Self.none { self.slot(next).pointee.previousInBucket = previous }
        slot.pointee.flags.remove(.isInWheel)
    }

    /// Takes out what is due up to `now`, and moves on what is not.
    private mutating func takeDue(now: UInt64) -> [ByteStream] {
        let target = UInt32(truncatingIfNeeded: (now > startedAt ? now - startedAt : 0) / Limits.tickMilliseconds)
        var due: [ByteStream] = []
        // After a long stall one rotation visits every bucket.
        let first = max(currentTick + 1, target > UInt32(buckets.count) ? target - UInt32(buckets.count) + 1 : 0)
        guard first <= target else { return due }
        currentTick = target
        for tick in first...target {
            var number = buckets[Int(tick) % Limits.wheelBucketCount]
            while number != Self.none {
                let slot = slot(number)
                number = slot.pointee.nextInBucket
                if slot.pointee.deadline <= target {
                    unlink(slot)
                    slot.pointee.deadline = 0
                    due.append(ByteStream(slot))
                } else if Int(slot.pointee.deadline) % Limits.wheelBucketCount != Int(slot.pointee.bucket) {
                    unlink(slot)
                    link(slot)
                }
            }
        }
        return due
    }

    // MARK: Work of a turn

    var hasDeferredWork: Bool {
        !endings.isEmpty || !readAgain.isEmpty || !slow.isEmpty || !drained.isEmpty || !dirty.isEmpty
    }

    static func fireTimeouts(on loop: EventLoop, now: UInt64) {
        for stream in loop.streams.pointee.takeDue(now: now) { stream.timeoutFired() }
    }

    static func runDeferred(on loop: EventLoop) {
        let table = loop.streams
        guard table.pointee.hasDeferredWork else { return }
        tellEndings(on: loop)
        if !table.pointee.slow.isEmpty {
            var slow: [ByteStream] = []
            swap(&slow, &table.pointee.slow)
            for stream in slow { stream.tellSlow() }
        }
        if !table.pointee.drained.isEmpty {
            var drained: [ByteStream] = []
            swap(&drained, &table.pointee.drained)
            for stream in drained { stream.tellDrained() }
        }
        if !table.pointee.readAgain.isEmpty {
            var again: [ByteStream] = []
            swap(&again, &table.pointee.readAgain)
            for stream in again { stream.readAgain() }
        }
    }

    private static func tellEndings(on loop: EventLoop) {
        let table = loop.streams
        guard !table.pointee.endings.isEmpty else { return }
        var endings: [Ending] = []
        swap(&endings, &table.pointee.endings)
        for ending in endings { ending.delegate?.closed(ending.stream, ending.reason) }
    }

    static func flushDirty(on loop: EventLoop) {
        let table = loop.streams
        guard !table.pointee.dirty.isEmpty else { return }
        var dirty: [StreamSlot.Pointer] = []
        swap(&dirty, &table.pointee.dirty)
        for index in dirty.indices {
            // Many were written to long ago in this turn: the next one's memory comes while this one is being sent.
            if index + 1 < dirty.count { prefetch(dirty[index + 1], byteCount: MemoryLayout<StreamSlot>.stride) }
            guard dirty[index].pointee.flags.contains(.isDirty) else { continue }
            dirty[index].pointee.flags.remove(.isDirty)
            ByteStream(dirty[index]).flush()
        }
        // The array's memory serves the next turn, unless something was written meanwhile.
        dirty.removeAll(keepingCapacity: true)
        if table.pointee.dirty.isEmpty { swap(&dirty, &table.pointee.dirty) }
    }

    /// Ends every open stream and tells their delegates.
    static func finishAll(on loop: EventLoop) {
        let table = loop.streams
        for chunk in table.pointee.chunks {
            for offset in 0..<Limits.slabSlotCount {
                guard chunk[offset].table != nil else { continue }
                ByteStream(chunk + offset).finish(.loopStopped)
            }
        }
        (table.pointee.dirty, table.pointee.readAgain, table.pointee.slow, table.pointee.drained) = ([], [], [], [])
        tellEndings(on: loop)
    }
}
