internal import APNs
internal import Delivery
internal import MessageStore
internal import PushAPI
internal import Wire

struct LeaseAnswer: Codable, Sendable {
    var jobs: [Job]
    /// The channels for which the partition still had due jobs.
    var due: ChannelSet
}

/// Leases a partition's due jobs; the answer follows once the leases are durable.
///
/// `nil`: the question was not accepted, or its answer was lost. The partition may have jobs, and may have leased some.
extension LeaseCommand: PartitionRequest {
    typealias Answer = LeaseAnswer?
    static let number: UInt8 = 1
    var busy: LeaseAnswer? { nil }

    func isValid(in share: LoopShare) -> Bool {
        0...HandoffBounds.jobCount ~= limit && leaseMilliseconds >= 0
    }

    func perform(on partition: Partition, _ origin: Origin) {
        // A lease is answered once it is durable. While the store is stalled, the round asks the other partitions.
        guard !partition.store.isStuck else {
            return partition.reply(Optional(LeaseAnswer(jobs: [], due: ChannelSet(channel))), to: origin)
        }
        var command = self
        command.origin = origin
        partition.withShard { $0.lease(command, now: partition.now) }
    }
}

/// Settles a partition's leased jobs; the answer has a verdict for each, in order, once they are durable.
struct SettleJobs: PartitionRequest {
    static let number: UInt8 = 2
    var results: [JobResult]
    /// The apps of the caller; `nil` for all.
    ///
    /// Jobs of other apps are reported as unknown.
    var apps: Set<AppKey>?

    var busy: [ResultVerdict] { results.map { ResultVerdict(job: $0.job, verdict: .storeFailed) } }

    func isValid(in share: LoopShare) -> Bool {
        results.count <= HandoffBounds.jobCount
            && results.allSatisfy {
                share.contains($0.job.bucket) && $0.timestamp >= 0 && $0.retryAfterMilliseconds >= 0
            }
    }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.withShard { $0.settle(results, apps: apps, origin: origin, now: partition.now) }
    }
}

/// Extends a partition's leases, with answers as in `SettleJobs`.
struct ExtendLeases: PartitionRequest {
    static let number: UInt8 = 3
    var items: [ExtendItem]
    var milliseconds: Int64
    var apps: Set<AppKey>?

    var busy: [ResultVerdict] { items.map { ResultVerdict(job: $0.job, verdict: .storeFailed) } }

    func isValid(in share: LoopShare) -> Bool {
        items.count <= HandoffBounds.jobCount && milliseconds >= 0 && items.allSatisfy { share.contains($0.job.bucket) }
    }

    func perform(on partition: Partition, _ origin: Origin) {
        let items = items.map { ($0.job, $0.leaseID) }
        partition.withShard {
            $0.extend(items, milliseconds: milliseconds, apps: apps, origin: origin, now: partition.now)
        }
    }
}

extension LeasedJobsQuery: PartitionRequest {
    static let number: UInt8 = 56
    func isValid(in share: LoopShare) -> Bool { leases.count <= Self.leaseLimit }
    static func isValid(_ answer: [LeasedJob]?) -> Bool {
        answer.map { $0.count <= Self.leaseLimit * HandoffBounds.jobCount } ?? true
    }

    func perform(on partition: Partition, _ origin: Origin) {
        guard !partition.store.isStuck else { return partition.replyBusy(to: origin) }
        partition.withShard { $0.ask(self, origin: origin, now: partition.now) }
    }
}

extension TakeReceipts: PartitionRequest {
    static let number: UInt8 = 55
    var busy: [ResultVerdict] { receipts.map { ResultVerdict(job: $0.message, verdict: .storeFailed) } }

    func isValid(in share: LoopShare) -> Bool {
        receipts.count <= HandoffBounds.jobCount
            && receipts.allSatisfy {
                share.contains($0.message.bucket) && LinkCodec.isTime($0.at)
                    && $0.token.utf8.count <= Wire.Limits.tokenByteCount
            }
    }
}

struct ExtendItem: Sendable, Codable {
    var job: MessageID
    @Words var leaseID: (UInt64, UInt64)
}
