internal import Delivery
internal import Platform
internal import Wire

// The only file that accesses a partition's shard. The bytes that an effect points to are valid only until the next call of the
// shard. `withShard` therefore performs all effects of a call before it returns.

/// A partition's shard and the effects being performed.
struct PartitionShard: ~Copyable {
    fileprivate var shard: Shard
    /// Empty except while effects are performed.
    fileprivate var effects: [Effect] = []

    init(_ shard: consuming Shard) { self.shard = shard }

    mutating func setLimits(_ limits: ShardLimits) { shard.setLimits(limits) }

    // MARK: Reads without effects

    // Each read has its own function, because a closure that borrows the shard would copy the whole struct. A borrowing call into
    // another module copies it, too, so frequently called getters are `mutating`.

    var statistics: ShardStatistics { shard.statistics }
    var publishingApps: [AppKey] { shard.publishingApps }
    var awaitedTicket: Ticket { shard.awaitedTicket }
    var hasWorkAtHand: Bool { mutating get { shard.hasWorkAtHand } }
    var dueChannels: ChannelSet { mutating get { shard.dueChannels } }
    var hasSlicesAtHand: Bool { shard.hasSlicesAtHand }

    func statistics(of apps: [AppKey]) -> [AppStatistics] { shard.statistics(of: apps) }

    func source(of session: SessionRef) -> (app: AppKey, cid: DeviceID)? { shard.source(of: session) }

    func hasReports(_ session: SessionRef) -> Bool { shard.hasReports(session) }

    func owesAnswers(_ session: SessionRef) -> Bool { shard.owesAnswers(session) }

    func isConnected(_ cid: DeviceID) -> Bool { shard.isConnected(cid) }

    func mayAccept(_ app: AppKey) -> Bool { shard.mayAccept(app) }

    @inline(__always)
    mutating func place(of cid: DeviceID) -> UnsafeRawBufferPointer? { shard.place(of: cid) }

    @inline(__always)
    mutating func place(ofSession slot: UInt32) -> UnsafeRawBufferPointer? { shard.place(ofSession: slot) }

    @inline(__always)
    mutating func visitPlaces(awaiting ticket: Ticket, _ body: (UnsafeRawBufferPointer) -> Void) {
        shard.visitPlaces(awaiting: ticket, body)
    }
}

extension Partition {
    /// Calls the shard, then performs all effects of the call.
    ///
    /// `body` must make exactly one call, because a second one would invalidate the bytes that the first one's effects point to.
    /// The shard must not be called while effects are performed. Answers to this event loop are deferred until all effects are
    /// performed, because an answer may cause another command.
    @inline(__always)
    func withShard(_ body: (inout Shard) -> Void) {
        assert(core.pointee.shard.effects.isEmpty, "an effect calls the shard while effects are performed")
        body(&core.pointee.shard.shard)
        perform()
    }

    /// Makes a call that rarely has effects; checking the result of `body` is cheaper than taking an empty list of effects.
    ///
    /// `body` returns whether the call has effects.
    @inline(__always)
    func withQuietShard(_ body: (inout Shard) -> Bool) {
        assert(core.pointee.shard.effects.isEmpty, "an effect calls the shard while effects are performed")
        if body(&core.pointee.shard.shard) { perform() }
    }

    /// `withShard` for a publish; a closure cannot capture the borrowed command.
    @inline(__always)
    func publish(_ command: borrowing PublishCommand) {
        assert(core.pointee.shard.effects.isEmpty, "an effect calls the shard while effects are performed")
        core.pointee.shard.shard.publish(command, now: now)
        perform()
    }

    private func perform() {
        core.pointee.shard.shard.takeEffects(into: &core.pointee.shard.effects)
        let count = core.pointee.shard.effects.count
        for index in 0..<count {
            if index + 2 < count { foresee(index + 2, isNext: true) }
            if index + 6 < count { foresee(index + 6, isNext: false) }
            perform(core.pointee.shard.effects[index])
        }
        core.pointee.shard.effects.removeAll(keepingCapacity: true)
        performed()
    }

    /// Prefetches the memory that an effect will use: first its session's record, later the stream.
    private func foresee(_ index: Int, isNext: Bool) {
        guard case .deliver(let session, let deliver) = core.pointee.shard.effects[index] else { return }
        if isNext {
            sessions.foreseeStream(session)
        } else {
            sessions.foreseeRecord(session)
            if let row = deliver.row.baseAddress { prefetch(row, byteCount: min(deliver.row.count, 512)) }
        }
    }
}
