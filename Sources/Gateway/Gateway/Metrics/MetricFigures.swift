package import Delivery
internal import EventLoops
package import MessageStore

/// The values for one scrape, copied from their owners.
package struct MetricFigures: Sendable {
    /// The maximum number of apps with samples: the first ones of the configuration.
    package static let appLimit = 200

    package var uptimeMilliseconds: Int64 = 0
    var status = GatewayStatus()
    package var cpuNanoseconds: UInt64 = 0
    package var limits = GatewayLimits()
    package var lostLogLines = 0
    package var deviceConnections = 0
    package var senderConnections = 0
    package var isEmptying = false
    var addressRefusals: [AddressRefusal.Kind: Int] = [:]
    package var bodyBytes = 0
    /// The bytes buffered for peers besides bodies, and the refusals and closed connections caused by the budget of all such
    /// bytes.
    package var upstreamBytes = 0
    package var streamBytes = 0
    package var budgetRefusals = 0
    package var budgetClosings = 0
    package var store = StoreStatistics()
    package var acceptsWrites = true
    package var hook: HookState?
    /// The states of webhooks by feed, after their first call.
    package var webhooks: [String: HookState] = [:]
    package var cluster: ClusterFigures?
    package var loops: [LoopFigures] = []
    /// The appIds of the page, which index `LoopFigures.apps`.
    package var appIDs: [String] = []

    package init() {}
}

package struct LoopFigures: Sendable {
    package var metrics = LoopMetrics()
    package var shard = ShardStatistics()
    /// The apps, in the order of `MetricFigures.appIDs`.
    package var apps: [AppStatistics] = []
    package var deviceSessions = 0
    package var senderSessions = 0
    package var waitingNewcomers = 0
    /// The cost of accepting a device, in nanoseconds.
    package var newcomerCost = 0
    package var waitingHandshakes = 0
    package var gatedHandshakes = 0
    package var httpConnections = 0
    package var adminConnections = 0
    package var httpDisplaced: UInt64 = 0
    package var adminDisplaced: UInt64 = 0
    package var httpTurnedAway: UInt64 = 0
    package var adminTurnedAway: UInt64 = 0
    package var waitingLongPolls = 0
    package var mailboxItems = 0
    package var youngRows = 0

    package init() {}
}
