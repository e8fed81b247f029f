internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

// How a part begins to be served here. What may wait, and for whom:
//
//   worker   opens the part's log under its epoch (fence, replay) and reads what a shard starts with
//   loop     meanwhile asks the owner of part 0 which days are folded and which tokens are void
//   worker   reads the counters, which needs both
//   loop     seats the shard, then asks every other part's shard for the live broadcasts of its apps
//   loop     welcomes devices when it has all of them
//
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
    private var isSeated = false

    init(_ part: Int, epoch: UInt64, host: ClusterHost) { (self.part, self.epoch, self.host) = (part, epoch, host) }

    /// Gives up what the opening still holds; the loops and the workers have ended.
    func closeLeftover() { if !isSeated { store?.close() } }

    private func onLoop(_ work: @escaping @Sendable (GatewayLoop) -> Void) { host.context.members[part].submit(work) }

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
        onLoop { self.askFold(on: $0, delay: 50) }
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

    private func askFold(on member: GatewayLoop, delay: Int64) {
        guard !host.isGivenUp(part, epoch: epoch) else { return abandon() }
        member.ask(Bucket(0), .startRows) { [unowned member] answer in
            guard case .startRows(let folded, let revoked) = answer else {
                // The owner of part 0 is not there yet.
                return member.campaigns.coordinator.later(delay) { [unowned member] in
                    self.askFold(on: member, delay: min(500, delay * 2))
                }
            }
            self.host.learn(revoked)
            self.fold = CounterFold(folded)
            self.host.onWorker { self.readCounters() }
        }
    }

    /// On a worker.
    private func readCounters() {
        guard let store, let fold else { return }
        do throws(StoreError) {
            let start = try ShardStart(
                store, LoopShare(index: part, count: host.context.loopCount), broadcasts: broadcasts, fold: fold,
                now: host.time.now ?? 0)
            if let meta { host.restore(meta) }
            let box = Unchecked(start)
            onLoop { self.seat(box.value, on: $0) }
        } catch { fail(error) }
    }

    private func seat(_ start: ShardStart, on member: GatewayLoop) {
        guard !host.isGivenUp(part, epoch: epoch) else { return abandon() }
        member.store.close()
        member.welcomesDevices = false
        member.seat(start)
        isSeated = true
        host.seated(part)
        gather(on: member, missing: Set(0..<host.context.loopCount).subtracting([part]), delay: 20)
    }

    /// Asks the other parts for their apps' broadcasts; those that do not answer are asked again.
    private func gather(on member: GatewayLoop, missing: Set<Int>, delay: Int64) {
        guard !host.isGivenUp(part, epoch: epoch), member.isHere(part) else { return }
        guard !missing.isEmpty else {
            member.welcomesDevices = true
            return host.report(.opened(part, epoch: epoch))
        }
        let count = host.context.loopCount
        let gathering = Gathering<(Int, TaskAnswer)>(count: missing.count) { [unowned member] answers in
            var left: Set<Int> = []
            for (part, answer) in answers {
                guard case .liveBroadcasts(let logs) = answer else {
                    left.insert(part)
                    continue
                }
                guard !logs.isEmpty, member.isHere(self.part) else { continue }
                member.withShard { $0.learn(logs, loopCount: count, now: member.now) }
            }
            guard !left.isEmpty else { return self.gather(on: member, missing: left, delay: delay) }
            // A part without owner keeps its apps' broadcasts to itself; it tells of them when it is served again.
            member.campaigns.coordinator.later(delay) { [unowned member] in
                self.gather(on: member, missing: left, delay: min(500, delay * 2))
            }
        }
        for other in missing {
            member.campaigns.coordinator.ask(other, .liveBroadcasts(LoopShare(index: other, count: count))) {
                gathering.take((other, $0))
            }
        }
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
