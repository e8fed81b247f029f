internal import CLibevent
internal import Cryptography
internal import Glibc
internal import Platform
internal import Structures

/// What every open stream needs; lies in the slab, 160 bytes with libevent's event.
///
/// What only some streams need, or only at times, is in a `StreamSide`.
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
        /// Something was refused or had to wait, so the delegate wants to be told when the outbox is empty.
        static let owesDrained = Flags(rawValue: 1 << 2)
        /// The slot has an occupant.
        static let isTaken = Flags(rawValue: 1 << 13)
        /// Its delegate is the one that the loop's streams share.
        static let isShared = Flags(rawValue: 1 << 14)
        /// Its bytes are frames of a WebSocket; `StreamSide.webSocket` has what is begun of a message.
        static let isWebSocket = Flags(rawValue: 1 << 15)
    }

    var event = CLibevent.event()
    var flags: Flags = []
    /// What may wait to be sent.
    var outboxLimit = ApproximateCount(atLeast: 0)
    /// The slot's own number.
    let number: UInt32
    /// Counts the slot's occupants: a handle of an earlier one finds that its stream is over.
    var serial: UInt32
    /// Which of its delegate's streams this is.
    var tag: UInt32 = 0
    var outbox = Outbox()
    /// The table's record of nothing while there is nothing in it.
    var side: StreamSide.Pointer

    init(number: UInt32, serial: UInt32, side: StreamSide.Pointer) {
        (self.number, self.serial, self.side) = (number, serial, side)
    }

    var descriptor: CInt { event.ev_fd }
}

/// All streams of one loop: their slots, their timeouts, their blocks and their lists of work.
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

    /// Its owner; not counted, since each use would count twice.
    unowned(unsafe) let loop: EventLoop
    var pool = BlockPool()
    /// What all TLS sessions of the loop read and write through.
    let tlsSocket = TLSSocket()
    /// Who is at the other end of the streams that came through a balancer, by their slots' numbers.
    var clients: [UInt32: SocketAddress] = [:]
    /// To which addresses streams are counted, by their slots' numbers; 0: to none.
    ///
    /// Empty while none ever was.
    private var countedNetworks: [UInt64] = []
    private var addressGuard: AddressGuard?
    /// The budget that the streams count to, and the bytes that were reported to it last.
    var budget: PeerBudget?
    var toldBytes = PeerBudget.StreamBytes()
    /// TLS handshakes under way that clients began here.
    var handshakeCount = 0
    /// Unconsumed bytes of newcomers.
    var strangerByteCount = 0
    /// Streams to other gateways.
    var links: [ByteStream] = []
    /// Slots with something to send; one that has changed hands meanwhile is not marked as dirty, or stands here twice.
    var dirty: [StreamSlot.Pointer] = []
    var readAgain: [ByteStream] = []
    var slow: [ByteStream] = []
    var drained: [ByteStream] = []
    /// Newcomers that have something to read, oldest first, with some that are over among them.
    var newcomers = Ring<ByteStream>()
    var endings: [Ending] = []
    private(set) var openCount = 0
    /// Events of streams so far, modulo 2^64: two equal values say that nothing came between them.
    var eventCount: UInt64 = 0
    /// Time that went into TLS handshakes.
    var handshakeNanoseconds: Int64 = 0
    /// What handshakes pass that are asked to; see `ByteStream.init`.
    var gate: HandshakeGate?
    var onHandshake: ((HandshakeEvent) -> Void)?
    /// Streams that wait for their peer's end, oldest first, with some that are over among them.
    private var closings: [ByteStream] = []
    private var firstClosing = 0
    private(set) var closingCount = 0
    /// Where `isSending` found something last.
    private var lastSending = 0
    /// Where every stream receives: room for what was unconsumed, then room for what is new.
    let scratch: UnsafeMutableRawPointer

    /// Each chunk of slots has the table's address in front of it; see `table(of:)`.
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

    /// The table that a slot belongs to.
    static func table(of slot: StreamSlot.Pointer) -> UnsafeMutablePointer<StreamTable> {
        let chunk = UnsafeRawPointer(slot - Int(slot.pointee.number) % Limits.slabSlotCount)
        return (chunk - chunkHeaderByteCount).load(as: UnsafeMutablePointer<StreamTable>.self)
    }

    /// Takes a free slot of the table at `place`.
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
        // In reverse, so that low slots are used first and lie together.
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

    /// Shows every stream with the network that it is counted to; 0: to none.
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

    /// To whom the stream is counted; the caller says from now on when it is over.
    mutating func takeCounted(_ slot: StreamSlot.Pointer) -> CountedAddress? {
        let number = Int(slot.pointee.number)
        guard number < countedNetworks.count, countedNetworks[number] != 0, let addressGuard else { return nil }
        defer { countedNetworks[number] = 0 }
        return CountedAddress(addressGuard: addressGuard, network: countedNetworks[number])
    }

    // MARK: Timeouts

    /// The tick of a moment, rounded up; never 0.
    private func tick(at milliseconds: UInt64) -> UInt32 {
        let since = milliseconds > startedAt ? milliseconds - startedAt : 0
        return UInt32(truncatingIfNeeded: since / Limits.tickMilliseconds + 1)
    }

    /// Sets the one deadline of a slot, in constant time; a later one only changes the number: the old bucket finds out.
    mutating func setDeadline(_ slot: StreamSlot.Pointer, at milliseconds: UInt64, isPing: Bool = false) {
        let new = max(tick(at: milliseconds), currentTick + 1)
        // An entry of an earlier rotation is looked at in its bucket once a rotation, and moved there.
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

    /// Takes out what is due up to `now`, and moves on what is not.
    private mutating func takeDue(now: UInt64) -> [(stream: ByteStream, isPing: Bool)] {
        let target = UInt32(truncatingIfNeeded: (now > startedAt ? now - startedAt : 0) / Limits.tickMilliseconds)
        var due: [(ByteStream, Bool)] = []
        // After a long stall one rotation visits every bucket.
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

    /// A stream waits for its peer's end from now on; the one that has waited longest ends when there are too many.
    static func beginClosing(_ stream: ByteStream, on loop: EventLoop) {
        let (table, limit) = (loop.streams, loop.closingStreamLimit)
        table.pointee.closingCount += 1
        guard limit < Int.max else { return }
        table.pointee.closings.append(stream)
        while let longest = table.pointee.popClosing(beyond: limit) {
            // Its last words go out as far as the socket takes them.
            longest.flush()
            longest.close()
        }
    }

    /// A stream that was closing is over.
    mutating func endClosing() { closingCount -= 1 }

    private mutating func popClosing(beyond limit: Int) -> ByteStream? {
        while firstClosing < closings.count {
            let stream = closings[firstClosing]
            // Those that are over are taken out on the way, so the list stays as long as what really waits.
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

    /// Reads the newcomers that wait, as long as the loop has time for them.
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

    /// Whether some stream has bytes that its peer's machine has not got yet.
    ///
    /// Looks at all of them only when there is none: each call goes on where the one before it found one.
    mutating func isSending() -> Bool {
        let count = chunks.count * Limits.slabSlotCount
        for step in 0..<count {
            let number = (lastSending + step) % count
            let slot = slot(UInt32(number))
            guard slot.pointee.flags.contains(.isTaken) else { continue }
            var waiting: CInt = 0
            // Sent and not acknowledged: a close with unread input would throw it away.
            if slot.pointee.outbox.byteCount == 0 { _ = ioctl(slot.pointee.descriptor, UInt(TIOCOUTQ), &waiting) }
            if slot.pointee.outbox.byteCount > 0 || waiting > 0 {
                lastSending = number
                return true
            }
        }
        return false
    }

    /// Ends every open stream and tells their delegates.
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
