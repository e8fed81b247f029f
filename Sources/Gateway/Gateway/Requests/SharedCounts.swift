internal import Delivery
internal import EventLoops
internal import Quotas
internal import Wire

/// Reports a gateway's use of apps' rate limits; the answer has the totals of all gateways, or is `nil` if the counter is
/// unavailable.
struct CountRates: PartitionRequest {
    static let number: UInt8 = 20
    var reports: [RateReport]

    var busy: [RateTotal]? { nil }

    func isValid(in share: LoopShare) -> Bool {
        share.hasGatewayRows && reports.count <= RateLimiter.exchangeLimit && reports.allSatisfy(\.isSound)
    }

    static func isValid(_ answer: [RateTotal]?) -> Bool { answer?.allSatisfy(\.isSound) ?? true }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.reply(Optional(partition.context.usage.rates.count(reports, now: partition.now)), to: origin)
    }
}

/// Reports a gateway's queued messages by app; the answer has the counts of the other gateways.
struct CountQueues: PartitionRequest {
    static let number: UInt8 = 21
    var queues: [AppQueue]

    var busy: [AppQueue]? { nil }

    func isValid(in share: LoopShare) -> Bool {
        share.hasGatewayRows && queues.count <= QueueLedger.appLimit && queues.allSatisfy(\.isSound)
    }

    static func isValid(_ answer: [AppQueue]?) -> Bool { answer?.allSatisfy(\.isSound) ?? true }

    func perform(on partition: Partition, _ origin: Origin) {
        // The link sets the asking gateway's number in the route, so a gateway cannot report for another one.
        guard let node = Route(origin.route)?.node, node != 0,
            let elsewhere = partition.context.usage.quotas.count(queues, of: node, now: partition.loop.now)
        else { return partition.replyBusy(to: origin) }
        partition.reply(Optional(elsewhere), to: origin)
    }
}
