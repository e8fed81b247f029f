internal import Delivery
internal import Wire

/// A command about tasks, reports, feeds or operators' inspections; the answer follows once its writes are durable.
extension TaskCommand: PartitionRequest {
    typealias Answer = TaskAnswer
    static let number: UInt8 = 8
    var busy: TaskAnswer { .busy }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.withShard { $0.task(self, origin: origin, now: partition.now) }
    }

    func isValid(in share: LoopShare) -> Bool {
        switch self {
        case .create(let record, let key, _):
            // A request's row and its task's row must be in the same bucket.
            let call = CallKey(high: key.0, low: key.1)
            return record.isValid && share.contains(record.id.home)
                && (key == (0, 0) || call.bucket == record.id.home)
        case .load(let task, _), .change(let task, _, _), .targets(let task, _), .stopSingle(let task, _):
            return share.contains(task.home)
        case .park(let task, _, let devices), .keepSiblings(let task, let devices):
            return share.contains(task.home) && devices.count <= TaskBounds.targetsOfARow
        case .scan(let scan):
            return scan.record.isValid && scan.record.broadcast != nil && share.isSame(as: scan.share)
                && scan.buckets.lowerBound >= 0 && scan.buckets.upperBound <= Bucket.count
        case .advance(let task, _, let position, _): return share.contains(task.home) && 0...Bucket.count ~= position
        case .sweep(_, _, let given), .totals(_, _, let given), .removeCounters(_, let given, _),
            .liveBroadcasts(let given, _), .broadcastHeads(let given):
            return share.isSame(as: given)
        case .day, .foldable, .online: return true
        case .endSibling(_, _, _, let bucket, _): return share.contains(bucket)
        case .settleFirstAck(let first): return share.contains(first.message.bucket)
        case .begin(let key, _, _, let devices):
            return share.contains(key.bucket) && devices.count <= TaskBounds.callTargets
        case .end(let key, let outcomes):
            return share.contains(key.bucket) && outcomes?.count ?? 0 <= TaskBounds.callTargets
        case .joinGroup(_, let bucket, _), .group(let bucket, _): return share.contains(bucket)
        case .inspect(let inspection): return inspection.isValid(in: share)
        case .feed(let command): return share.contains(command.feed.home) && command.isValid
        }
    }

    static func isValid(_ answer: TaskAnswer) -> Bool {
        switch answer {
        case .totals(let totals): totals.isValid
        case .day(let day): day.messages.isValid
        case .record(let record): record.isValid
        case .liveBroadcasts(let logs, _): logs.allSatisfy(\.isValid)
        case .feed(.page(let page)): page.isValid
        default: true
        }
    }
}

extension MessageContent {
    /// Whether the time to live is in the range allowed for callers.
    var isValid: Bool { -1...LinkCodec.timeToLiveLimit ~= timeToLive }
}

extension TaskRecord {
    var isValid: Bool {
        let times = [createdAt, validUntil, scheduleAt, firedAt, resumeAt]
        guard content.isValid, times.allSatisfy(LinkCodec.isTime) else { return false }
        guard let broadcast else { return true }
        return id.home == app.home && LinkCodec.isTime(broadcast.launchedAt) && LinkCodec.isTime(broadcast.expiresAt)
            && 0...Int64(Int32.max) ~= broadcast.speed && 0...Bucket.count ~= broadcast.position
    }
}

extension TaskTotals {
    fileprivate var isValid: Bool { finals.count == FinalState.allCases.count }
}

extension FeedCommand {
    fileprivate var isValid: Bool {
        switch self {
        case .upstream(let message): message.payload.count <= MessageBounds.payloadByteCount
        case .append(_, let items, let lost):
            items.count <= FeedBounds.pageItems && lost < 1 << 48
                && items.allSatisfy {
                    LinkCodec.isTime($0.at) && $0.payload.count <= MessageBounds.payloadByteCount
                }
        case .read(let read):
            1...FeedBounds.pageItems ~= read.limit && 0...FeedBounds.waitMilliseconds ~= read.waitMilliseconds
        case .acknowledge, .state: true
        }
    }
}

extension FeedPage {
    /// Whether the page's numbers cannot overflow and its size is within the limit.
    fileprivate var isValid: Bool {
        1..<(1 << 62) ~= first && missed < first && items.count <= FeedBounds.pageItems
            && items.allSatisfy { $0.payload.count <= MessageBounds.payloadByteCount }
    }
}

extension Inspection {
    fileprivate func isValid(in share: LoopShare) -> Bool {
        switch self {
        case .recent(let place, let limit): share.contains(place.bucket) && 1...Self.answerLimit ~= limit
        case .requests(_, let keys, let tasks, let given):
            keys.count <= Self.keyLimit && tasks.count <= Self.keyLimit && share.isSame(as: given)
        case .call(let key): share.contains(key.bucket)
        case .single(let task, _): share.contains(task.home)
        case .devices(_, _, let limit, let given): 1...Self.answerLimit ~= limit && share.isSame(as: given)
        case .jobs(_, let limit): 1...Self.answerLimit ~= limit
        case .change(let place, _): share.contains(place.bucket)
        }
    }
}
