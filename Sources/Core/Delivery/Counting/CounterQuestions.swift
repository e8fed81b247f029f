package import Wire

/// Asks for this shard's counters of one day; `nil` while the shard does not know the folded days.
package struct DayQuery: ShardQuestion {
    package var app: AppKey
    package var day: UInt32
    package init(_ app: AppKey, day: UInt32) { (self.app, self.day) = (app, day) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<DayTotals?>) {
        guard shard.counters.knowsFold else { return shard.answerBusy(reply) }
        shard.answer(reply, shard.counters.totals(of: app, day: day))
    }
}

/// Asks for this shard's counters of days that may be folded; `nil` if the shard cannot answer yet.
///
/// The shard must know the folded days, and the caller's day must have begun here. A shard whose clock is behind may still count
/// for a day that the caller would fold.
package struct FoldableQuery: ShardQuestion {
    package var today: UInt32
    package init(today: UInt32) { self.today = today }

    package func perform(on shard: inout Shard, _ reply: ShardReply<[CountersRow]?>) {
        let day = CountersRow.day(of: shard.now)
        shard.counters.dropOld(before: day)
        guard shard.counters.knowsFold, day >= today else { return shard.answerBusy(reply) }
        shard.answer(reply, shard.counters.foldable(today: today))
    }
}

/// Deletes the counters rows of folded days from these buckets.
///
/// With `isCounted` the shard of bucket 0 counts these days from now on, and all other shards drop their counters of them.
/// Otherwise days could count twice or not at all, because a shard in a cluster may have started with or without the folded sums.
package struct RemoveCounters: ShardQuestion {
    package var days: [CounterDay]
    package var share: LoopShare
    package var isCounted: Bool
    package init(_ days: [CounterDay], _ share: LoopShare, isCounted: Bool) {
        (self.days, self.share, self.isCounted) = (days, share, isCounted)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Bool>) {
        // This may be the day's first command, so old rows first move to the past days. Otherwise they would be counted again
        // later.
        shard.counters.dropOld(before: CountersRow.day(of: shard.now))
        if isCounted, share.index != 0 { shard.addHoldings(shard.counters.drop(days)) }
        shard.counters.remove(days, from: share.buckets, now: shard.now)
        shard.answer(reply, true)
    }
}

/// Asks for the number of connected devices of each app.
package struct OnlineQuery: ShardQuestion {
    package init() {}

    package func perform(on shard: inout Shard, _ reply: ShardReply<[AppKey: Int]?>) {
        var counts: [AppKey: Int] = [:]
        for (index, app) in shard.apps.entries.enumerated() where shard.sessions.count(ofApp: index) > 0 {
            counts[app.key] = shard.sessions.count(ofApp: index)
        }
        shard.answer(reply, counts)
    }
}

extension Shard {
    /// Whether the shard knows the folded days; until then it answers no queries for day counters.
    package var knowsFold: Bool { counters.knowsFold }

    /// Sets the folded days, as reported by the owner of bucket 0 (`CounterFold`).
    package mutating func learnFold(_ folded: FoldedDays, now: GatewayTime) {
        begin(now)
        addHoldings(counters.learnFold(CounterFold(folded)))
    }

    /// Adds newly folded days on the shard of bucket 0, after the fold is durable.
    package mutating func takeFold(_ days: [CountersRow], now: GatewayTime) {
        begin(now)
        addHoldings(counters.takeFold(days))
    }
}
