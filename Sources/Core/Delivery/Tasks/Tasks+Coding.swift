internal import Wire

extension TaskCommand: Codable {
    private enum Kind: String, Codable {
        case create, load, change, park, targets, scan, advance, sweep, totals, day, foldable, removeCounters, online,
            stopSingle, keepSiblings, endSibling, settleFirstAck, begin, end, joinGroup, group,
            liveBroadcasts, broadcastHeads, inspect, feed
    }

    private enum Key: String, CodingKey {
        case kind, record, requestKey, digest, task, app, change, devices, from, scan, position, state, share, day,
            days,
            cid, bucket, first, call, outcomes, owner, inspection, piece, counted, feed
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        func put(_ kind: Kind) throws { try container.encode(kind, forKey: .kind) }
        func put(_ kind: Kind, _ task: TaskID, _ app: AppKey? = nil) throws {
            try put(kind)
            try container.encode(task, forKey: .task)
            try container.encodeIfPresent(app, forKey: .app)
        }
        func putDevice(_ cid: DeviceID, _ bucket: Bucket, _ digest: UInt64) throws {
            try container.encode(cid, forKey: .cid)
            try container.encode(bucket, forKey: .bucket)
            try container.encode(digest, forKey: .digest)
        }
        switch self {
        case .create(let record, let requestKey, let digest):
            try put(.create)
            try container.encode(record, forKey: .record)
            try container.encode(WordPair(requestKey), forKey: .requestKey)
            try container.encode(digest, forKey: .digest)
        case .load(let task, let app): try put(.load, task, app)
        case .change(let task, let app, let change):
            try put(.change, task, app)
            try container.encode(change, forKey: .change)
        case .park(let task, let app, let devices):
            try put(.park, task, app)
            try container.encode(devices, forKey: .devices)
        case .targets(let task, let from):
            try put(.targets, task)
            try container.encode(from, forKey: .from)
        case .scan(let scan):
            try put(.scan)
            try container.encode(scan, forKey: .scan)
        case .advance(let task, let app, let position, let state):
            try put(.advance, task, app)
            try container.encode(position, forKey: .position)
            try container.encode(state, forKey: .state)
        case .sweep(let task, let app, let share):
            try put(.sweep, task, app)
            try container.encode(share, forKey: .share)
        case .totals(let task, let app, let share):
            try put(.totals, task, app)
            try container.encode(share, forKey: .share)
        case .day(let app, let day):
            try put(.day)
            try container.encode(app, forKey: .app)
            try container.encode(day, forKey: .day)
        case .foldable(let today):
            try put(.foldable)
            try container.encode(today, forKey: .day)
        case .removeCounters(let days, let share, let isCounted):
            try put(.removeCounters)
            try container.encode(isCounted, forKey: .counted)
            try container.encode(days, forKey: .days)
            try container.encode(share, forKey: .share)
        case .online: try put(.online)
        case .stopSingle(let task, let app): try put(.stopSingle, task, app)
        case .keepSiblings(let task, let devices):
            try put(.keepSiblings, task)
            try container.encode(devices, forKey: .devices)
        case .endSibling(let task, let app, let cid, let bucket, let digest):
            try put(.endSibling, task, app)
            try putDevice(cid, bucket, digest)
        case .settleFirstAck(let first):
            try put(.settleFirstAck)
            try container.encode(first, forKey: .first)
        case .begin(let call, let digest, let task, let devices):
            try put(.begin, task)
            try container.encode(call, forKey: .call)
            try container.encode(digest, forKey: .digest)
            try container.encode(devices, forKey: .devices)
        case .end(let call, let outcomes):
            try put(.end)
            try container.encode(call, forKey: .call)
            try container.encodeIfPresent(outcomes, forKey: .outcomes)
        case .joinGroup(let task, let bucket, let owner):
            try put(.joinGroup, task)
            try container.encode(bucket, forKey: .bucket)
            try container.encode(WordPair(owner), forKey: .owner)
        case .liveBroadcasts(let share, let piece):
            try put(.liveBroadcasts)
            try container.encode(share, forKey: .share)
            try container.encode(piece, forKey: .piece)
        case .broadcastHeads(let share):
            try put(.broadcastHeads)
            try container.encode(share, forKey: .share)
        case .inspect(let inspection):
            try put(.inspect)
            try container.encode(inspection, forKey: .inspection)
        case .feed(let command):
            try put(.feed)
            try container.encode(command, forKey: .feed)
        case .group(let bucket, let owner):
            try put(.group)
            try container.encode(bucket, forKey: .bucket)
            try container.encode(WordPair(owner), forKey: .owner)
        }
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        func get<Value: Decodable>(_ key: Key) throws -> Value { try container.decode(Value.self, forKey: key) }
        func words(_ key: Key) throws -> (UInt64, UInt64) {
            let pair: WordPair = try get(key)
            return pair.words
        }
        self =
            switch try get(.kind) as Kind {
            case .create:
                .create(try get(.record), requestKey: try words(.requestKey), requestDigest: try get(.digest))
            case .load: .load(try get(.task), try get(.app))
            case .change: .change(try get(.task), try get(.app), try get(.change))
            case .park: .park(try get(.task), try get(.app), try get(.devices))
            case .targets: .targets(try get(.task), from: try get(.from))
            case .scan: .scan(try get(.scan))
            case .advance:
                .advance(
                    try get(.task), try get(.app), position: try get(.position), during: try get(.state))
            case .sweep: .sweep(try get(.task), try get(.app), try get(.share))
            case .totals: .totals(try get(.task), try get(.app), try get(.share))
            case .day: .day(try get(.app), day: try get(.day))
            case .foldable: .foldable(today: try get(.day))
            case .removeCounters:
                .removeCounters(try get(.days), try get(.share), isCounted: try get(.counted))
            case .online: .online
            case .stopSingle: .stopSingle(try get(.task), try get(.app))
            case .keepSiblings: .keepSiblings(try get(.task), try get(.devices))
            case .endSibling:
                .endSibling(
                    try get(.task), try get(.app), cid: try get(.cid), bucket: try get(.bucket),
                    digest: try get(.digest))
            case .settleFirstAck: .settleFirstAck(try get(.first))
            case .begin: .begin(try get(.call), digest: try get(.digest), try get(.task), try get(.devices))
            case .end: .end(try get(.call), try container.decodeIfPresent([PublishOutcome].self, forKey: .outcomes))
            case .joinGroup: .joinGroup(try get(.task), bucket: try get(.bucket), owner: try words(.owner))
            case .liveBroadcasts: .liveBroadcasts(try get(.share), try get(.piece))
            case .broadcastHeads: .broadcastHeads(try get(.share))
            case .inspect: .inspect(try get(.inspection))
            case .feed: .feed(try get(.feed))
            case .group: .group(bucket: try get(.bucket), owner: try words(.owner))
            }
    }
}
