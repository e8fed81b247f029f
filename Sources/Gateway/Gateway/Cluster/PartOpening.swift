internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

// How a part begins to be served here. What may wait, and for whom:
//
//   worker   opens the part's log under its epoch (fence, replay) and reads what a shard starts with
//   loop     asks the owner of part 0 which days are folded; after half a second it goes on without
//   worker   reads the counters, which needs both
//   loop     opens the partition, which asks every other part for the live broadcasts of its apps
//   loop     welcomes devices when each has answered once, or a second has passed
//
// So no part waits for part 0. A shard that does not know the folded days withholds what it counted on days that may be
// among them, and tells no counts of any day, until part 0's owner has answered (`Shard.learnFold`).
// The broadcasts of an app whose home has no owner stay unknown to the shard: devices of that app are welcomed, and their
// broadcasts wait until the home is served again. So a part that nobody can open stops no device of another part.
// A broadcast that starts meanwhile is not missed: its home tells it to this part either in its answer or, once it
// knows that the part is here, by itself (`ClusterHost.setRoute`).

/// One part on its way to being served.
final class PartOpening: @unchecked Sendable {
    // Sound because a step runs on one thread at a time: each hands over to the next through a loop or a worker.

    let part: Int
    let epoch: UInt64
    private let host: ClusterHost
    private var store: (any LoopStore)?
    private var meta: MetaRows?
    private var broadcasts = BroadcastStart()
    private var fold: CounterFold?
    /// Of the part's loop: what is to be read of the log is known, or not waited for any more.
    private var isReading = false
    /// Of the part's loop: came after that.
    private var lateFold: FoldedDays?
    /// Of the part's loop.
    private(set) var isOwned = false

    init(_ part: Int, epoch: UInt64, host: ClusterHost) { (self.part, self.epoch, self.host) = (part, epoch, host) }

    /// Gives up what the opening still holds; the loops and the workers have ended.
    func closeLeftover() { if !isOwned { store?.close() } }

    private func onLoop(_ work: @escaping @Sendable (EventLoopHost) -> Void) {
        host.context.host(of: part).submit(work)
    }

    /// On a worker.
    func open() {
        guard !host.isGivenUp(part, epoch: epoch) else { return host.report(.closed(part, epoch: epoch)) }
        do throws(StoreError) {
            let loop = host.loop(of: part)
            let store = try host.engine.openPart(
                part, of: host.partCount, epoch: epoch, post: { loop.submit($0) },
                onLost: { [host, part, epoch] _ in host.partLost(part, epoch: epoch) }
            ).store
            self.store = store
            try store.loadAll(table: .broadcast) { broadcasts.take($0) }
            if part == 0 {
                let meta = try MetaRows(loading: store)
                self.meta = meta
                fold = meta.fold
                return readCounters()
            }
        } catch {
            return fail(error)
        }
        onLoop { member in
            self.askFold(on: member, delay: 50)
            member.campaigns.coordinator.later(Self.foldMilliseconds) { self.read() }
        }
    }

    private func fail(_ error: StoreError) {
        guard store != nil else { return host.report(.failed(part, epoch: epoch, error)) }
        onLoop { [self, host, part, epoch] _ in
            store?.close()
            host.onWorker {
                host.engine.closePart(part)
                host.report(.failed(part, epoch: epoch, error))
            }
        }
    }

    /// How long a part waits for the folded days before it is opened without them.
    private static let foldMilliseconds: Int64 = 500

    /// Asks part 0's owner until it has answered.
    private func askFold(on member: EventLoopHost, delay: Int64) {
        guard !host.isGivenUp(part, epoch: epoch) else { return isReading ? () : abandonReading() }
        member.ask(StartRowsRequest(), of: Bucket(0)) { answer in
            guard let rows = answer else {
                // The owner of part 0 is not there yet.
                return member.campaigns.coordinator.later(delay) {
                    self.askFold(on: member, delay: min(500, delay * 2))
                }
            }
            self.host.learn(rows.revoked)
            self.host.learn(appsVersion: rows.appsVersion)
            guard self.isReading else {
                self.fold = CounterFold(rows.folded)
                return self.read()
            }
            self.lateFold = rows.folded
            self.tellFold(member)
        }
    }

    private func abandonReading() {
        isReading = true
        abandon()
    }

    /// Goes on with what is known of the folded days; once.
    private func read() {
        guard !isReading else { return }
        isReading = true
        host.onWorker { self.readCounters() }
    }

    private func tellFold(_ member: EventLoopHost) {
        guard isOwned, let partition = member.servingPartition(part), let folded = lateFold else { return }
        partition.withShard { $0.learnFold(folded, now: partition.now) }
        partition.continueWork()
    }

    /// On a worker.
    private func readCounters() {
        guard let store else { return }
        do throws(StoreError) {
            let start = try PartitionStart(
                store, LoopShare(index: part, count: host.context.partitionCount), broadcasts: broadcasts,
                hasOwnOnly: true,
                fold: fold, now: host.time.now ?? 0)
            if let meta { host.restore(meta) }
            let box = Unchecked(start)
            onLoop { self.serve(box.value, on: $0) }
        } catch { fail(error) }
    }

    private func serve(_ start: PartitionStart, on member: EventLoopHost) {
        guard !host.isGivenUp(part, epoch: epoch) else { return abandon() }
        let partition = member.open(part, start, welcomesDevices: false)
        isOwned = true
        tellFold(member)
        host.served(part)
        gather(partition)
    }

    /// How long devices wait for other parts to tell of their apps' broadcasts.
    private static let gatherMilliseconds: Int64 = 1_000

    /// Asks the other parts for their apps' broadcasts, and welcomes devices.
    private func gather(_ partition: Partition) {
        var isOpen = false
        let open: () -> Void = { [self] in
            guard !isOpen, !host.isGivenUp(part, epoch: epoch), partition.isServing else { return }
            isOpen = true
            partition.welcomesDevices = true
            host.report(.opened(part, epoch: epoch))
        }
        let others = (0..<host.context.partitionCount).filter { $0 != part }
        let gathering = Gathering<Void>(count: others.count) { _ in open() }
        for other in others { partition.learnBroadcasts(of: other) { gathering.take(()) } }
        partition.coordinator.later(Self.gatherMilliseconds, open)
    }

    /// The part is another gateway's before it was served here.
    private func abandon() {
        onLoop { [self, host, part, epoch] _ in
            store?.close()
            host.onWorker {
                host.engine.closePart(part)
                host.report(.closed(part, epoch: epoch))
            }
        }
    }
}

/// Carries a value from the thread that is done with it to the next.
struct Unchecked<Value>: @unchecked Sendable {
    let value: Value  // Sound because the giver does not use it again.
    init(_ value: Value) { self.value = value }
}
