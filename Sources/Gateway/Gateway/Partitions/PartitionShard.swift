internal import Delivery
internal import Platform
internal import Wire

// The only file that touches a partition's shard. The bytes that an effect points to are valid until the shard's next call,
// so the partition performs the effects of each call at once. `withShard` does both: no caller can forget the second half.

/// A partition's shard and the effects that are performed now.
struct PartitionShard: ~Copyable {
    fileprivate var shard: Shard
    /// Empty except while effects are performed.
    fileprivate var effects: [Effect] = []

    init(_ shard: consuming Shard) { self.shard = shard }

    mutating func setLimits(_ limits: ShardLimits) { shard.setLimits(limits) }

    // MARK: What others may read; none of it has effects

    // A function each: a closure that borrows the shard would get a copy of its kilobytes. So would a call of another module
    // that borrows it; what is asked often is `mutating` therefore, down to the shard.

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
    /// Calls the shard, then performs everything that the call wants done.
    ///
    /// `body` makes one call: a second one would end what the first one's effects point to. While effects are performed
    /// nothing may call the shard. An answer for this event loop itself may lead to the next command, so it waits
    /// until all effects are performed.
    @inline(__always)
    func withShard(_ body: (inout Shard) -> Void) {
        assert(core.pointee.shard.effects.isEmpty, "an effect calls the shard while effects are performed")
        body(&core.pointee.shard.shard)
        perform()
    }

    /// The same for a call that hardly ever has effects: to look first costs less than to perform none.
    ///
    /// `body` returns what the call says of itself: whether there are effects.
    @inline(__always)
    func withQuietShard(_ body: (inout Shard) -> Bool) {
        assert(core.pointee.shard.effects.isEmpty, "an effect calls the shard while effects are performed")
        if body(&core.pointee.shard.shard) { perform() }
    }

    /// `withShard` for a publish: a closure cannot capture the command, which is borrowed.
    @inline(__always)
    func publish(_ command: borrowing PublishCommand) {
        assert(core.pointee.shard.effects.isEmpty, "an effect calls the shard while effects are performed")
        core.pointee.shard.shard.publish(command, now: now)
        perform()
    }

    /// Performs everything that the shard wants done, then what must wait for the end of that.
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

    /// Fetches what an effect will use: its session's record first, and when that is here the stream.
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
