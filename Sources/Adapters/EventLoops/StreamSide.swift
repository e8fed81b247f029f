internal import Cryptography
internal import Structures

/// What a stream has beside its slot while it has a delegate of its own, uses TLS or is amid a WebSocket's message, keeps unconsumed bytes, or has a deadline.
struct StreamSide {
    typealias Pointer = UnsafeMutablePointer<StreamSide>

    /// Whether the stream is one that the loop reads when it has time for newcomers.
    enum Newcomer: UInt8 {
        case no
        /// Nothing of it waits.
        case isRead
        /// It stands in the table's list.
        case waits
    }

    let pool: UnsafeMutablePointer<StreamSidePool>
    /// Its place in the pool; `.none` for the shared record of nothing.
    let place: Slot<StreamSide>
    /// In ticks of the wheel.
    var deadline: UInt32 = 0
    /// Its neighbours in the wheel; `StreamTable.none` for none.
    var nextInBucket: UInt32 = StreamTable.none
    var previousInBucket: UInt32 = StreamTable.none
    var bucket: UInt16 = 0
    var newcomer = Newcomer.no
    /// The deadline is that of a WebSocket's next ping, and not its delegate's.
    var isPing = false
    var unconsumed: Block.Pointer?
    var tls: TLSSession?
    var webSocket: WebSocketSession?
    var delegate: StreamDelegate?

    init(pool: UnsafeMutablePointer<StreamSidePool>, place: Slot<StreamSide>) {
        (self.pool, self.place) = (pool, place)
    }
}

/// The sides of one loop's streams; behind a pointer, since every side names it.
struct StreamSidePool: ~Copyable {
    var sides = Slab<StreamSide>()
    let none: StreamSide.Pointer
    /// The delegate of all streams that were passed to one.
    var sharedDelegate: StreamDelegate?

    static func make() -> UnsafeMutablePointer<StreamSidePool> {
        let pool = UnsafeMutablePointer<StreamSidePool>.allocate(capacity: 1)
        let none = StreamSide.Pointer.allocate(capacity: 1)
        none.initialize(to: StreamSide(pool: pool, place: .none))
        pool.initialize(to: StreamSidePool(none: none))
        return pool
    }

    private init(none: StreamSide.Pointer) { self.none = none }

    deinit {
        none.deinitialize(count: 1)
        none.deallocate()
    }
}

extension StreamSlot {
    private var hasSide: Bool { side.pointee.place != .none }

    /// The stream's own side, made if need be.
    mutating func ownSide() -> StreamSide.Pointer {
        if hasSide { return side }
        let pool = side.pointee.pool
        let place = pool.pointee.sides.nextSlot
        side = pool.pointee.sides.pointer(pool.pointee.sides.insert(StreamSide(pool: pool, place: place)))
        return side
    }

    /// Gives the side back once there is nothing in it.
    mutating func releaseSide() {
        guard hasSide, side.pointee.unconsumed == nil, side.pointee.tls == nil,
            side.pointee.webSocket == nil, side.pointee.delegate == nil, side.pointee.newcomer == .no,
            !flags.contains(.isInWheel)
        else { return }
        let pool = side.pointee.pool
        pool.pointee.sides.remove(side.pointee.place)
        side = pool.pointee.none
    }

    /// A stream's own delegate, or the shared one.
    var delegate: StreamDelegate? {
        get { flags.contains(.isShared) ? side.pointee.pool.pointee.sharedDelegate : side.pointee.delegate }
        set {
            flags.remove(.isShared)
            guard newValue != nil || hasSide else { return }
            ownSide().pointee.delegate = newValue
            if newValue == nil { releaseSide() }
        }
    }

    /// Takes a delegate that has many streams of the loop.
    ///
    /// The first such delegate of a loop costs its streams nothing; a later one is kept by each of its streams.
    mutating func share(_ delegate: StreamDelegate) {
        let pool = side.pointee.pool
        if pool.pointee.sharedDelegate == nil { pool.pointee.sharedDelegate = delegate }
        guard pool.pointee.sharedDelegate === delegate else { return self.delegate = delegate }
        self.delegate = nil
        flags.insert(.isShared)
    }

    var newcomer: StreamSide.Newcomer {
        get { side.pointee.newcomer }
        set {
            guard newValue != .no || hasSide else { return }
            ownSide().pointee.newcomer = newValue
            if newValue == .no { releaseSide() }
        }
    }

    var unconsumed: Block.Pointer? {
        get { side.pointee.unconsumed }
        set {
            guard newValue != nil || hasSide else { return }
            ownSide().pointee.unconsumed = newValue
            if newValue == nil { releaseSide() }
        }
    }

    var webSocket: WebSocketSession? {
        get { side.pointee.webSocket }
        set {
            guard newValue != nil || hasSide else { return }
            ownSide().pointee.webSocket = newValue
            if newValue == nil { releaseSide() }
        }
    }

    var tls: TLSSession? {
        get { side.pointee.tls }
        set {
            guard newValue != nil || hasSide else { return }
            ownSide().pointee.tls = newValue
            if newValue == nil { releaseSide() }
        }
    }
}
