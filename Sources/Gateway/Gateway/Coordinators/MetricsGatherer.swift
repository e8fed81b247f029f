internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

/// Collects the figures of all hosts, each on its own thread, for `/metrics` and the health findings.
enum MetricsGatherer {
    /// Asks every host, and calls `complete` with the page on the asking host's thread.
    ///
    /// `scope` are the apps that the page may name; `nil` for all.
    static func gather(_ asker: EventLoopHost, scope: Set<AppKey>?, complete: @escaping ([UInt8]) -> Void) {
        let seen = asker.snapshot.settings.filter { scope?.contains($0.key) ?? true }
        // Disabled apps are listed only if there is room.
        let apps = (seen.filter(\.isServed) + seen.filter { !$0.isServed }).prefix(MetricFigures.appLimit)
        let ids = apps.map(\.appID)
        figures(asker, of: apps.map(\.key)) { figures in
            var figures = figures
            figures.appIDs = ids
            complete(MetricsPage.render(figures))
        }
    }

    /// Updates the gateway's health findings, logs the changes, and adds a point to the plots of the last hour.
    ///
    /// `wall` is the machine's time in seconds since 1970; findings about expiring certificates use it.
    static func look(_ asker: EventLoopHost, wall: Int64) {
        let (context, now) = (asker.context, ClockReader.boot())
        // Jobs of deleted and disabled apps are never leased, so they need no sender.
        figures(asker, of: asker.snapshot.settings.filter(\.isServed).map(\.key)) { figures in
            context.plots.withLock { $0.add(figures, at: now) }
            let (began, ended) = context.health.withLock {
                $0.look(at: figures, context.cluster?.health(), wall: wall)
            }
            for finding in began {
                context.log.write(
                    finding.severity == .problem ? .warning : .info, .findingBegan,
                    [.name: .text(finding.name.rawValue), .detail: .text("\(finding.text). \(finding.advice)")])
            }
            for finding in ended {
                context.log.write(
                    .info, .findingEnded, [.name: .text(finding.name.rawValue), .detail: .text(finding.text)])
            }
        }
    }

    /// Returns the points of the last hour.
    static func history(_ host: EventLoopHost) -> APIResponse {
        let (time, now) = (host.now, ClockReader.boot())
        return host.context.plots.withLock { $0.answer(time: time, now: now) }
    }

    private static func figures(
        _ asker: EventLoopHost, of apps: [AppKey], completion: @escaping (MetricFigures) -> Void
    ) {
        let (context, limits) = (asker.context, asker.limits)
        asker.askAll({ $0.figures(of: apps) }) { parts in
            var figures = context.figures
            (figures.loops, figures.limits) = (parts.flatMap(\.self), limits)
            completion(figures)
        }
    }
}

extension GatewayContext {
    fileprivate var figures: MetricFigures {
        var figures = MetricFigures()
        figures.status = status.withLock { $0 }
        figures.uptimeMilliseconds = ClockReader.monotonic() - figures.status.startedAtMonotonic
        figures.lostLogLines = Int(log.lostLineCount)
        figures.cpuNanoseconds = SystemClock.processNanoseconds
        (figures.deviceConnections, figures.senderConnections) = (connections.devices.value, connections.senders.value)
        figures.isEmptying = isEmptying
        figures.addressRefusals = peers.addresses.counts
        figures.bodyBytes = peers.budget.requestByteCount
        (figures.upstreamBytes, figures.streamBytes) = (peers.budget.upstreamByteCount, peers.budget.streamByteCount)
        (figures.budgetRefusals, figures.budgetClosings) = (peers.budget.refusedCount, peers.budget.closedCount)
        figures.store = store.statistics
        figures.acceptsWrites = store.acceptsWrites
        figures.hook = outbound.hook.withLock { $0 }?.figures
        figures.webhooks = outbound.feedPoster?.states ?? [:]
        figures.cluster = cluster?.figures()
        return figures
    }
}

extension EventLoopHost {
    /// Returns this host's figures and those of its partitions; runs on the host's thread.
    fileprivate func figures(of apps: [AppKey]) -> [LoopFigures] {
        var own = LoopFigures()
        own.metrics = metrics
        own.shard = endedFigures.shard
        own.apps = apps.map { endedFigures.apps[$0] ?? AppStatistics() }
        own.senderSessions = senders.count
        (own.waitingNewcomers, own.newcomerCost) = (welcomes.unheardCount, Int(welcomes.cost))
        if let gate = loop.handshakeGate {
            (own.waitingHandshakes, own.gatedHandshakes) = (gate.waitingCount, gate.underWayCount)
        }
        (own.httpConnections, own.adminConnections) = (publicRoom.count, adminRoom.count)
        (own.httpDisplaced, own.adminDisplaced) = (publicRoom.displacedCount, adminRoom.displacedCount)
        (own.httpTurnedAway, own.adminTurnedAway) = (publicRoom.refusedCount, adminRoom.refusedCount)
        own.waitingLongPolls = handoff.waitingCount
        own.mailboxItems = mailboxes[index].count
        var all = [own]
        forEachPartition { all.append($0.figures(of: apps)) }
        return all
    }
}

extension Partition {
    fileprivate func figures(of apps: [AppKey]) -> LoopFigures {
        var figures = LoopFigures()
        figures.shard = statistics
        figures.apps = core.pointee.shard.statistics(of: apps)
        figures.deviceSessions = sessions.count
        figures.youngRows = store.youngRowCount
        return figures
    }
}

/// The counters of shards that a host no longer has.
struct EndedFigures {
    private(set) var shard = ShardStatistics()
    private(set) var apps: [AppKey: AppStatistics] = [:]

    mutating func add(_ ended: ShardStatistics, _ keys: [AppKey], _ endedApps: [AppStatistics]) {
        shard.addCounters(of: ended)
        for (key, app) in zip(keys, endedApps) { apps[key, default: AppStatistics()].addCounters(of: app) }
    }
}
