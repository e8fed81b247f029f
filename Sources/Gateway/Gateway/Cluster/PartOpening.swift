internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

// The steps of opening a partition, and their waits:
//
//   worker   opens the partition's log under its epoch (fence, replay) and reads the shard's initial rows
//   loop     requests the folded days from part 0's owner, and waits at most half a second for them
//   worker   reads the counters, which depend on the folded days
//   loop     opens the partition, which requests the live broadcasts of apps from every other partition
//   loop     accepts devices after every partition has answered once, or after a second
//
// No partition depends on part 0. A shard without the folded days withholds counters of days that may have been folded. It
// returns no counts of any day until part 0's owner answers (`Shard.learnFold`).
//
// A broadcast stays unknown to the shard while its app's home partition has no owner. Devices of the app are accepted, but their
// broadcasts wait until the home has an owner. An unavailable partition therefore blocks no devices of other partitions.
//
// A broadcast that starts during the opening is not lost. The home either includes the broadcast in its answer, or announces it
// once the home's gateway knows the partition's new owner (`ClusterHost.setRoute`).

/// The opening of one partition on this gateway.
final class PartOpening: @unchecked Sendable {
    // Sound because only one thread at a time runs a step, and a queue of a loop or of the workers passes the object on.

    let part: Int
    let epoch: UInt64
    private let host: ClusterHost
    private var store: (any LoopStore)?
    private var meta: MetaRows?
    private var broadcasts = BroadcastStart()
    private var fold: CounterFold?
    /// Whether the wait for the folded days has ended; accessed only on the partition's loop.
    private var isReading = false
    /// The folded days, if they arrived after the wait; accessed only on the partition's loop.
    private var lateFold: FoldedDays?
    /// Whether the partition was opened; accessed only on the partition's loop.
    private(set) var isOwned = false

    init(_ part: Int, epoch: UInt64, host: ClusterHost) { (self.part, self.epoch, self.host) = (part, epoch, host) }

    /// Closes an unfinished opening's store, after the loops and the workers have ended.
    func closeLeftover() { if !isOwned { store?.close() } }

    private func onLoop(_ work: @escaping @Sendable (EventLoopHost) -> Void) {
        host.context.host(of: part).submit(work)
    }

    /// Opens the partition's log; runs on a worker.
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

    /// The longest wait for the folded days.
    private static let foldMilliseconds: Int64 = 500

    /// Requests the folded days from part 0's owner, with retries until it answers.
    private func askFold(on member: EventLoopHost, delay: Int64) {
        guard !host.isGivenUp(part, epoch: epoch) else { return isReading ? () : abandonReading() }
        member.ask(StartRowsRequest(), of: Bucket(0)) { answer in
            guard let rows = answer else {
                // Part 0 has no owner yet, or its owner did not answer.
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

    /// Continues the opening with or without the folded days; only the first call has an effect.
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

    /// Reads the counters; runs on a worker.
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

    /// The longest time that devices wait for other partitions' broadcasts.
    private static let gatherMilliseconds: Int64 = 1_000

    /// Requests the broadcasts of other partitions' apps, then accepts devices.
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

    /// Closes the store after the opening was cancelled.
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

/// Transfers a value that is not `Sendable` to another thread.
struct Unchecked<Value>: @unchecked Sendable {
    let value: Value  // Sound because the previous thread does not use it again.
    init(_ value: Value) { self.value = value }
}
