// A feed in its app's home bucket: messages and events appended under numbers that grow by one, read from a cursor, and
// removed once the consumer has acked them.
//
// A row, the head and, for a device's message, the device's own row are one batch. Every answer waits for the last batch,
// so no consumer sees an item, and no device learns of its acceptance, before it is on disk.

internal import Wire

extension Shard {
    mutating func feed(_ command: FeedCommand, _ origin: Origin) {
        let name = command.feed
        withFeed(name) { shard, isRead in
            guard isRead else { return shard.answer(origin, .busy) }
            switch command {
            case .upstream(let message): shard.take(message, origin)
            case .append(_, let items, let lost):
                guard shard.store.acceptsWrites else { return shard.answer(origin, .busy) }
                guard let limits = shard.feedLimits(name) else { return shard.refuseUnset(name, origin) }
                // Their numbers have no rows, so a page tells of them as a gap.
                if lost > 0 { shard.skip(Int(clamping: lost), in: name) }
                shard.append(items[...], to: name)
                shard.numbers.eventsTaken &+= UInt64(items.count)
                shard.trim(name, limits)
                shard.answer(origin, .feed(.taken))
                shard.serveWaiters(of: name)
            case .read(var read):
                if let cursor = read.after {
                    guard let number = shard.history.number(cursor) else {
                        return shard.answer(origin, .feed(.otherHistory))
                    }
                    read.after = number
                }
                shard.read(read, origin, until: shard.now + read.waitMilliseconds)
            case .acknowledge(_, let cursor):
                guard let number = shard.history.number(cursor) else {
                    return shard.answer(origin, .feed(.otherHistory))
                }
                shard.acknowledge(name, upTo: number, origin)
            case .state: shard.answer(origin, .feed(.state(shard.shown(shard.feeds[name]?.state ?? FeedState()))))
            }
        }
    }

    /// Refuses what a feed that is off, or not known yet, cannot take.
    private mutating func refuseUnset(_ name: FeedName, _ origin: Origin) {
        let isKnown = knowledge(of: name.app).settings != nil
        answer(origin, isKnown ? .feed(.refused(.off)) : .busy)
    }

    /// A state with the numbers that consumers see.
    private func shown(_ state: FeedState) -> FeedState {
        var shown = state
        (shown.last, shown.acked) = (history.cursor(state.last), history.cursor(state.acked))
        return shown
    }

    private mutating func answer(_ origin: Origin, _ page: FeedPage) {
        var shown = page
        (shown.first, shown.state) = (history.cursor(page.first), self.shown(page.state))
        answer(origin, .feed(.page(shown)))
    }

    /// The feed's limits in the app's configuration; `nil`: the feed is off, or the app is not known (yet).
    func feedLimits(_ name: FeedName) -> FeedLimits? {
        guard let settings = knowledge(of: name.app).settings else { return nil }
        return switch name.kind {
        case .upstream: settings.upstream
        case .events: settings.events
        }
    }

    /// Calls `work` when the feed's head is in memory, with false when it cannot be read, or could not a while ago.
    private mutating func withFeed(_ name: FeedName, _ work: @escaping FeedTable.Work) {
        guard feeds[name] == nil else { return work(&self, true) }
        guard feeds.mayLook(for: name, at: now) else { return work(&self, false) }
        guard let isFirst = feeds.wait(for: name, work) else { return work(&self, false) }
        guard isFirst else { return }
        let key = FeedHeadRow.key(name)
        lookUp(key) { shard, found in
            var feed: FeedTable.Feed?
            switch found {
            case .unreadable: shard.feeds.lookFailed(name, at: shard.now)
            case .absent: feed = FeedTable.Feed(state: FeedState(), first: 1, isStored: false)
            case .found(let stored):
                if let head = FeedHeadRow.read(stored.bytes) {
                    feed = FeedTable.Feed(state: head.state, first: head.first, isStored: true)
                } else {
                    shard.damaged(key)
                    shard.feeds.lookFailed(name, isDamaged: true, at: shard.now)
                }
            }
            // What waited while nobody asked may be too old by now, and its age is not known.
            if feed?.state.count ?? 0 > 0 { shard.feeds.isDue(at: shard.now) }
            for work in shard.feeds.loaded(name, feed, at: shard.now) { work(&shard, feed != nil) }
        }
    }

    /// Has the feeds in memory whose home is here, so that what waits in them is counted, and goes when it is too old,
    /// though nobody asks for it; a few apps a call.
    ///
    /// A head that could not be read, or is damaged, is looked for again at growing times (`FeedBackoff`). No feed holds up
    /// those behind it.
    package mutating func watchFeeds(_ share: LoopShare, now: GatewayTime) {
        guard feeds.watchedApps < apps.count || feeds.isLookDue(at: now) else { return }
        begin(now)
        for name in feeds.takeDueLooks(at: now) {
            if feedLimits(name) == nil { feeds.forget(name) } else { look(for: name) }
        }
        let start = feeds.watchedApps
        let end = min(apps.count, start + FeedBounds.watchedApps)
        feeds.watchedApps = end
        for place in start..<end where apps[place].key.home.loop(of: share.count) == share.index {
            for kind in FeedKind.allCases { watch(FeedName(apps[place].key, kind)) }
        }
    }

    private mutating func watch(_ name: FeedName) {
        guard feeds.isToBeWatched(name), feedLimits(name) != nil else { return }
        look(for: name)
    }

    private mutating func look(for name: FeedName) {
        withFeed(name) { shard, isRead in
            if !isRead { shard.feeds.lookWasLeft(name, at: shard.now) }
        }
    }

    // MARK: In

    private mutating func take(_ message: UpstreamMessage, _ origin: Origin) {
        let name = FeedName(message.app, .upstream)
        guard let limits = feedLimits(name) else { return refuseUnset(name, origin) }
        guard store.acceptsWrites else { return answer(origin, .busy) }
        let key = UpstreamRow.key(message.cid, of: message.app)
        lookUp(key) { shard, found in
            var row = UpstreamRow(app: message.app)
            let prior: PriorRow
            switch found {
            case .unreadable: return shard.answer(origin, .busy)
            case .absent: prior = .maybe(wakeAt: 0)
            case .found(let stored):
                prior = .maybe(wakeAt: stored.wakeAt)
                guard let known = UpstreamRow(stored.bytes) else {
                    shard.damaged(key)
                    break
                }
                row = known
            }
            let digest = UpstreamRow.digest(message)
            if !shard.isPlanted(.upstreamNumberForgotten), let earlier = row.entry(message.request) {
                shard.numbers.repeatedRequests &+= 1
                guard earlier.digest == digest else { return shard.refuse(.numberReused, origin) }
                return shard.answer(origin, .feed(.taken))
            }
            guard let state = shard.feeds[name]?.state else { return shard.answer(origin, .busy) }
            let unread = row.unread(beyond: state.acked)
            guard unread.count < limits.deviceCount,
                unread.byteCount + message.payload.count <= limits.deviceByteCount
            else { return shard.refuse(.deviceFull, origin) }
            var item = FeedItem(.upstream, at: shard.now, cid: message.cid)
            (item.task, item.request, item.payload) = (message.task, message.request, message.payload)
            guard Int(state.count) < limits.count, Int(state.byteCount) + FeedRow.byteCount(item) <= limits.byteCount
            else {
                shard.trim(name, limits)
                return shard.refuse(.appFull, origin)
            }
            row.add(
                UpstreamRow.Entry(
                    request: message.request, digest: digest, number: state.last + 1,
                    byteCount: UInt32(clamping: message.payload.count)),
                acked: state.acked)
            shard.append([item][...], to: name) { shard in
                shard.store.putRow(
                    key, wakeAt: shard.now + FeedBounds.numberMemory, prior: prior, byteCount: row.byteCount
                ) { row.write(into: $0) }
            }
            shard.numbers.upstreamTaken &+= 1
            if shard.isPlanted(.upstreamAnsweredEarly) {
                shard.outbox.send(.task(origin, .feed(.taken)))
            } else {
                shard.answer(origin, .feed(.taken))
            }
            shard.serveWaiters(of: name)
        }
    }

    private mutating func refuse(_ refusal: FeedRefusal, _ origin: Origin) {
        numbers.upstreamRefused &+= 1
        answer(origin, .feed(.refused(refusal)))
    }

    /// Writes items behind the last one, in as few rows as hold them; `besides` writes rows of the first batch.
    private mutating func append(
        _ items: ArraySlice<FeedItem>, to name: FeedName, besides: ((inout Shard) -> Void)? = nil
    ) {
        guard var feed = feeds[name] else { return }
        var rest = items
        var besides = besides
        while let first = rest.first {
            var count = 1
            var byteCount = FeedRow.headByteCount + FeedRow.byteCount(first)
            for item in rest.dropFirst() {
                guard byteCount + FeedRow.byteCount(item) <= FeedRow.targetByteCount else { break }
                byteCount += FeedRow.byteCount(item)
                count += 1
            }
            let chunk = rest.prefix(count)
            rest = rest.dropFirst(count)
            if feed.unreadCount == 0 { feed.oldestAt = chunk.last?.at ?? now }
            feed.state.last += UInt64(count)
            feed.state.count += UInt64(count)
            feed.state.byteCount += UInt64(byteCount)
            inBatch(in: name.home) { shard in
                besides?(&shard)
                shard.store.putRow(
                    FeedRow.key(name, feed.state.last), wakeAt: 0, prior: .none, byteCount: byteCount
                ) { FeedRow.write(chunk, into: $0) }
                shard.writeHead(name, &feed)
            }
            besides = nil
        }
        if feed.lookAgainAt == 0 { feed.lookAgainAt = now + FeedBounds.ageCheck }
        feeds.isDue(at: feed.lookAgainAt)
        feeds[name] = feed
    }

    private mutating func skip(_ count: Int, in name: FeedName) {
        guard var feed = feeds[name] else { return }
        feed.state.last += UInt64(count)
        inBatch(in: name.home) { $0.writeHead(name, &feed) }
        feeds[name] = feed
    }

    private mutating func writeHead(_ name: FeedName, _ feed: inout FeedTable.Feed) {
        let (state, first) = (feed.state, feed.first)
        store.putRow(
            FeedHeadRow.key(name), wakeAt: 0, prior: feed.isStored ? .maybe(wakeAt: 0) : .none,
            byteCount: FeedHeadRow.byteCount
        ) { FeedHeadRow.write(state, first: first, into: $0) }
        feed.isStored = true
    }

    // MARK: Out

    private mutating func read(_ read: FeedRead, _ origin: Origin, until: GatewayTime) {
        guard let feed = feeds[read.feed] else { return answer(origin, .busy) }
        let after = read.after ?? feed.state.acked
        guard after <= feed.state.last else { return answer(origin, .feed(.beyond(shown(feed.state).last))) }
        if after == feed.state.last {
            guard until > now, feed.waiters.count < FeedBounds.waiters else {
                return answer(origin, FeedPage(first: after + 1, state: feed.state))
            }
            feeds[read.feed]?.waiters.append(FeedTable.Waiter(read: read, origin: origin, until: until))
            feeds.isDue(at: until)
            return
        }
        let limit = min(max(1, read.limit), FeedBounds.pageItems)
        let start = FeedRow.key(read.feed, after + 1)
        self.read([.scan(partition: start, rowLimit: limit, byteLimit: FeedBounds.pageByteCount)]) { shard, reply in
            guard case .rows(let rows, let isComplete)? = reply.results.first,
                let feed = shard.feeds[read.feed]
            else { return shard.answer(origin, .busy) }
            var page = FeedPage(first: after + 1, state: feed.state)
            for row in rows {
                guard let items = FeedRow.read(row.bytes), row.key.item >= UInt64(items.count) else {
                    // Its items are lost: the consumer is told how many are missing.
                    shard.damaged(row.key)
                    continue
                }
                let number = row.key.item - UInt64(items.count) + 1
                let skipped = number <= after ? Int(after - number + 1) : 0
                if page.items.isEmpty {
                    page.first = number + UInt64(skipped)
                } else if number != page.next + 1 {
                    // What lies between went unread; the next page says so.
                    break
                }
                page.items += items.dropFirst(skipped).prefix(limit - page.items.count)
                if page.items.count >= limit { break }
            }
            if page.items.isEmpty { page.first = (isComplete ? feed.state.last : rows.last?.key.item ?? after) + 1 }
            page.missed = page.first - (after + 1)
            shard.answer(origin, page)
        }
    }

    private mutating func serveWaiters(of name: FeedName) {
        for waiter in feeds.takeWaiters(of: name) { read(waiter.read, waiter.origin, until: waiter.until) }
    }

    private mutating func acknowledge(_ name: FeedName, upTo number: UInt64, _ origin: Origin) {
        guard var feed = feeds[name] else { return answer(origin, .busy) }
        guard number <= feed.state.last else { return answer(origin, .feed(.beyond(shown(feed.state).last))) }
        if number > feed.state.acked {
            feed.state.acked = number
            inBatch(in: name.home) { $0.writeHead(name, &feed) }
            feeds[name] = feed
            trim(name, feedLimits(name))
        }
        answer(origin, .feed(.acknowledged(shown(feed.state))))
    }

    // MARK: Removal

    /// Removes rows from the front: what is acked, too old or, of events, too many.
    ///
    /// Without limits (the app is disabled, or not known here yet) it removes what no limits would keep.
    private mutating func trim(_ name: FeedName, _ limits: FeedLimits?) {
        guard let feed = feeds[name], !feed.isTrimming, feed.first <= feed.state.last else { return }
        feeds[name]?.isTrimming = true
        feeds[name]?.lookAgainAt = now + FeedBounds.ageCheck
        let start = FeedRow.key(name, max(1, feed.first))
        read([.scan(partition: start, rowLimit: FeedBounds.trimmedRows, byteLimit: 1 << 20)]) { shard, reply in
            guard var feed = shard.feeds[name] else { return }
            feed.isTrimming = false
            defer { shard.feeds[name] = feed }
            guard case .rows(let rows, let isComplete)? = reply.results.first else { return }
            var gone: [StoreKey] = []
            var isAtEnd = isComplete
            for row in rows {
                let glance = FeedRow.glance(row.bytes)
                let isAcked = row.key.item <= feed.state.acked + (shard.isPlanted(.feedTrimmedBeyondAck) ? 1 : 0)
                let isOld = (glance?.at ?? 0) <= shard.now - (limits?.age ?? FeedLimits.ages.upperBound * 1_000)
                let isTooMany =
                    if let limits, name.kind == .events {
                        Int(feed.state.count) > limits.count || Int(feed.state.byteCount) > limits.byteCount
                    } else {
                        false
                    }
                guard isAcked || isOld || isTooMany else {
                    isAtEnd = true
                    feed.oldestAt = glance?.at ?? 0
                    break
                }
                gone.append(row.key)
                let count = UInt64(glance?.count ?? 1)
                if !isAcked { shard.numbers.feedItemsMissed &+= count }
                feed.state.count -= min(feed.state.count, count)
                feed.state.byteCount -= min(feed.state.byteCount, UInt64(row.bytes.count))
                feed.first = row.key.item + 1
            }
            if rows.isEmpty {
                // What the head counts beyond the rows was in rows that could not be read.
                feed.first = feed.state.last + 1
                (feed.state.count, feed.state.byteCount) = (0, 0)
            }
            guard !gone.isEmpty || rows.isEmpty else { return }
            shard.inBatch(in: name.home) { shard in
                for key in gone { shard.store.delete(key, prior: .maybe(wakeAt: 0)) }
                shard.writeHead(name, &feed)
            }
            guard !isAtEnd else { return }
            shard.later { shard in shard.trim(name, shard.feedLimits(name)) }
        }
    }

    /// Answers every consumer that waits, since the gateway stops.
    package mutating func releaseFeedWaiters(now: GatewayTime) {
        begin(now)
        for name in Array(feeds.feeds.keys) {
            for waiter in feeds.takeWaiters(of: name) { read(waiter.read, waiter.origin, until: 0) }
        }
    }

    /// Answers consumers whose wait is over, and looks for items that are too old.
    mutating func advanceFeeds() {
        guard feeds.nextDue <= now else { return }
        for waiter in feeds.takeDueWaiters(now) { read(waiter.read, waiter.origin, until: 0) }
        for (name, feed) in feeds.feeds where feed.state.count > 0 && feed.lookAgainAt <= now {
            trim(name, feedLimits(name))
            feeds[name]?.lookAgainAt = now + FeedBounds.ageCheck
        }
        feeds.findNextDue()
    }
}
