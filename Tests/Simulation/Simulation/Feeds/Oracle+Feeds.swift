internal import Delivery
internal import Wire

// Compares feeds with the devices' messages and the final states. Each item appears at least once, in order, durable before it is
// announced, and permanently under its number.
extension Oracle {
    func feedBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard world.hasFeeds, key.item > 0, let kind = FeedKind(rawValue: UInt8(truncatingIfNeeded: key.ownerLow)),
            let index = world.feeds.follower(of: FeedName(AppKey(key.ownerHigh), kind))
        else { return }
        guard let items = FeedRow.read(bytes) else { return fail(.books, "a feed's row cannot be read") }
        world.feeds.followers[index].durableLast = max(world.feeds.followers[index].durableLast, key.item)
        for item in items where item.kind == .upstream {
            world.feeds.durableUpstream.insert(FeedModel.Upstream(cid: item.cid, number: item.request))
        }
    }

    func upstreamAnswered(_ place: Int, _ number: UInt32, _ answer: FeedAnswer?) {
        let sender = world.feeds.senders[place]
        let name = "message \(number) of device \(sender.identity.index)"
        switch answer {
        case .taken:
            guard world.feeds.durableUpstream.contains(.init(cid: sender.identity.cid, number: number)) else {
                return fail(.beforeSync, "\(name) was taken before it was durable")
            }
            // Otherwise this is a repeated answer for an earlier message.
            guard number == sender.number, sender.isOpen else { return }
            world.feeds.senders[place].number += 1
            (world.feeds.senders[place].isOpen, world.feeds.senders[place].askedAt) = (false, -1)
        case .refused(.deviceFull), .refused(.appFull): world.faults.note(.upstreamHeldBack)
        case nil: break
        default: fail(.refusal, "\(name) was answered with \(String(describing: answer))")
        }
    }

    func feedRead(_ index: Int, after: UInt64?, _ answer: FeedAnswer?) {
        let follower = world.feeds.followers[index]
        let name = "\(follower.feed.kind) of app \(follower.app)"
        guard var page = answer?.page else {
            if answer == nil { return }
            if answer == .otherHistory, let after, world.history.number(after) == nil {
                world.feeds.followers[index].cursor = nil
                return
            }
            return fail(.refusal, "a page of \(name) was answered with \(String(describing: answer))")
        }
        guard page.missed == 0 else { return fail(.progress, "\(page.missed) items of \(name) went unread") }
        let next = page.next
        guard let first = world.history.number(page.first) else {
            return fail(.sequence, "a page of \(name) has cursors of another history")
        }
        page.first = first
        let begin = page.first - 1
        if let after, world.history.number(after) != begin {
            return fail(.order, "a page of \(name) begins at \(page.first), not behind \(after)")
        }
        if begin > 0, follower.items[begin] == nil {
            return fail(.progress, "a page of \(name) begins behind \(begin), which nobody has read")
        }
        for (offset, item) in page.items.enumerated() {
            let number = page.first + UInt64(offset)
            guard number <= follower.durableLast else {
                return fail(.beforeSync, "item \(number) of \(name) was shown before it was durable")
            }
            if let known = follower.items[number], known != item {
                return fail(.sequence, "item \(number) of \(name) was another one before")
            }
            world.feeds.followers[index].items[number] = item
        }
        world.feeds.followers[index].cursor = next
    }

    func feedAcknowledged(_ index: Int, upTo: UInt64, _ answer: FeedAnswer?) {
        switch answer {
        case .acknowledged(let state):
            guard let number = world.history.number(upTo) else {
                return fail(.sequence, "an ack of another history was taken")
            }
            if state.acked < upTo { fail(.books, "an ack up to \(upTo) left \(state.acked)") }
            world.feeds.followers[index].acked = max(world.feeds.followers[index].acked, number)
        case nil: break
        case .otherHistory where world.history.number(upTo) == nil: world.feeds.followers[index].cursor = nil
        default: fail(.refusal, "an ack of a feed was answered with \(String(describing: answer))")
        }
    }

    // MARK: The end

    /// Checks that all items were read and nothing is left, after all faults have ended.
    func checkFeeds() {
        guard world.hasFeeds else { return }
        for loop in world.loops {
            let (rows, waiting) = (loop.store.rowCount(.event), loop.shard.statistics.feedItems)
            if rows > 0 { return fail(.progress, "\(rows) events never came to their feed") }
            if waiting > 0 { return fail(.progress, "\(waiting) items of feeds are said to wait for an ack") }
        }
        for index in world.feeds.followers.indices {
            let follower = world.feeds.followers[index]
            guard follower.items.count == Int(follower.durableLast) else {
                return fail(
                    .progress,
                    "\(follower.items.count) of \(follower.durableLast) items were read: \(follower.feed.kind), app \(follower.app)"
                )
            }
            let items = (0..<follower.items.count).compactMap { follower.items[UInt64($0) + 1] }
            switch follower.feed.kind {
            case .upstream: checkUpstream(items, app: follower.app)
            case .events: checkEvents(items, app: follower.app)
            }
        }
    }

    /// Checks that each device's messages appear once, in sending order.
    private func checkUpstream(_ items: [FeedItem], app: Int) {
        var next: [DeviceID: UInt32] = [:]
        for item in items {
            let number = next[item.cid] ?? due(behind: 0, of: item.cid)
            guard item.request == number else {
                return fail(.order, "a feed has message \(item.request) of a device where \(number) is due")
            }
            next[item.cid] = due(behind: number, of: item.cid)
        }
        for sender in world.feeds.senders where sender.identity.app == app {
            let read = next[sender.identity.cid] ?? due(behind: 0, of: sender.identity.cid)
            if read != sender.number || sender.isOpen {
                fail(.progress, "device \(sender.identity.index) sent up to \(sender.number), read is up to \(read)")
            }
        }
    }

    /// Returns the number of a device's next upstream message in the feed.
    private func due(behind number: UInt32, of cid: DeviceID) -> UInt32 {
        let lost = world.feeds.senders.first { $0.identity.cid == cid }?.lost ?? []
        return ((number + 1)...).first { !lost.contains($0) } ?? 0
    }

    /// Checks that every final state appears at least once, that none is invented, and that each device's events are in order.
    private func checkEvents(_ items: [FeedItem], app: Int) {
        var told: Set<Told> = []
        var last: [DeviceID: GatewayTime] = [:]
        for item in items {
            // A batch that was sent twice appears twice.
            guard told.insert(Told(cid: item.cid, message: item.message, kind: item.kind, at: item.at)).inserted else {
                continue
            }
            if item.at < last[item.cid, default: 0] {
                return fail(.order, "\(item.kind) of a device came behind what happened \(last[item.cid] ?? 0) ms")
            }
            last[item.cid] = item.at
        }
        let ends = Set(told.map { End(message: $0.message, kind: $0.kind) })
        for record in world.records where record.identity.app == app {
            guard record.everDurable, let final = record.durableFinal,
                let kind = FeedItem.Kind(rawValue: final.rawValue), !ends.contains(End(message: record.id, kind: kind))
            else { continue }
            return fail(.progress, "nobody was told that message \(record.index) ended as \(final)")
        }
        for end in ends where end.kind.rawValue <= FeedItem.Kind.failed.rawValue && end.kind != .opened {
            guard let record = record(end.message) else { continue }
            if record.durableFinal?.rawValue != end.kind.rawValue {
                return fail(
                    .books,
                    "message \(record.index) is told as \(end.kind), and is \(String(describing: record.durableFinal))")
            }
        }
    }

    private struct Told: Hashable {
        var cid: DeviceID
        var message: MessageID
        var kind: FeedItem.Kind
        var at: GatewayTime
    }

    private struct End: Hashable {
        var message: MessageID
        var kind: FeedItem.Kind
    }
}
