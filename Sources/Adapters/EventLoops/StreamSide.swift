internal import Cryptography
internal import Structures

/// The optional state of a stream: its separate delegate, TLS, a partial WebSocket message, unconsumed bytes or a deadline.
struct StreamSide {
    typealias Pointer = UnsafeMutablePointer<StreamSide>

    /// The state of a newcomer: a stream before its Hello, read only when the loop has time.
    enum Newcomer: UInt8 {
        case no
        /// The stream has no unread event.
        case isRead
        /// The stream is in the table's queue of newcomers.
        case waits
    }

    let pool: UnsafeMutablePointer<StreamSidePool>
    /// The slot in the pool, or `.none` for the shared empty record.
    let place: Slot<StreamSide>
    /// The deadline in ticks of the timeout wheel.
    var deadline: UInt32 = 0
    /// The neighbors in the wheel's bucket, or `StreamTable.none`.
    var nextInBucket: UInt32 = StreamTable.none
    var previousInBucket: UInt32 = StreamTable.none
    var bucket: UInt16 = 0
    var newcomer = Newcomer.no
    /// Whether the deadline is for a WebSocket's next ping, not for its delegate.
    var isPing = false
    var unconsumed: Block.Pointer?
    var tls: TLSSession?
    var webSocket: WebSocketSession?
    var delegate: StreamDelegate?

    init(pool: UnsafeMutablePointer<StreamSidePool>, place: Slot<StreamSide>) {
        (self.pool, self.place) = (pool, place)
    }
}

/// The side records of a loop's streams, behind a pointer because every record refers to it.
struct StreamSidePool: ~Copyable {
    var sides = Slab<StreamSide>()
    let none: StreamSide.Pointer
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

    mutating func ownSide() -> StreamSide.Pointer {
        if hasSide { return side }
        let pool = side.pointee.pool
        let place = pool.pointee.sides.nextSlot
        side = pool.pointee.sides.pointer(pool.pointee.sides.insert(StreamSide(pool: pool, place: place)))
        return side
    }

    mutating func releaseSide() {
        guard hasSide, side.pointee.unconsumed == nil, side.pointee.tls == nil,
            side.pointee.webSocket == nil, side.pointee.delegate == nil, side.pointee.newcomer == .no,
            !flags.contains(.isInWheel)
        else { return }
        let pool = side.pointee.pool
        pool.pointee.sides.remove(side.pointee.place)
        side = pool.pointee.none
    }

    var delegate: StreamDelegate? {
        get { flags.contains(.isShared) ? side.pointee.pool.pointee.sharedDelegate : side.pointee.delegate }
        set {
            flags.remove(.isShared)
            guard newValue != nil || hasSide else { return }
            ownSide().pointee.delegate = newValue
            if newValue == nil { releaseSide() }
        }
    }

    /// Sets a delegate that many streams share; only the loop's first shared delegate needs no memory per stream.
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
