internal import APNs
internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

// Messages that came from another gateway are held to what this gateway's own callers are held to: a shard takes them
// without a look.

extension LoopMessage {
    /// Whether a part may take the message: it is for the part's buckets, and its numbers are within their bounds.
    func isSound(inPart part: Int, of parts: Int) -> Bool {
        func isHere(_ bucket: Bucket?) -> Bool { bucket.map { $0.loop(of: parts) == part } ?? false }
        switch self {
        // Checked entry by entry as they were read.
        case .publishes: return true
        case .list(let fanout): return fanout.content.isSound
        case .answers, .adopt: return false
        case .lease(let command):
            return 0...HandoffBounds.jobCount ~= command.limit && command.leaseMilliseconds >= 0
        case .settle(let results, _, _):
            return results.count <= HandoffBounds.jobCount
                && results.allSatisfy {
                    isHere($0.job.bucket) && $0.timestamp >= 0 && $0.retryAfterMilliseconds >= 0
                }
        case .extend(let items, let milliseconds, _, _):
            return items.count <= HandoffBounds.jobCount && milliseconds >= 0
                && items.allSatisfy { isHere($0.job.bucket) }
        case .deviceStatus(let device, _): return isHere(device.bucket)
        case .trace(let message, _): return isHere(message.bucket)
        case .receipt(let command):
            return isHere(command.bucket) && command.events.count <= PushAPI.Limits.receiptEventCount
        case .directory(let command): return isHere(command.bucket) && command.isSound(inPart: part, of: parts)
        case .task(let command, _): return command.isSound(inPart: part, of: parts)
        case .launched(let record): return record.isSound
        case .broadcasts(let logs, let home):
            return 0..<parts ~= home
                && logs.allSatisfy { $0.app.home.loop(of: parts) == home && $0.isSound }
        case .broadcastNews(let home): return 0..<parts ~= home
        case .question(.testDevices(let request, _, let limit), _):
            return isHere(Bucket(0)) && request.isSound && limit >= 0
        case .question(.rates(let reports), _):
            return isHere(Bucket(0)) && reports.count <= RateLimiter.exchangeLimit && reports.allSatisfy(\.isSound)
        case .question(.queues(let queues, let node), _):
            return isHere(Bucket(0)) && PeerConnections.nodes.contains(node) && queues.count <= QueueLedger.appLimit
                && queues.allSatisfy(\.isSound)
        case .question(.app(let change), _): return isHere(Bucket(0)) && change.isSound
        case .question: return isHere(Bucket(0))
        case .news: return true
        }
    }

    /// A gateway tells of its own queues, whichever gateway's its message says they are.
    mutating func setTeller(_ node: Int) {
        guard case .question(.queues(let queues, _), let origin) = self else { return }
        self = .question(.queues(queues, node: node), origin)
    }
}

extension MessageContent {
    /// Its time to live is one that a caller may ask for.
    fileprivate var isSound: Bool { -1...LinkCodec.timeToLiveLimit ~= timeToLive }
}

extension TaskRecord {
    fileprivate var isSound: Bool {
        let times = [createdAt, validUntil, scheduleAt, firedAt, resumeAt]
        guard content.isSound, times.allSatisfy(LinkCodec.isTime) else { return false }
        guard let broadcast else { return true }
        return id.home == app.home && LinkCodec.isTime(broadcast.launchedAt) && LinkCodec.isTime(broadcast.expiresAt)
            && 0...Int64(Int32.max) ~= broadcast.speed && 0...Bucket.count ~= broadcast.position
    }
}

extension AppBroadcasts {
    /// Its broadcasts are the app's, in the order of their numbers, within what it tells of.
    fileprivate var isSound: Bool {
        guard let bounds else { return false }
        var last = bounds.0
        let through = bounds.1
        for record in records {
            guard record.app == app, record.isSound, let number = record.broadcast?.number, last < number,
                number <= through
            else { return false }
            last = number
        }
        return true
    }
}

extension LoopShare {
    fileprivate func isSound(inPart part: Int, of parts: Int) -> Bool {
        index == part && count == parts && bucketCount == Bucket.count
    }
}

extension DirectoryCommand {
    fileprivate func isSound(inPart part: Int, of parts: Int) -> Bool {
        switch step {
        case .reserve(let name, _, _), .release(let name, _), .members(let name), .takeToken(let name, _, _):
            name.bucket == bucket
        case .count(_, let first, let stride): first == part && stride == parts
        case .setAlias, .clearAlias, .holds, .replaceTags, .addTag, .removeTag, .setBlacklisted, .setBadge, .describe,
            .loseToken, .confirmToken:
            true
        }
    }
}

extension TaskCommand {
    fileprivate func isSound(inPart part: Int, of parts: Int) -> Bool {
        func isHere(_ bucket: Bucket?) -> Bool { bucket.map { $0.loop(of: parts) == part } ?? false }
        switch self {
        case .create(let record, let key, _):
            // A request's row and its task's row are in one bucket.
            let call = CallKey(high: key.0, low: key.1)
            return record.isSound && isHere(record.id.home) && (key == (0, 0) || call.bucket == record.id.home)
        case .load(let task, _), .change(let task, _, _), .targets(let task, _), .stopSingle(let task, _):
            return isHere(task.home)
        case .park(let task, _, let devices), .keepSiblings(let task, let devices):
            return isHere(task.home) && devices.count <= TaskBounds.targetsOfARow
        case .scan(let scan):
            return scan.record.isSound && scan.record.broadcast != nil && scan.share.isSound(inPart: part, of: parts)
                && scan.buckets.lowerBound >= 0 && scan.buckets.upperBound <= Bucket.count
        case .advance(let task, _, let position, _): return isHere(task.home) && 0...Bucket.count ~= position
        case .sweep(_, _, let share), .totals(_, _, let share), .removeCounters(_, let share, _),
            .liveBroadcasts(let share, _), .broadcastHeads(let share):
            return share.isSound(inPart: part, of: parts)
        case .day, .foldable, .online: return true
        case .message(_, _, _, let bucket, _), .endSibling(_, _, _, let bucket, _): return isHere(bucket)
        case .settleFirstAck(let first): return isHere(first.message.bucket)
        case .begin(let key, _, _, let devices):
            return isHere(key.bucket) && devices.count <= TaskBounds.callTargets
        case .end(let key, let outcomes):
            return isHere(key.bucket) && outcomes?.count ?? 0 <= TaskBounds.callTargets
        case .joinGroup(_, let bucket, _), .group(let bucket, _): return isHere(bucket)
        case .inspect(let inspection): return inspection.isSound(inPart: part, of: parts)
        case .feed(let command): return isHere(command.feed.home) && command.isSound
        }
    }
}

extension FeedCommand {
    fileprivate var isSound: Bool {
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

extension Inspection {
    fileprivate func isSound(inPart part: Int, of parts: Int) -> Bool {
        func isHere(_ bucket: Bucket) -> Bool { bucket.loop(of: parts) == part }
        switch self {
        case .recent(let place, let limit): return isHere(place.bucket) && 1...Self.answerLimit ~= limit
        case .requests(_, let keys, let tasks, let share):
            return keys.count <= Self.keyLimit && tasks.count <= Self.keyLimit && share.isSound(inPart: part, of: parts)
        case .call(let key): return isHere(key.bucket)
        case .single(let task, _): return isHere(task.home)
        case .devices(_, _, let limit, let share):
            return 1...Self.answerLimit ~= limit && share.isSound(inPart: part, of: parts)
        case .jobs(_, let limit): return 1...Self.answerLimit ~= limit
        case .change(let place, _): return isHere(place.bucket)
        }
    }
}

extension LoopAnswer {
    /// Whether a caller may add the answer up with others.
    var isSound: Bool {
        switch self {
        case .task(_, .totals(let totals)): totals.isSound
        case .task(_, .day(let day)): day.messages.isSound
        case .task(_, .record(let record)): record.isSound
        case .gateway(_, .rates(let totals)): totals.allSatisfy(\.isSound)
        case .gateway(_, .queues(let queues)): queues.allSatisfy(\.isSound)
        case .gateway(_, .apps(let news)): news.isSound
        case .gateway(_, .app(.done(let app, _, _))): app.version < ManagedApps.versionLimit
        case .task(_, .liveBroadcasts(let logs, _)): logs.allSatisfy(\.isSound)
        case .task(_, .feed(.page(let page))): page.isSound
        default: true
        }
    }
}

extension FeedPage {
    /// Its numbers can be added up, and it is no larger than a page may be.
    fileprivate var isSound: Bool {
        1..<(1 << 62) ~= first && missed < first && items.count <= FeedBounds.pageItems
            && items.allSatisfy { $0.payload.count <= MessageBounds.payloadByteCount }
    }
}

extension TaskTotals {
    fileprivate var isSound: Bool { finals.count == FinalState.allCases.count }
}
