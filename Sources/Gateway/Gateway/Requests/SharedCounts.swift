internal import Delivery
internal import EventLoops
internal import Quotas
internal import Wire

/// Adds what a gateway's callers have used of their apps' rates; answered with what all gateways' have, `nil`: no answer.
struct CountRates: PartitionRequest {
    static let number: UInt8 = 20
    var reports: [RateReport]

    var busy: [RateTotal]? { nil }

    func isValid(in share: LoopShare) -> Bool {
        share.hasGatewayRows && reports.count <= RateLimiter.exchangeLimit && reports.allSatisfy(\.isSound)
    }

    static func isValid(_ answer: [RateTotal]?) -> Bool { answer?.allSatisfy(\.isSound) ?? true }

    func perform(on loop: GatewayLoop, _ origin: Origin) {
        loop.reply(Optional(loop.context.rates.count(reports, now: loop.now)), to: origin)
    }
}

/// Tells what the asking gateway's partitions have queued of apps with such a quota; answered with what the others have.
struct CountQueues: PartitionRequest {
    static let number: UInt8 = 21
    var queues: [AppQueue]

    var busy: [AppQueue]? { nil }

    func isValid(in share: LoopShare) -> Bool {
        share.hasGatewayRows && queues.count <= QueueLedger.appLimit && queues.allSatisfy(\.isSound)
    }

    static func isValid(_ answer: [AppQueue]?) -> Bool { answer?.allSatisfy(\.isSound) ?? true }

    func perform(on loop: GatewayLoop, _ origin: Origin) {
        // A gateway tells of its own queues: the link wrote its number into the route.
        let asker = Route(origin.route)?.node ?? 0
        let node = asker == 0 ? loop.context.cluster?.node ?? 0 : asker
        guard let elsewhere = loop.context.quotas.count(queues, of: node, now: loop.loop.now) else {
            return loop.replyBusy(to: origin)
        }
        loop.reply(Optional(elsewhere), to: origin)
    }
}
