internal import Delivery
internal import Directory
internal import EventLoops
internal import PushAPI
internal import Wire

/// Runs one loop's operations on aliases, tags, blacklist and badge.
///
/// It sends their steps to the loops of the affected buckets and passes the replies back to the operations.
final class DirectoryHandler {
    private struct Pending {
        var app: AppKey
        var operation: DirectoryOperation
        var complete: (DirectoryOperation) -> Void
    }

    /// The most operations in progress on one loop; further requests are refused as busy.
    static let pendingLimit = 16_384

    /// The maximum number of token changes queued for a retry; alarms of the devices' rows repeat the claims above it.
    static let lateTokensLimit = 65_536
    /// The limit on retries, so that an unreachable partition costs little.
    static let lateTokensPerSecond = 2_048

    private unowned let partitions: any Partitions
    private var lateTokens: [TokenNews] = []
    private var operations = StampedTable<Pending>(limit: DirectoryHandler.pendingLimit)

    init(_ partitions: any Partitions) { self.partitions = partitions }

    var hasWorkUnderWay: Bool { operations.count > 0 }

    /// Starts an operation; returns `false`, without calling `complete`, if too many are in progress.
    func run(
        _ work: DirectoryOperation.Work, app: AppKey, complete: @escaping (DirectoryOperation) -> Void
    ) -> Bool {
        var operation = DirectoryOperation(work, loopCount: partitions.partitionCount)
        let steps = operation.start()
        guard !operation.isDone else {
            complete(operation)
            return true
        }
        guard let (slot, stamp) = operations.insert(Pending(app: app, operation: operation, complete: complete)) else {
            return false
        }
        send(steps, app: app, slot, stamp)
        return true
    }

    /// Starts an operation that a device requested.
    ///
    /// Operations of devices, like token updates, may use only half of `pendingLimit`.
    func runForDevice(
        _ work: DirectoryOperation.Work, app: AppKey, complete: @escaping (DirectoryOperation) -> Void
    ) -> Bool {
        operations.count < Self.pendingLimit / 2 && run(work, app: app, complete: complete)
    }

    // MARK: Tokens

    /// Updates the token rows after a change of a device's tokens.
    func follow(_ news: TokenNews) {
        // Token updates may use only half of the limit; the other half is reserved for API requests.
        guard operations.count < Self.pendingLimit / 2 else { return followLater(news) }
        let isTaken = run(.tokens(news), app: news.app) { [self] operation in
            var rest = news
            let failed = operation.outcomes.map { $0 == .failed }
            rest.claims = zip(news.claims, failed).filter(\.1).map(\.0)
            rest.releases = zip(news.releases, failed.dropFirst(news.claims.count)).filter(\.1).map(\.0)
            if !rest.claims.isEmpty || !rest.releases.isEmpty { followLater(rest) }
        }
        if !isTaken { followLater(news) }
    }

    /// Queues a change for a retry in the next second.
    private func followLater(_ news: TokenNews) {
        if lateTokens.count < Self.lateTokensLimit { lateTokens.append(news) }
    }

    /// Retries queued changes; called once a second.
    func tick() {
        guard !lateTokens.isEmpty else { return }
        let late = Array(lateTokens.prefix(Self.lateTokensPerSecond))
        lateTokens.removeFirst(late.count)
        for news in late { follow(news) }
    }

    private func send(_ steps: [StepToSend], app: AppKey, _ slot: UInt32, _ stamp: UInt32) {
        for step in steps {
            let (target, bucket): (Int, Bucket) =
                switch step.target {
                case .bucket(let bucket): (bucket.loop(of: partitions.partitionCount), bucket)
                case .loop(let loop): (loop, Bucket(UInt16(loop)))
                }
            let command = DirectoryCommand(origin: .none, app: app, bucket: bucket, step: step.step)
            partitions.ask(command, of: target) { [self] in answered(slot, stamp, step.request, $0) }
        }
    }

    private func answered(_ slot: UInt32, _ stamp: UInt32, _ request: UInt64, _ reply: DirectoryReply) {
        guard var pending = operations[slot, stamp] else { return }
        let steps = pending.operation.receive(request, reply)
        guard pending.operation.isDone else {
            operations[slot, stamp] = pending
            send(steps, app: pending.app, slot, stamp)
            return
        }
        operations.remove(slot, stamp)
        pending.complete(pending.operation)
    }
}
