internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import Wire

/// Gathers `/metrics`: each loop hands out a copy of its figures on its own thread, the asking loop renders the page.
enum MetricsGatherer {
    /// Asks every loop; `complete` gets the page on the asking loop.
    ///
    /// `scope`: the apps that the page may name; `nil`: all.
    static func gather(_ asker: GatewayLoop, scope: Set<AppKey>?, complete: @escaping ([UInt8]) -> Void) {
        let context = asker.context
        let seen = asker.snapshot.settings.filter { scope?.contains($0.key) ?? true }
        // Disabled apps are listed only where there is room.
        let apps = (seen.filter(\.isServed) + seen.filter { !$0.isServed }).prefix(MetricFigures.appLimit)
        let limits = asker.limits
        let (keys, ids) = (apps.map(\.key), apps.map(\.appID))
        asker.askAll({ $0.figures(of: keys) }) { parts in
            var figures = context.figures
            (figures.loops, figures.appIDs) = (parts, ids)
            figures.limits = limits
            complete(MetricsPage.render(figures))
        }
    }
}

extension GatewayContext {
    /// What the process has of a page.
    fileprivate var figures: MetricFigures {
        var figures = MetricFigures()
        figures.status = status.withLock { $0 }
        figures.uptimeMilliseconds = ClockReader.monotonic() - figures.status.startedAtMonotonic
        figures.lostLogLines = Int(log.lostLineCount)
        figures.cpuNanoseconds = SystemClock.processNanoseconds
        (figures.deviceConnections, figures.senderConnections) = (deviceConnections.value, senderConnections.value)
        figures.isEmptying = isEmptying
        figures.addressRefusals = addresses.counts
        figures.bodyBytes = peerBudget.requestByteCount
        (figures.upstreamBytes, figures.streamBytes) = (peerBudget.upstreamByteCount, peerBudget.streamByteCount)
        (figures.budgetRefusals, figures.budgetClosings) = (peerBudget.refusedCount, peerBudget.closedCount)
        figures.store = store.statistics
        figures.acceptsWrites = store.acceptsWrites
        figures.hook = hook.withLock { $0 }?.figures
        figures.webhooks = feedPoster?.states ?? [:]
        figures.cluster = cluster?.figures()
        return figures
    }
}

extension GatewayLoop {
    /// What this loop has of a page, with the figures of these apps; on its thread.
    fileprivate func figures(of apps: [AppKey]) -> LoopFigures {
        var figures = LoopFigures()
        figures.metrics = metrics
        figures.shard = statistics
        figures.shard.addCounters(of: endedFigures.shard)
        figures.apps = core.pointee.seat.statistics(of: apps)
        for (place, app) in apps.enumerated() {
            if let earlier = endedFigures.apps[app] { figures.apps[place].addCounters(of: earlier) }
        }
        (figures.deviceSessions, figures.senderSessions) = (sessions.count, senders.count)
        if welcomes.belongs(to: self) {
            (figures.waitingNewcomers, figures.newcomerCost) = (welcomes.unheardCount, Int(welcomes.cost))
            if let gate = loop.handshakeGate {
                (figures.waitingHandshakes, figures.gatedHandshakes) = (gate.waitingCount, gate.underWayCount)
            }
        }
        (figures.httpConnections, figures.adminConnections) = (publicRoom.count, adminRoom.count)
        (figures.httpDisplaced, figures.adminDisplaced) = (publicRoom.displacedCount, adminRoom.displacedCount)
        (figures.httpTurnedAway, figures.adminTurnedAway) = (publicRoom.refusedCount, adminRoom.refusedCount)
        figures.waitingLongPolls = handoff.waitingCount
        figures.mailboxItems = mailboxes[index].count
        figures.youngRows = store.youngRowCount
        return figures
    }
}

/// What the shards counted that a loop served before its present one.
struct EndedFigures {
    private(set) var shard = ShardStatistics()
    private(set) var apps: [AppKey: AppStatistics] = [:]

    mutating func add(_ ended: ShardStatistics, _ keys: [AppKey], _ endedApps: [AppStatistics]) {
        shard.addCounters(of: ended)
        for (key, app) in zip(keys, endedApps) { apps[key, default: AppStatistics()].addCounters(of: app) }
    }
}
