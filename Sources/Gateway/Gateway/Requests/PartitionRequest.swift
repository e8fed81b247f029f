internal import Delivery
internal import EventLoops
internal import Wire

// Each question to a partition has a type in this folder and one entry in `PartitionRequests.types`. The type has the fields, the
// wire number, the answer of a busy partition, the bounds and the work. For a question to the partition's shard,
// `ShardQuestion` in Delivery has the fields and the work, and the type here has the other parts.

/// A question to one partition, on any gateway of the cluster, with one answer.
///
/// Callers use `Partitions.ask`. Publishes, lists and their answers use their own batches (`CommandBatch`, `Fanout`).
protocol PartitionRequest: Codable, Sendable {
    associatedtype Answer: Codable, Sendable

    /// The request's number between gateways; never reused.
    static var number: UInt8 { get }
    /// The answer if no partition accepted the question; no work was done, and the caller may retry.
    var busy: Answer { get }
    /// Whether a partition may accept the question from another gateway: its buckets belong to the partition, and its numbers are
    /// in bounds.
    func isValid(in share: LoopShare) -> Bool
    /// Whether a caller may accept the answer from another gateway.
    static func isValid(_ answer: Answer) -> Bool
    /// Does the work on the partition's event loop; must answer once, through the shard's effects or with `Partition.reply`.
    func perform(on partition: Partition, _ origin: Origin)
    /// Whether a full mailbox refuses the question at once; otherwise it waits for room, for at most a second.
    static var isRefusedWhenFull: Bool { get }
    /// The kind by which pending requests are limited (`PendingRequests.kindLimit`).
    static var kind: UInt8 { get }
    /// Whether the request has no answer; `EventLoopHost.tellAgain` repeats a notice that could not be sent.
    static var isNotice: Bool { get }
    /// Returns the partition whose broadcasts a notice is about.
    func home(of partitionCount: Int) -> Int?
}

extension PartitionRequest {
    static func isValid(_ answer: Answer) -> Bool { true }
    static var isRefusedWhenFull: Bool { false }
    static var kind: UInt8 { number }
    static var isNotice: Bool { Answer.self == NoAnswer.self }
    func home(of partitionCount: Int) -> Int? { nil }
}

extension PartitionRequest where Self: ShardQuestion {
    static var kind: UInt8 { 0 }
    func perform(on partition: Partition, _ origin: Origin) {
        partition.withShard { $0.ask(self, origin: origin, now: partition.now) }
    }
}

extension PartitionRequest where Answer: ExpressibleByNilLiteral {
    var busy: Answer { nil }
}

extension PartitionRequest where Answer == Bool {
    var busy: Bool { false }
}

struct NoAnswer: Codable, Sendable {}

extension PartitionRequest where Answer == NoAnswer {
    var busy: NoAnswer { NoAnswer() }
}

enum PartitionRequests {
    static let types: [any PartitionRequest.Type] = [
        LeaseCommand.self, SettleJobs.self, ExtendLeases.self, TakeReceipts.self, LeasedJobsQuery.self,
        DeviceStatusRequest.self, MessageTraceRequest.self,
        ReceiptCommand.self, DirectoryCommand.self, LaunchBroadcast.self, TellBroadcasts.self, OfferBroadcasts.self,
        TaskMessageRequest.self, TestDevicesCall.self, RevokeToken.self, OnlinePointsRequest.self,
        OnlinePeakRequest.self, StartRowsRequest.self, CountRates.self, CountQueues.self, ChangeApp.self,
        AppNewsRequest.self, CreateTask.self, LoadTask.self, ChangeTask.self, ParkTargets.self, ReadTargets.self,
        SweepTask.self, StopSingle.self, KeepSiblings.self, EndSibling.self, SettleFirstAck.self, BeginCall.self,
        EndCall.self, JoinGroup.self, ReadGroup.self, TaskTotalsQuery.self, DayQuery.self, FoldableQuery.self,
        RemoveCounters.self, OnlineQuery.self, ScanBroadcast.self, AdvanceBroadcast.self, LiveBroadcasts.self,
        BroadcastHeads.self, RecentQuery.self, RequestQuery.self, CallQuery.self, SingleQuery.self,
        DeviceListQuery.self, JobsQuery.self, ChangeDevice.self, FeedCommand.self,
    ]

    private static let byNumber = Dictionary(uniqueKeysWithValues: types.map { ($0.number, $0) })

    static func type(_ number: UInt8) -> (any PartitionRequest.Type)? { byNumber[number] }
}

extension LoopShare {
    /// Whether a bucket belongs to the share; `false` for `nil`.
    func contains(_ bucket: Bucket?) -> Bool { bucket.map { $0.loop(of: count) == index } ?? false }
    var hasGatewayRows: Bool { contains(Bucket(0)) }
    /// Whether a scan of `other` covers exactly this share.
    func isSame(as other: LoopShare) -> Bool { other == LoopShare(index: index, count: count) }
}

/// Access to all partitions of the cluster, for handlers.
protocol Partitions: AnyObject {
    var partitionCount: Int { get }
    /// Asks a partition; `completion` runs once on the caller's thread, with the request's `busy` value if there is no answer.
    func ask<Request: PartitionRequest>(
        _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void)
}

extension Partitions {
    func ask<Request: PartitionRequest>(
        _ request: Request, of bucket: Bucket, completion: @escaping (Request.Answer) -> Void
    ) {
        ask(request, of: bucket.loop(of: partitionCount), completion: completion)
    }
}

extension EventLoopHost: Partitions {
    var partitionCount: Int { context.partitionCount }

    func ask<Request: PartitionRequest>(
        _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void
    ) {
        guard let (slot, stamp) = core.pointee.requests.insert(request, completion: completion) else {
            return completion(request.busy)
        }
        pass(request, to: partition, route(.request, slot, stamp).origin(0))
    }

    /// Sends a notice to a partition.
    func tell<Notice: PartitionRequest>(_ notice: Notice, to partition: Int) where Notice.Answer == NoAnswer {
        pass(notice, to: partition, .none)
    }

    private func pass(_ request: some PartitionRequest, to partition: Int, _ origin: Origin) {
        guard let here = servingPartition(partition) else { return send(.request(request, origin), to: partition) }
        request.perform(on: here, origin)
    }
}
