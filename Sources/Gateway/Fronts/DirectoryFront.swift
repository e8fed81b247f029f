internal import Delivery
internal import Directory
internal import EventLoops
internal import PushAPI
internal import Wire

/// Runs the operations on aliases, tags, blacklist and badge that one loop's requests ask for: sends their steps to the
/// loops of their buckets, feeds them the replies, and says when they are done.
///
/// It also keeps the counts of the apps whose own bucket is this loop's.
final class DirectoryFront {
    private struct Pending {
        var app: AppKey
        var operation: DirectoryOperation
        var complete: (DirectoryOperation) -> Void
    }

    /// Operations under way at once on one loop; more are told to come back.
    static let pendingLimit = 16_384

    private unowned let owner: GatewayLoop
    private var operations = StampedTable<Pending>(limit: DirectoryFront.pendingLimit)
    /// Calls that wait until another loop has counted them.
    private var chargeCount = 0
    private var counts = CallCounts()

    init(_ owner: GatewayLoop) { self.owner = owner }

    var hasWorkUnderWay: Bool { operations.count > 0 || chargeCount > 0 }

    // MARK: Operations

    /// False when too many are under way; `complete` is not called then.
    func run(
        _ work: DirectoryOperation.Work, app: AppKey, complete: @escaping (DirectoryOperation) -> Void
    ) -> Bool {
        var operation = DirectoryOperation(work, loopCount: owner.loopCount)
        let steps = operation.start()
        guard !operation.isDone else {
            complete(operation)
            return true
        }
        guard let (slot, stamp) = operations.insert(Pending(app: app, operation: operation, complete: complete)) else {
            return false
        }
        send(steps, app: app, owner.route(.directory, slot, stamp))
        return true
    }

    private func send(_ steps: [StepToSend], app: AppKey, _ route: Route) {
        for step in steps {
            let (target, bucket): (Int, Bucket) =
                switch step.target {
                case .bucket(let bucket): (bucket.loop(of: owner.loopCount), bucket)
                case .loop(let loop): (loop, Bucket(UInt16(loop)))
                }
            owner.direct(
                DirectoryCommand(origin: route.origin(step.request), app: app, bucket: bucket, step: step.step),
                to: target)
        }
    }

    func answered(_ route: Route, _ request: UInt64, _ reply: DirectoryReply) {
        guard var pending = operations[route.slot, route.stamp] else { return }
        let steps = pending.operation.receive(request, reply)
        guard pending.operation.isDone else {
            operations[route.slot, route.stamp] = pending
            send(steps, app: pending.app, route)
            return
        }
        operations.remove(route.slot, route.stamp)
        pending.complete(pending.operation)
    }

    // MARK: Quotas

    /// Asks the loop that counts the app's calls.
    func charge(_ call: CountedCall, app: AppKey, complete: @escaping (QuotaVerdict) -> Void) -> Bool {
        let target = Bucket(digest: app.word).loop(of: owner.loopCount)
        guard !owner.isHere(target) else {
            complete(count(call, app: app))
            return true
        }
        guard chargeCount < Self.pendingLimit else { return false }
        chargeCount += 1
        owner.ask(Bucket(digest: app.word), .charge(call, app)) { [unowned self] answer in
            chargeCount -= 1
            // A quota that cannot be asked for does not stop the call: the step behind it answers for itself.
            guard case .charged(let verdict) = answer else { return complete(.granted) }
            complete(verdict)
        }
        return true
    }

    /// On the loop that counts.
    func count(_ call: CountedCall, app: AppKey) -> QuotaVerdict {
        counts.charge(app, call, owner.limits.quota(of: call), now: owner.now)
    }
}
