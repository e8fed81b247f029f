internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform

/// Gathers `/metrics`: each loop hands out a copy of its numbers on its own thread, the asking loop renders the page.
enum MetricsGatherer {
    /// One loop's part.
    struct Part: Sendable {
        var metrics: LoopMetrics
        var statistics: ShardStatistics
        var deviceSessions: Int
        var senderSessions: Int
        var httpConnections: Int
        var adminConnections: Int
        var waitingLongPolls: Int
        var mailboxItems: Int
        var youngRows: Int
    }

    private final class Collection: Sendable {
        let parts = Lock<[Part]>([])
    }

    /// Asks every loop; `complete` gets the page on the asking loop.
    static func gather(_ asker: GatewayLoop, complete: @escaping ([UInt8]) -> Void) {
        let collection = Collection()
        let context = asker.context
        let done = LoopBound(complete, on: asker.loop)
        let askingLoop = asker.loop
        for member in context.members {
            member.submit { member in
                let part = member.metricsPart()
                let isComplete = collection.parts.withLock { parts in
                    parts.append(part)
                    return parts.count == context.loopCount
                }
                guard isComplete else { return }
                askingLoop.submit {
                    done.wrapped(render(collection.parts.withLock { $0 }, context))
                }
            }
        }
    }

    private static func render(_ parts: [Part], _ context: GatewayContext) -> [UInt8] {
        var page = MetricsPage()
        let status = context.status.withLock { $0 }
        page.add(.buildInformation, 1, [.version: Version.text])
        page.add(.uptimeSeconds, Double(ClockReader.monotonic() - status.startedAtMonotonic) / 1_000)
        page.add(.configurationVersion, Double(status.configurationVersion))
        page.add(.reloads, Double(status.reloadsApplied), [.result: "applied"])
        page.add(.reloads, Double(status.reloadsRefused), [.result: "refused"])
        page.add(.clockOffsetSeconds, Double(status.clockOffset) / 1_000)
        page.add(.clockStepRefused, status.isClockStepRefused ? 1 : 0)
        page.add(.logLinesLost, Double(context.log.lostLineCount))
        for part in parts { page.add(part.metrics) }
        func sum(_ value: (Part) -> Int) -> Double { Double(parts.reduce(0) { $0 + value($1) }) }
        page.add(.sessions, sum(\.deviceSessions), [.role: "device"])
        page.add(.sessions, sum(\.senderSessions), [.role: "sender"])
        page.add(.connections, Double(context.deviceConnections.value + context.senderConnections.value))
        page.add(.httpConnections, sum(\.httpConnections), [.listener: "http"])
        page.add(.httpConnections, sum(\.adminConnections), [.listener: "admin"])
        page.add(.connectionLimit, Double(status.connections.devices), [.listener: "device"])
        page.add(.connectionLimit, Double(status.connections.senders), [.listener: "senders"])
        page.add(.connectionLimit, Double(status.connections.http), [.listener: "http"])
        page.add(.connectionLimit, Double(status.connections.admin), [.listener: "admin"])
        page.add(.httpBodyBytes, Double(context.bodies.byteCount))
        page.add(.longPolls, sum(\.waitingLongPolls))
        page.add(.mailboxItems, sum(\.mailboxItems))
        page.add(.youngRows, sum(\.youngRows))
        page.add(.broadcastsLive, Double(parts.map(\.statistics.liveBroadcasts).max() ?? 0))
        page.add(.jobsDue, sum { Int($0.statistics.dueJobs) })
        addStore(context, to: &page)
        context.hook.withLock { $0 }?.report(to: &page)
        return page.render()
    }

    private static func addStore(_ context: GatewayContext, to page: inout MetricsPage) {
        let store = context.store.statistics
        page.add(.commits, Double(store.groupCount))
        page.add(.commitBytes, Double(store.journalWrittenByteCount))
        page.add(.longestCommitSeconds, Double(store.longestCommit) / 1_000_000)
        page.add(.commitTimeSeconds, Double(store.totalCommitTime) / 1_000_000)
        page.add(.journalBytes, Double(store.journalByteCount))
        page.add(.uncommittedBytes, Double(store.uncommittedByteCount))
        page.add(.spilledRows, Double(store.spilledRowCount))
        page.add(.rowFileBytes, Double(store.rowFileByteCount + store.ephemeralFileByteCount))
        page.add(.storeAcceptsWrites, context.store.acceptsWrites ? 1 : 0)
        for (type, retention) in [("requests", store.requests), ("traces", store.traces)] {
            page.add(.retainedBytes, Double(retention.byteCount), [.type: type])
            page.add(.retainedBytesLimit, Double(retention.byteLimit), [.type: type])
            page.add(.retainedSeconds, Double(retention.milliseconds) / 1_000, [.type: type])
            page.add(.retentionCuts, Double(retention.cutCount), [.type: type])
        }
    }
}

extension GatewayLoop {
    /// This loop's part of the page; on its thread.
    func metricsPart() -> MetricsGatherer.Part {
        let statistics = core.pointee.shard.statistics
        // What the shard counts itself is put into the copy, so that nothing is counted twice on a message's way.
        var page = metrics
        page.count(.httpDisplaced, Int(publicRoom.displacedCount))
        page.count(.httpTurnedAway, Int(publicRoom.refusedCount))
        page.count(.adminDisplaced, Int(adminRoom.displacedCount))
        page.count(.adminTurnedAway, Int(adminRoom.refusedCount))
        page.count(.messagesAccepted, Int(statistics.accepted))
        for state in FinalState.allCases { page.count(.ended(state), Int(statistics.ended(state))) }
        page.count(.acksReceived, Int(statistics.ended(.delivered) + statistics.ended(.deliveredOffline)))
        page.count(.broadcastMessages, Int(statistics.broadcastMessages))
        page.count(.acksIgnored, Int(statistics.acksIgnored))
        page.count(.feedbackIgnored, Int(statistics.feedbackIgnored))
        page.count(.alertedTwice, Int(statistics.alertedTwice))
        page.count(.jobsLeased, Int(statistics.leasesGiven))
        page.count(.resultAccepted, Int(statistics.resultsAccepted))
        page.count(.resultRetry, Int(statistics.resultsRetry))
        page.count(.resultRejected, Int(statistics.resultsRejected))
        page.count(.resultBadToken, Int(statistics.resultsBadToken))
        page.count(.resultStale, Int(statistics.resultsStale))
        return MetricsGatherer.Part(
            metrics: page, statistics: statistics, deviceSessions: sessions.count, senderSessions: senders.count,
            httpConnections: publicRoom.count, adminConnections: adminRoom.count,
            waitingLongPolls: handoffDesk.waitingCount,
            mailboxItems: mailboxes[index].count, youngRows: store.youngRowCount)
    }
}
