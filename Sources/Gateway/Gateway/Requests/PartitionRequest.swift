internal import Delivery
internal import EventLoops
internal import Wire

// A question to a partition is one file of this folder and one line in `PartitionRequests.types`. The file has the fields, the
// number between gateways, the answer of a partition that did nothing, the bounds, and the work.

/// A question to one partition, on any gateway of the cluster, with one answer.
///
/// Callers use `Partitions.ask`. Publishes, lists and their answers have batches of their own (`CommandBatch`, `Fanout`).
protocol PartitionRequest: Codable, Sendable {
    associatedtype Answer: Codable, Sendable

    /// The number between gateways; none is given again.
    static var number: UInt8 { get }
    /// The answer when no partition took the question: nothing was done, and the caller may ask again.
    var busy: Answer { get }
    /// Whether a partition may take the question from another gateway: its buckets are the partition's, its numbers in bounds.
    func isValid(in share: LoopShare) -> Bool
    /// Whether a caller may take the answer from another gateway.
    static func isValid(_ answer: Answer) -> Bool
    /// Does the work, on the partition's event loop; answered once, through its shard's effects or with `Partition.reply`.
    func perform(on partition: Partition, _ origin: Origin)
    /// Whether a full mailbox refuses the question at once. Otherwise the question waits for room, a second at most.
    static var isRefusedWhenFull: Bool { get }
    /// True for a request without an answer; one that did not go out is made good by `EventLoopHost.tellAgain`.
    static var isNotice: Bool { get }
    /// The partition whose broadcasts a notice is about.
    func home(of partitionCount: Int) -> Int?
}

extension PartitionRequest {
    static func isValid(_ answer: Answer) -> Bool { true }
    static var isRefusedWhenFull: Bool { false }
    static var isNotice: Bool { Answer.self == NoAnswer.self }
    func home(of partitionCount: Int) -> Int? { nil }
}

/// The answer type of notices.
struct NoAnswer: Codable, Sendable {}

extension PartitionRequest where Answer == NoAnswer {
    var busy: NoAnswer { NoAnswer() }
}

/// Every kind of question.
enum PartitionRequests {
    static let types: [any PartitionRequest.Type] = [
        LeaseCommand.self, SettleJobs.self, ExtendLeases.self, DeviceStatusRequest.self, MessageTraceRequest.self,
        ReceiptCommand.self, DirectoryCommand.self, TaskCommand.self, LaunchBroadcast.self, TellBroadcasts.self,
        OfferBroadcasts.self, TaskMessageRequest.self, TestDevicesCall.self, RevokeToken.self, OnlinePointsRequest.self,
        OnlinePeakRequest.self, StartRowsRequest.self, CountRates.self, CountQueues.self, ChangeApp.self,
        AppNewsRequest.self,
    ]

    private static let byNumber = Dictionary(uniqueKeysWithValues: types.map { ($0.number, $0) })

    static func type(_ number: UInt8) -> (any PartitionRequest.Type)? { byNumber[number] }
}

extension LoopShare {
    /// Whether a bucket belongs to the share; false for `nil`.
    func contains(_ bucket: Bucket?) -> Bool { bucket.map { $0.loop(of: count) == index } ?? false }
    /// Whether the share is the one of the gateway's own rows.
    var hasGatewayRows: Bool { contains(Bucket(0)) }
    /// Whether a scan of `other` is a scan of this share.
    func isSame(as other: LoopShare) -> Bool { other == LoopShare(index: index, count: count) }
}

/// The questions of one host that wait for their answers.
struct PendingRequests {
    /// More than this of one kind at once are answered as busy, so that no kind crowds the others out.
    static let kindLimit = 1 << 16
    /// The same of all kinds.
    static let limit = 1 << 18

    /// An object, so that a slot is one word.
    private final class Pending {
        let number: UInt8
        let complete: ((any Sendable)?) -> Void
        init(_ number: UInt8, _ complete: @escaping ((any Sendable)?) -> Void) {
            (self.number, self.complete) = (number, complete)
        }
    }

    private var table = StampedTable<Pending>(limit: PendingRequests.limit)
    /// By the numbers of their kinds.
    private var counts = [Int](repeating: 0, count: Int(UInt8.max) + 1)

    var count: Int { table.count }

    /// Takes a question in; `nil` when too many wait.
    mutating func insert<Request: PartitionRequest>(
        _ request: Request, completion: @escaping (Request.Answer) -> Void
    ) -> (slot: UInt32, stamp: UInt32)? {
        let (busy, kind) = (request.busy, Int(Request.number))
        guard counts[kind] < Self.kindLimit else { return nil }
        let place = table.insert(
            Pending(Request.number) { answer in completion(answer as? Request.Answer ?? busy) })
        if place != nil { counts[kind] += 1 }
        return place
    }

    /// Takes a question out; the caller runs the completion.
    mutating func remove(_ route: Route) -> (((any Sendable)?) -> Void)? {
        guard let pending = table.remove(route.slot, route.stamp) else { return nil }
        counts[Int(pending.number)] -= 1
        return pending.complete
    }
}

/// All partitions of the cluster, whichever gateway and host has each: what a handler needs of its host.
protocol Partitions: AnyObject {
    var partitionCount: Int { get }
    /// Asks a partition; `completion` runs on the asker's thread, once. Without an answer it gets the request's `busy`.
    func ask<Request: PartitionRequest>(
        _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void)
}

extension Partitions {
    /// Asks the partition of a bucket.
    func ask<Request: PartitionRequest>(
        _ request: Request, of bucket: Bucket, completion: @escaping (Request.Answer) -> Void
    ) {
        ask(request, of: bucket.loop(of: partitionCount), completion: completion)
    }
}

extension EventLoopHost: Partitions {
    var partitionCount: Int { context.partitionCount }

    /// Asks a partition, here or on another gateway; `completion` runs on this loop, once.
    func ask<Request: PartitionRequest>(
        _ request: Request, of partition: Int, completion: @escaping (Request.Answer) -> Void
    ) {
        guard let (slot, stamp) = core.pointee.requests.insert(request, completion: completion) else {
            return completion(request.busy)
        }
        pass(request, to: partition, route(.request, slot, stamp).origin(0))
    }

    /// Sends a partition a request without an answer.
    func tell<Notice: PartitionRequest>(_ notice: Notice, to partition: Int) where Notice.Answer == NoAnswer {
        pass(notice, to: partition, .none)
    }

    private func pass(_ request: some PartitionRequest, to partition: Int, _ origin: Origin) {
        guard let here = servingPartition(partition) else { return send(.request(request, origin), to: partition) }
        request.perform(on: here, origin)
    }
}
