// A feed in its app's home bucket: items are appended under consecutive numbers, read from a cursor, and removed after the
// consumer's ack.
//
// An item's row, the head and, for an upstream message, the device's row are one batch. Every answer waits for the last batch, so
// consumers and devices see an item only after it is on disk.

internal import Wire

extension FeedTable {
    mutating func handle(_ command: FeedCommand, _ reply: ShardReply<FeedAnswer?>, _ core: inout ShardCore) {
        let name = command.feed
        withFeed(name, &core) { feeds, core, isRead in
            guard isRead else { return core.answerBusy(reply) }
            switch command {
            case .upstream(let message): feeds.take(message, reply, &core)
            case .append(_, let items, let lost):
                guard core.store.acceptsWrites else { return core.answerBusy(reply) }
                guard let limits = core.feedLimits(name) else { return core.refuseUnset(name, reply) }
                // The numbers of lost events have no rows, so a page reports them as a gap.
                if lost > 0 { feeds.skip(Int(clamping: lost), in: name, &core) }
                feeds.append(items[...], to: name, &core)
                core.numbers.eventsTaken &+= UInt64(items.count)
                feeds.trim(name, limits, &core)
                core.answer(reply, .taken)
                feeds.serveWaiters(of: name, &core)
            case .read(var read):
                if let cursor = read.after {
                    guard let number = core.history.number(cursor) else {
                        return core.answer(reply, .otherHistory)
                    }
                    read.after = number
                }
                feeds.serve(read, reply, until: core.now + read.waitMilliseconds, &core)
            case .acknowledge(_, let cursor):
                guard let number = core.history.number(cursor) else {
                    return core.answer(reply, .otherHistory)
                }
                feeds.acknowledge(name, upTo: number, reply, &core)
            case .state: core.answer(reply, .state(core.shown(feeds[name]?.state ?? FeedState())))
            }
        }
    }

    /// Calls `work` with true when the feed's head is in memory, or with false if the head cannot be read now.
    private mutating func withFeed(_ name: FeedName, _ core: inout ShardCore, _ work: @escaping Work) {
        guard self[name] == nil else { return work(&self, &core, true) }
        guard mayLook(for: name, at: core.now) else { return work(&self, &core, false) }
        guard let isFirst = wait(for: name, work) else { return work(&self, &core, false) }
        guard isFirst else { return }
        let key = FeedHeadRow.key(name)
        lookUp(key, &core) { feeds, core, found in
            var feed: Feed?
            switch found {
            case .unreadable: feeds.lookFailed(name, at: core.now)
            case .absent: feed = Feed(state: FeedState(), first: 1, isStored: false)
            case .found(let stored):
                if let head = FeedHeadRow.read(stored.bytes) {
                    feed = Feed(state: head.state, first: head.first, isStored: true)
                } else {
                    core.damaged(key)
                    feeds.lookFailed(name, isDamaged: true, at: core.now)
                }
            }
            // Items of a feed without a reader may have expired while the head was not in memory.
            if feed?.state.count ?? 0 > 0 { feeds.isDue(at: core.now) }
            for work in feeds.loaded(name, feed, at: core.now) { work(&feeds, &core, feed != nil) }
        }
    }

    /// Loads the feeds of this shard, a few apps per call.
    ///
    /// Items are then counted, and expire, without a consumer.
    ///
    /// A head that could not be read, or is damaged, is retried with `FeedBackoff`. It does not delay other feeds.
    mutating func watch(_ share: LoopShare, _ core: inout ShardCore) {
        for name in takeDueLooks(at: core.now) {
            if core.feedLimits(name) == nil { forget(name) } else { look(for: name, &core) }
        }
        let start = watchedApps
        let end = min(core.apps.count, start + FeedBounds.watchedApps)
        watchedApps = end
        for place in start..<end where core.apps[place].key.home.loop(of: share.count) == share.index {
            for kind in FeedKind.allCases { watch(FeedName(core.apps[place].key, kind), &core) }
        }
    }

    private mutating func watch(_ name: FeedName, _ core: inout ShardCore) {
        guard isToBeWatched(name), core.feedLimits(name) != nil else { return }
        look(for: name, &core)
    }

    private mutating func look(for name: FeedName, _ core: inout ShardCore) {
        withFeed(name, &core) { feeds, core, isRead in
            if !isRead { feeds.lookWasLeft(name, at: core.now) }
        }
    }

    // MARK: In

    private mutating func take(_ message: UpstreamMessage, _ reply: ShardReply<FeedAnswer?>, _ core: inout ShardCore) {
        let name = FeedName(message.app, .upstream)
        guard let limits = core.feedLimits(name) else { return core.refuseUnset(name, reply) }
        guard core.store.acceptsWrites else { return core.answerBusy(reply) }
        let key = UpstreamRow.key(message.cid, of: message.app)
        lookUp(key, &core) { feeds, core, found in
            var row = UpstreamRow(app: message.app)
            let prior: PriorRow
            switch found {
            case .unreadable: return core.answerBusy(reply)
            case .absent: prior = .maybe(wakeAt: 0)
            case .found(let stored):
                prior = .maybe(wakeAt: stored.wakeAt)
                guard let known = UpstreamRow(stored.bytes) else {
                    core.damaged(key)
                    break
                }
                row = known
            }
            let digest = UpstreamRow.digest(message)
            if !core.isPlanted(.upstreamNumberForgotten), let earlier = row.entry(message.request) {
                core.numbers.repeatedRequests &+= 1
                guard earlier.digest == digest else { return core.refuse(.numberReused, reply) }
                return core.answer(reply, .taken)
            }
            guard let state = feeds[name]?.state else { return core.answerBusy(reply) }
            let unread = row.unread(beyond: state.acked)
            guard unread.count < limits.deviceCount,
                unread.byteCount + message.payload.count <= limits.deviceByteCount
            else { return core.refuse(.deviceFull, reply) }
            var item = FeedItem(.upstream, at: core.now, cid: message.cid)
            (item.task, item.request, item.payload) = (message.task, message.request, message.payload)
            guard Int(state.count) < limits.count, Int(state.byteCount) + FeedRow.byteCount(item) <= limits.byteCount
            else {
                feeds.trim(name, limits, &core)
                return core.refuse(.appFull, reply)
            }
            row.add(
                UpstreamRow.Entry(
                    request: message.request, digest: digest, number: state.last + 1,
                    byteCount: UInt32(clamping: message.payload.count)),
                acked: state.acked)
            feeds.append([item][...], to: name, &core) { core in
                core.store.putRow(
                    key, wakeAt: core.now + FeedBounds.numberMemory, prior: prior, byteCount: row.byteCount
                ) { row.write(into: $0) }
            }
            core.numbers.upstreamTaken &+= 1
            if core.isPlanted(.upstreamAnsweredEarly) {
                core.outbox.send(.answered(reply.origin, FeedAnswer.taken))
            } else {
                core.answer(reply, .taken)
            }
            feeds.serveWaiters(of: name, &core)
        }
    }

    /// Appends items in as few rows as possible; `besides` writes further rows of the first batch.
    private mutating func append(
        _ items: ArraySlice<FeedItem>, to name: FeedName, _ core: inout ShardCore,
        besides: ((inout ShardCore) -> Void)? = nil
    ) {
        guard var feed = self[name] else { return }
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
            if feed.unreadCount == 0 { feed.oldestAt = chunk.last?.at ?? core.now }
            feed.state.last += UInt64(count)
            feed.state.count += UInt64(count)
            feed.state.byteCount += UInt64(byteCount)
            core.inBatch(in: name.home) { core in
                besides?(&core)
                core.store.putRow(
                    FeedRow.key(name, feed.state.last), wakeAt: 0, prior: .none, byteCount: byteCount
                ) { FeedRow.write(chunk, into: $0) }
                core.writeHead(name, &feed)
            }
            besides = nil
        }
        if feed.lookAgainAt == 0 { feed.lookAgainAt = core.now + FeedBounds.ageCheck }
        isDue(at: feed.lookAgainAt)
        self[name] = feed
    }

    private mutating func skip(_ count: Int, in name: FeedName, _ core: inout ShardCore) {
        guard var feed = self[name] else { return }
        feed.state.last += UInt64(count)
        core.inBatch(in: name.home) { $0.writeHead(name, &feed) }
        self[name] = feed
    }

    // MARK: Out

    private mutating func serve(
        _ read: FeedRead, _ reply: ShardReply<FeedAnswer?>, until: GatewayTime, _ core: inout ShardCore
    ) {
        guard let feed = self[read.feed] else { return core.answerBusy(reply) }
        let after = read.after ?? feed.state.acked
        guard after <= feed.state.last else { return core.answer(reply, .beyond(core.shown(feed.state).last)) }
        if after == feed.state.last {
            guard until > core.now, feed.waiters.count < FeedBounds.waiters else {
                return core.answer(reply, FeedPage(first: after + 1, state: feed.state))
            }
            self[read.feed]?.waiters.append(Waiter(read: read, reply: reply, until: until))
            isDue(at: until)
            return
        }
        let limit = min(max(1, read.limit), FeedBounds.pageItems)
        let start = FeedRow.key(read.feed, after + 1)
        core.readForFeeds([.scan(partition: start, rowLimit: limit, byteLimit: FeedBounds.pageByteCount)]) {
            feeds, core, scanned in
            guard case .rows(let rows, let isComplete)? = scanned.results.first, let feed = feeds[read.feed]
            else { return core.answerBusy(reply) }
            var page = FeedPage(first: after + 1, state: feed.state)
            for row in rows {
                guard let items = FeedRow.read(row.bytes), row.key.item >= UInt64(items.count) else {
                    // The items are lost. A page reports the number of missing items.
                    core.damaged(row.key)
                    continue
                }
                let number = row.key.item - UInt64(items.count) + 1
                let skipped = number <= after ? Int(after - number + 1) : 0
                if page.items.isEmpty {
                    page.first = number + UInt64(skipped)
                } else if number != page.next + 1 {
                    // Rows before this one could not be read. The next page reports the gap.
                    break
                }
                page.items += items.dropFirst(skipped).prefix(limit - page.items.count)
                if page.items.count >= limit { break }
            }
            if page.items.isEmpty { page.first = (isComplete ? feed.state.last : rows.last?.key.item ?? after) + 1 }
            page.missed = page.first - (after + 1)
            core.answer(reply, page)
        }
    }

    private mutating func serveWaiters(of name: FeedName, _ core: inout ShardCore) {
        for waiter in takeWaiters(of: name) { serve(waiter.read, waiter.reply, until: waiter.until, &core) }
    }

    private mutating func acknowledge(
        _ name: FeedName, upTo number: UInt64, _ reply: ShardReply<FeedAnswer?>, _ core: inout ShardCore
    ) {
        guard var feed = self[name] else { return core.answerBusy(reply) }
        guard number <= feed.state.last else {
            return core.answer(reply, .beyond(core.shown(feed.state).last))
        }
        if number > feed.state.acked {
            feed.state.acked = number
            core.inBatch(in: name.home) { $0.writeHead(name, &feed) }
            self[name] = feed
            trim(name, core.feedLimits(name), &core)
        }
        core.answer(reply, .acknowledged(core.shown(feed.state)))
    }

    // MARK: Removal

    /// Deletes rows from the front: acked, expired or, for events, beyond the limits.
    ///
    /// Without limits (the feed is off, or the app is absent or unknown) un-acked items are kept up to the largest configurable
    /// age.
    private mutating func trim(_ name: FeedName, _ limits: FeedLimits?, _ core: inout ShardCore) {
        guard let feed = self[name], !feed.isTrimming, feed.first <= feed.state.last else { return }
        self[name]?.isTrimming = true
        self[name]?.lookAgainAt = core.now + FeedBounds.ageCheck
        let start = FeedRow.key(name, max(1, feed.first))
        core.readForFeeds([.scan(partition: start, rowLimit: FeedBounds.trimmedRows, byteLimit: 1 << 20)]) {
            feeds, core, reply in
            guard var feed = feeds[name] else { return }
            feed.isTrimming = false
            defer { feeds[name] = feed }
            guard case .rows(let rows, let isComplete)? = reply.results.first else { return }
            var gone: [StoreKey] = []
            var isAtEnd = isComplete
            for row in rows {
                let glance = FeedRow.glance(row.bytes)
                let isAcked = row.key.item <= feed.state.acked + (core.isPlanted(.feedTrimmedBeyondAck) ? 1 : 0)
                let isOld = (glance?.at ?? 0) <= core.now - (limits?.age ?? FeedLimits.ages.upperBound * 1_000)
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
                if !isAcked { core.numbers.feedItemsMissed &+= count }
                feed.state.count -= min(feed.state.count, count)
                feed.state.byteCount -= min(feed.state.byteCount, UInt64(row.bytes.count))
                feed.first = row.key.item + 1
            }
            if rows.isEmpty {
                // No row is left, but the head may still count items of damaged rows.
                feed.first = feed.state.last + 1
                (feed.state.count, feed.state.byteCount) = (0, 0)
            }
            guard !gone.isEmpty || rows.isEmpty else { return }
            core.inBatch(in: name.home) { core in
                for key in gone { core.store.delete(key, prior: .maybe(wakeAt: 0)) }
                core.writeHead(name, &feed)
            }
            guard !isAtEnd else { return }
            core.slices.append { shard in
                shard.inFeeds { feeds, core in feeds.trim(name, core.feedLimits(name), &core) }
            }
        }
    }

    /// Answers all waiting consumers because the gateway stops.
    mutating func releaseWaiters(_ core: inout ShardCore) {
        for name in Array(feeds.keys) {
            for waiter in takeWaiters(of: name) { serve(waiter.read, waiter.reply, until: 0, &core) }
        }
    }

    /// Answers consumers whose wait has timed out, and deletes expired items.
    mutating func advance(_ core: inout ShardCore) {
        for waiter in takeDueWaiters(core.now) { serve(waiter.read, waiter.reply, until: 0, &core) }
        for (name, feed) in feeds where feed.state.count > 0 && feed.lookAgainAt <= core.now {
            trim(name, core.feedLimits(name), &core)
            self[name]?.lookAgainAt = core.now + FeedBounds.ageCheck
        }
        findNextDue()
    }

    /// Looks up a row and calls `work` at once if memory has the answer, otherwise after a read.
    private mutating func lookUp(
        _ key: StoreKey, _ core: inout ShardCore,
        then work: @escaping (inout FeedTable, inout ShardCore, Found<FoundRow>) -> Void
    ) {
        if let known = core.known(key) { return work(&self, &core, known) }
        core.readForFeeds([.get(key)]) { feeds, core, reply in
            let found = core.row(key, in: reply)
            work(&feeds, &core, found)
        }
    }
}

extension ShardCore {
    /// Returns the feed's limits from the app's settings; `nil` if the feed is off or the app is unknown.
    fileprivate func feedLimits(_ name: FeedName) -> FeedLimits? {
        guard let settings = apps.knowledge(of: name.app).settings else { return nil }
        return switch name.kind {
        case .upstream: settings.upstream
        case .events: settings.events
        }
    }

    /// Refuses a command for a feed that is off, or answers `busy` if the app is unknown.
    fileprivate mutating func refuseUnset(_ name: FeedName, _ reply: ShardReply<FeedAnswer?>) {
        let isKnown = apps.knowledge(of: name.app).settings != nil
        if isKnown { answer(reply, .refused(.off)) } else { answerBusy(reply) }
    }

    fileprivate mutating func refuse(_ refusal: FeedRefusal, _ reply: ShardReply<FeedAnswer?>) {
        numbers.upstreamRefused &+= 1
        answer(reply, .refused(refusal))
    }

    fileprivate func shown(_ state: FeedState) -> FeedState {
        var shown = state
        (shown.last, shown.acked) = (history.cursor(state.last), history.cursor(state.acked))
        return shown
    }

    fileprivate mutating func answer(_ reply: ShardReply<FeedAnswer?>, _ page: FeedPage) {
        var shown = page
        (shown.first, shown.state) = (history.cursor(page.first), self.shown(page.state))
        answer(reply, .page(shown))
    }

    fileprivate mutating func writeHead(_ name: FeedName, _ feed: inout FeedTable.Feed) {
        let (state, first) = (feed.state, feed.first)
        store.putRow(
            FeedHeadRow.key(name), wakeAt: 0, prior: feed.isStored ? .maybe(wakeAt: 0) : .none,
            byteCount: FeedHeadRow.byteCount
        ) { FeedHeadRow.write(state, first: first, into: $0) }
        feed.isStored = true
    }

    fileprivate mutating func readForFeeds(
        _ requests: [StoreRead], then work: @escaping (inout FeedTable, inout ShardCore, StoreReply) -> Void
    ) {
        read(requests) { shard, reply in shard.inFeeds { feeds, core in work(&feeds, &core, reply) } }
    }
}
