internal import CLibevent
internal import Cryptography
internal import Glibc
internal import Platform
internal import Structures

/// The state of every open stream, in a slab: 160 bytes with libevent's event; optional state is in a `StreamSide`.
struct StreamSlot {
    typealias Pointer = UnsafeMutablePointer<StreamSlot>

    struct Flags: OptionSet {
        let rawValue: UInt16
        /// Whether the socket is full; the next edge reports that it is writable.
        static let isBlocked = Flags(rawValue: 1)
        static let isPaused = Flags(rawValue: 1 << 1)
        static let isHandshaking = Flags(rawValue: 1 << 3)
        static let isDirty = Flags(rawValue: 1 << 4)
        /// Whether the stream is in the list of streams to read again.
        static let isReadingAgain = Flags(rawValue: 1 << 5)
        /// Whether the stream closes: input is ignored, output refused, and the outbox is flushed before the end.
        static let isClosing = Flags(rawValue: 1 << 6)
        /// Whether the output is shut down and the stream waits for the peer's end.
        static let isShut = Flags(rawValue: 1 << 7)
        /// Whether the kernel reported the peer's end, after which a short read does not mean that the socket is empty.
        static let hasPeerEnd = Flags(rawValue: 1 << 8)
        /// Whether the delegate was notified that the outbox is full.
        static let hasToldSlow = Flags(rawValue: 1 << 9)
        /// Whether stored input must be delivered again, without new bytes.
        static let mustRedeliver = Flags(rawValue: 1 << 10)
        static let isInWheel = Flags(rawValue: 1 << 11)
        /// Whether input may have arrived during a pause, for which no further edge will occur.
        static let hasMissedEdge = Flags(rawValue: 1 << 12)
        /// Whether the delegate must be notified when the outbox is empty, because output was refused or delayed.
        static let owesDrained = Flags(rawValue: 1 << 2)
        static let isTaken = Flags(rawValue: 1 << 13)
        static let isShared = Flags(rawValue: 1 << 14)
        /// Whether the stream carries WebSocket frames; `StreamSide.webSocket` has the state of a partial message.
        static let isWebSocket = Flags(rawValue: 1 << 15)
    }

    var event = CLibevent.event()
    var flags: Flags = []
    var outboxLimit = ApproximateCount(atLeast: 0)
    let number: UInt32
    /// The number of streams that have used the slot; it invalidates handles of earlier streams.
    var serial: UInt32
    /// The number by which the delegate identifies the stream.
    var tag: UInt32 = 0
    var outbox = Outbox()
    var side: StreamSide.Pointer

    init(number: UInt32, serial: UInt32, side: StreamSide.Pointer) {
        (self.number, self.serial, self.side) = (number, serial, side)
    }

    var descriptor: CInt { event.ev_fd }
}

/// All streams of a loop: slots, timeouts, blocks and lists of work.
///
/// Every static function takes the loop, so that no `inout` access is open while a delegate runs.
struct StreamTable: ~Copyable {
    static let none = UInt32.max

    struct Ending {
        let stream: ByteStream
        let delegate: StreamDelegate?
        let tag: UInt32
        let reason: CloseReason
    }

    /// The owner, unretained to avoid the cost of reference counting.
    unowned(unsafe) let loop: EventLoop
    var pool = BlockPool()
    let tlsSocket = TLSSocket()
    /// The clients' addresses of streams through a balancer, by slot number.
    var clients: [UInt32: SocketAddress] = [:]
    /// The addresses under which streams are counted, by slot number; 0 means not counted, and the array may be shorter.
    private var countedNetworks: [UInt64] = []
    private var addressGuard: AddressGuard?
    /// The budget of the streams, and the bytes last reported to it.
    var budget: PeerBudget?
    var toldBytes = PeerBudget.StreamBytes()
    var handshakeCount = 0
    var strangerByteCount = 0
    var links: [ByteStream] = []
    /// The slots with output; after a reuse, a slot may be listed twice or without output, and its flag `isDirty` decides.
    var dirty: [StreamSlot.Pointer] = []
    var readAgain: [ByteStream] = []
    var slow: [ByteStream] = []
    var drained: [ByteStream] = []
    /// The newcomers with unread input, oldest first; some may have ended.
    var newcomers = Ring<ByteStream>()
    var endings: [Ending] = []
    private(set) var openCount = 0
    /// The number of stream events, modulo 2^64; equal values mean that no event occurred in between.
    var eventCount: UInt64 = 0
    var handshakeNanoseconds: Int64 = 0
    /// The gate for handshakes of streams created with `isGated`.
    var gate: HandshakeGate?
    var onHandshake: ((HandshakeEvent) -> Void)?
    /// The streams that wait for their peer's end, oldest first; some may have ended.
    private var closings: [ByteStream] = []
    private var firstClosing = 0
    private(set) var closingCount = 0
    private var lastSending = 0
    /// The receive buffer of all streams: space for unconsumed bytes, then for new ones.
    let scratch: UnsafeMutableRawPointer

    /// The chunks of slots; the table's address precedes each chunk, for `table(of:)`.
    private var chunks: [StreamSlot.Pointer] = []
    private static let chunkHeaderByteCount = 64
    private let sides = StreamSidePool.make()
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
            (UnsafeMutableRawPointer(chunk) - Self.chunkHeaderByteCount).deallocate()
        }
        chunks = []
        sides.deinitialize(count: 1)
        sides.deallocate()
        pool.deallocate()
        scratch.deallocate()
    }

    // MARK: Slots

    func slot(_ number: UInt32) -> StreamSlot.Pointer {
        chunks[Int(number) / Limits.slabSlotCount] + Int(number) % Limits.slabSlotCount
    }

    static func table(of slot: StreamSlot.Pointer) -> UnsafeMutablePointer<StreamTable> {
        let chunk = UnsafeRawPointer(slot - Int(slot.pointee.number) % Limits.slabSlotCount)
        return (chunk - chunkHeaderByteCount).load(as: UnsafeMutablePointer<StreamTable>.self)
    }

    static func takeSlot(_ place: UnsafeMutablePointer<StreamTable>) -> StreamSlot.Pointer {
        if place.pointee.freeSlots.isEmpty { place.pointee.addChunk(tableAt: place) }
        place.pointee.openCount += 1
        let slot = place.pointee.slot(place.pointee.freeSlots.removeLast())
        slot.pointee.flags = .isTaken
        return slot
    }

    private mutating func addChunk(tableAt place: UnsafeMutablePointer<StreamTable>) {
        let memory = UnsafeMutableRawPointer.allocate(
            byteCount: Self.chunkHeaderByteCount + MemoryLayout<StreamSlot>.stride * Limits.slabSlotCount, alignment: 16
        )
        memory.storeBytes(of: place, as: UnsafeMutablePointer<StreamTable>.self)
        let chunk = (memory + Self.chunkHeaderByteCount).bindMemory(to: StreamSlot.self, capacity: Limits.slabSlotCount)
        let first = UInt32(chunks.count * Limits.slabSlotCount)
        chunks.append(chunk)
        // In reverse order, so that low slots are used first and are close together.
        for offset in (0..<Limits.slabSlotCount).reversed() {
            let number = first + UInt32(offset)
            (chunk + offset).initialize(to: StreamSlot(number: number, serial: 0, side: sides.pointee.none))
            freeSlots.append(number)
        }
    }

    mutating func putSlot(_ slot: StreamSlot.Pointer) {
        slot.pointee.tls = nil
        slot.pointee.webSocket = nil
        slot.pointee.newcomer = .no
        slot.pointee.delegate = nil
        let (number, serial) = (slot.pointee.number, slot.pointee.serial)
        slot.pointee = StreamSlot(number: number, serial: serial &+ 1, side: sides.pointee.none)
        freeSlots.append(number)
        openCount -= 1
    }

    /// Calls `body` for every stream with its counted network, or 0.
    func forEachTaken(_ body: (StreamSlot.Pointer, UInt64) -> Void) {
        for chunk in chunks {
            for offset in 0..<Limits.slabSlotCount where chunk[offset].flags.contains(.isTaken) {
                body(chunk + offset, countedNetwork(of: chunk + offset))
            }
        }
    }

    // MARK: Addresses

    func countedNetwork(of slot: StreamSlot.Pointer) -> UInt64 {
        let number = Int(slot.pointee.number)
        return number < countedNetworks.count ? countedNetworks[number] : 0
    }

    mutating func noteCounted(_ counted: CountedAddress, _ slot: StreamSlot.Pointer) {
        let missing = chunks.count * Limits.slabSlotCount - countedNetworks.count
        if missing > 0 { countedNetworks += repeatElement(0, count: missing) }
        addressGuard = counted.addressGuard
        countedNetworks[Int(slot.pointee.number)] = counted.network
    }

    /// Removes and returns the counted address; the caller must then call `leave` at the end.
    mutating func takeCounted(_ slot: StreamSlot.Pointer) -> CountedAddress? {
        let number = Int(slot.pointee.number)
        guard number < countedNetworks.count, countedNetworks[number] != 0, let addressGuard else { return nil }
        defer { countedNetworks[number] = 0 }
        return CountedAddress(addressGuard: addressGuard, network: countedNetworks[number])
    }

    // MARK: Timeouts

    /// Returns the tick of a time, rounded up and never 0.
    private func tick(at milliseconds: UInt64) -> UInt32 {
        let since = milliseconds > startedAt ? milliseconds - startedAt : 0
        return UInt32(truncatingIfNeeded: since / Limits.tickMilliseconds + 1)
    }

    /// Sets the slot's only deadline in constant time; a slot with a later deadline stays in its old bucket, which moves the slot
    /// later.
    mutating func setDeadline(_ slot: StreamSlot.Pointer, at milliseconds: UInt64, isPing: Bool = false) {
        let new = max(tick(at: milliseconds), currentTick + 1)
        // A bucket checks its entries once per rotation and moves those with a later deadline.
        if slot.pointee.flags.contains(.isInWheel), new >= slot.pointee.side.pointee.deadline {
            slot.pointee.side.pointee.deadline = new
        } else {
            unlink(slot)
            link(slot, deadline: new)
        }
        slot.pointee.side.pointee.isPing = isPing
    }

    mutating func clearDeadline(_ slot: StreamSlot.Pointer) {
        unlink(slot)
        slot.pointee.releaseSide()
    }

    private mutating func link(_ slot: StreamSlot.Pointer, deadline: UInt32) {
        let side = slot.pointee.ownSide()
        let bucket = Int(deadline) % Limits.wheelBucketCount
        let head = buckets[bucket]
        side.pointee.deadline = deadline
        side.pointee.bucket = UInt16(bucket)
        side.pointee.previousInBucket = Self.none
        side.pointee.nextInBucket = head
        if head != Self.none { self.slot(head).pointee.side.pointee.previousInBucket = slot.pointee.number }
        buckets[bucket] = slot.pointee.number
        slot.pointee.flags.insert(.isInWheel)
    }

    private mutating func unlink(_ slot: StreamSlot.Pointer) {
        guard slot.pointee.flags.contains(.isInWheel) else { return }
        let side = slot.pointee.side
        let (previous, next) = (side.pointee.previousInBucket, side.pointee.nextInBucket)
        if previous != Self.none {
            self.slot(previous).pointee.side.pointee.nextInBucket = next
        } else {
            buckets[Int(side.pointee.bucket)] = next
        }
        if next != Self.none { self.slot(next).pointee.side.pointee.previousInBucket = previous }
        slot.pointee.flags.remove(.isInWheel)
    }

    /// Removes and returns the streams due at `now`, and moves those with a later deadline.
    private mutating func takeDue(now: UInt64) -> [(stream: ByteStream, isPing: Bool)] {
        let target = UInt32(truncatingIfNeeded: (now > startedAt ? now - startedAt : 0) / Limits.tickMilliseconds)
        var due: [(ByteStream, Bool)] = []
        // After a long stall, one rotation visits every bucket.
        let first = max(currentTick + 1, target > UInt32(buckets.count) ? target - UInt32(buckets.count) + 1 : 0)
        guard first <= target else { return due }
        currentTick = target
        for tick in first...target {
            var number = buckets[Int(tick) % Limits.wheelBucketCount]
            while number != Self.none {
                let slot = slot(number)
                let side = slot.pointee.side
                let (deadline, isPing) = (side.pointee.deadline, side.pointee.isPing)
                number = side.pointee.nextInBucket
                if deadline <= target {
                    clearDeadline(slot)
                    due.append((ByteStream(slot), isPing))
                } else if Int(deadline) % Limits.wheelBucketCount != Int(side.pointee.bucket) {
                    unlink(slot)
                    link(slot, deadline: deadline)
                }
            }
        }
        return due
    }

    // MARK: Streams that are closing

    /// Counts a stream that waits for its peer's end; above the limit the longest waiting stream is closed.
    static func beginClosing(_ stream: ByteStream, on loop: EventLoop) {
        let (table, limit) = (loop.streams, loop.closingStreamLimit)
        table.pointee.closingCount += 1
        guard limit < Int.max else { return }
        table.pointee.closings.append(stream)
        while let longest = table.pointee.popClosing(beyond: limit) {
            // The stream's remaining output is sent as far as the socket accepts it.
            longest.flush()
            longest.close()
        }
    }

    mutating func endClosing() { closingCount -= 1 }

    private mutating func popClosing(beyond limit: Int) -> ByteStream? {
        while firstClosing < closings.count {
            let stream = closings[firstClosing]
            // Ended streams are removed here, which bounds the list by the number of waiting streams.
            guard !stream.isOpen || closingCount > limit else { break }
            firstClosing += 1
            if stream.isOpen { return stream }
        }
        if firstClosing > closings.count / 2 {
            closings.removeSubrange(..<firstClosing)
            firstClosing = 0
        } else if closings.count - firstClosing > 2 * max(closingCount, 64) {
            closings = closings[firstClosing...].filter { $0.isOpen }
            firstClosing = 0
        }
        return nil
    }

    // MARK: Work of a turn

    var hasDeferredWork: Bool {
        !endings.isEmpty || !readAgain.isEmpty || !slow.isEmpty || !drained.isEmpty || !dirty.isEmpty
    }

    static func fireTimeouts(on loop: EventLoop, now: UInt64) {
        for (stream, isPing) in loop.streams.pointee.takeDue(now: now) {
            if isPing { stream.pingIfQuiet() } else { stream.timeoutFired() }
        }
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

    /// Reads queued newcomers while the loop has time for them.
    static func readNewcomers(on loop: EventLoop) {
        let table = loop.streams
        while !table.pointee.newcomers.isEmpty, loop.mayReadNewcomer(), let stream = table.pointee.newcomers.popFirst()
        {
            stream.readNewcomer()
        }
    }

    private static func tellEndings(on loop: EventLoop) {
        let table = loop.streams
        guard !table.pointee.endings.isEmpty else { return }
        var endings: [Ending] = []
        swap(&endings, &table.pointee.endings)
        for ending in endings { ending.delegate?.ended(ending.stream, tag: ending.tag, ending.reason) }
    }

    static func flushDirty(on loop: EventLoop) {
        let table = loop.streams
        guard !table.pointee.dirty.isEmpty else { return }
        var dirty: [StreamSlot.Pointer] = []
        swap(&dirty, &table.pointee.dirty)
        for index in dirty.indices {
            // The next slot may have left the cache since it was written to, so it is prefetched during this send.
            if index + 1 < dirty.count { prefetch(dirty[index + 1], byteCount: MemoryLayout<StreamSlot>.stride) }
            guard dirty[index].pointee.flags.contains(.isDirty) else { continue }
            dirty[index].pointee.flags.remove(.isDirty)
            ByteStream(dirty[index]).flush()
        }
        // The array's memory is reused in the next turn, unless a write has already allocated another one.
        dirty.removeAll(keepingCapacity: true)
        if table.pointee.dirty.isEmpty { swap(&dirty, &table.pointee.dirty) }
    }

    /// Returns whether any stream has bytes that the peer's kernel has not acknowledged; each call resumes at the last one found.
    mutating func isSending() -> Bool {
        let count = chunks.count * Limits.slabSlotCount
        for step in 0..<count {
            let number = (lastSending + step) % count
            let slot = slot(UInt32(number))
            guard slot.pointee.flags.contains(.isTaken) else { continue }
            var waiting: CInt = 0
            // TIOCOUTQ counts unacknowledged bytes, which a close with unread input would discard.
            if slot.pointee.outbox.byteCount == 0 { _ = ioctl(slot.pointee.descriptor, UInt(TIOCOUTQ), &waiting) }
            if slot.pointee.outbox.byteCount > 0 || waiting > 0 {
                lastSending = number
                return true
            }
        }
        return false
    }

    static func finishAll(on loop: EventLoop) {
        let table = loop.streams
        for chunk in table.pointee.chunks {
            for offset in 0..<Limits.slabSlotCount {
                guard chunk[offset].flags.contains(.isTaken) else { continue }
                ByteStream(chunk + offset).finish(.loopStopped)
            }
        }
        (table.pointee.dirty, table.pointee.readAgain, table.pointee.slow, table.pointee.drained) = ([], [], [], [])
        table.pointee.newcomers.removeAll()
        tellEndings(on: loop)
    }
}
