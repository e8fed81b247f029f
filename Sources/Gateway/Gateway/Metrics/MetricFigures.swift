package import Delivery
internal import EventLoops
package import MessageStore

/// What a page is made of: copies of the figures, taken for one scrape.
package struct MetricFigures: Sendable {
    /// A page has samples of this many apps at most: the first of the configuration.
    package static let appLimit = 200

    package var uptimeMilliseconds: Int64 = 0
    var status = GatewayStatus()
    package var cpuNanoseconds: UInt64 = 0
    /// Those in force.
    package var limits = GatewayLimits()
    package var lostLogLines = 0
    package var deviceConnections = 0
    package var senderConnections = 0
    package var isEmptying = false
    var addressRefusals: [AddressRefusal.Kind: Int] = [:]
    package var bodyBytes = 0
    /// Other bytes that peers make the process hold, and the refusals and closed connections that kept them in bounds.
    package var upstreamBytes = 0
    package var streamBytes = 0
    package var budgetRefusals = 0
    package var budgetClosings = 0
    package var store = StoreStatistics()
    package var acceptsWrites = true
    /// `nil` without a hook.
    package var hook: HookState?
    /// By feed, once its webhook was called.
    package var webhooks: [String: HookState] = [:]
    /// `nil` without `store.redis`.
    package var cluster: ClusterFigures?
    package var loops: [LoopFigures] = []
    /// The ids of the page's apps.
    package var appIDs: [String] = []

    package init() {}
}

/// The figures of one host, or of one partition.
package struct LoopFigures: Sendable {
    package var metrics = LoopMetrics()
    package var shard = ShardStatistics()
    /// In the order of `MetricFigures.appIDs`.
    package var apps: [AppStatistics] = []
    package var deviceSessions = 0
    package var senderSessions = 0
    package var waitingNewcomers = 0
    /// In nanoseconds.
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
