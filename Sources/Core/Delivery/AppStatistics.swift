// The figures that a shard keeps by app, for an operator who has several.

package import Wire

/// The figures of one app in one shard: counters count since the process started, gauges show the state of now.
package struct AppStatistics: Sendable {
    // Counters.
    package var accepted: UInt64 = 0
    /// Publishes refused as busy, because room was short and the app had taken more than its share.
    package var refusedOverShare: UInt64 = 0
    /// Messages that ended in a state which says that the device did not get them.
    package var expired: UInt64 = 0
    package var overflowed: UInt64 = 0
    package var failed: UInt64 = 0

    // Gauges.
    package var connectedDevices = 0
    /// Accepted and not ended; of a part without bucket 0 less what was accepted before yesterday.
    package var queuedMessages: Int64 = 0
    /// Their sizes in whole blocks, in the same way (`QueuedBlocks`).
    package private(set) var queuedBytes: Int64 = 0
    /// What the app has on disk besides its queues, in the same way (`RetainedBytes`).
    package var retainedBytes: Int64 = 0
    package var dueJobs = PerChannel { _ in 0 }
    /// What waits for an ack of the app's server, and for how many milliseconds the oldest has.
    package var upstreamItems = 0
    package var eventItems = 0
    package var upstreamWait: GatewayTime = 0
    package var eventWait: GatewayTime = 0

    package init() {}

    /// Adds what an earlier shard of the same part counted here, without what is true of a moment.
    package mutating func addCounters(of earlier: AppStatistics) {
        accepted &+= earlier.accepted
        refusedOverShare &+= earlier.refusedOverShare
        expired &+= earlier.expired
        overflowed &+= earlier.overflowed
        failed &+= earlier.failed
    }

    mutating func addBlocks(_ count: Int64) { queuedBytes += count * Int64(QueuedBlocks.blockByteCount) }
    mutating func forgetBytes() { queuedBytes = 0 }

    mutating func add(_ holdings: CountedHoldings) {
        queuedMessages += holdings.messages
        addBlocks(holdings.blocks)
    }

    mutating func count(_ state: FinalState) {
        switch state {
        case .expired: expired &+= 1
        case .overflowed: overflowed &+= 1
        case .failed: failed &+= 1
        case .delivered, .deliveredOffline, .opened, .handedOff, .collapsed, .revoked: break
        }
    }
}

extension Shard {
    /// The figures of these apps, in their order; zeros for an app that this shard does not know.
    package func statistics(of keys: [AppKey]) -> [AppStatistics] {
        keys.map { key in
            guard let app = appPlaces[key] else { return AppStatistics() }
            var current = appNumbers[app]
            current.connectedDevices = sessions.count(ofApp: app)
            for channel in VendorChannel.allCases { current.dueJobs[channel] = jobs.dueCount(of: app, channel) }
            (current.upstreamItems, current.upstreamWait) = feeds.waiting(in: FeedName(key, .upstream), at: now)
            (current.eventItems, current.eventWait) = feeds.waiting(in: FeedName(key, .events), at: now)
            current.retainedBytes =
                appRetained[app].sum(on: CountersRow.day(of: now))
                + FeedKind.allCases.reduce(0) { $0 + feeds.byteCount(of: FeedName(key, $1)) }
            return current
        }
    }

    /// Counts what apps have by days that the shard counts from now on.
    mutating func addHoldings(_ sums: [AppKey: CountedHoldings]) {
        for (app, sum) in sums {
            numbers.pending += sum.messages
            holdingsBeforeServed[app, default: CountedHoldings()] += sum
            guard let place = appPlaces[app] else { continue }
            appNumbers[place].add(sum)
            appRetained[place].addDevices(sum.devices)
        }
    }

    /// What an app has besides its queues by the rows of counts.
    func retained(of app: AppKey) -> RetainedBytes {
        var retained = RetainedBytes()
        let day = CountersRow.day(of: now)
        retained.setAccepted(
            on: day, counters.accepted(of: app, on: day), before: counters.accepted(of: app, on: day - min(day, 1)))
        retained.addDevices(holdingsBeforeServed[app]?.devices ?? 0)
        return retained
    }

    /// Gives an app a place in every table that is kept by app.
    mutating func addApp(_ app: AppEntry) {
        // Before an index could exceed what a device's record names.
        if apps.count == Self.unlistedAppLimit, app.key != Self.crowdedOut, appPlaces[Self.crowdedOut] == nil {
            addApp(AppEntry(unlisted: Self.crowdedOut, knowsAllApps: true))
        }
        appPlaces[app.key] = apps.count
        apps.append(app)
        var figures = AppStatistics()
        if let holdings = holdingsBeforeServed[app.key] { figures.add(holdings) }
        appNumbers.append(figures)
        appRetained.append(retained(of: app.key))
        jobs.addApp()
        sessions.addApp()
        broadcasts.setApps(apps)
    }
}
