internal import Delivery
internal import EventLoops
internal import PushAPI

// What devices report over HTTPS.
extension PublicHandler {
    func receipt(_ exchange: HTTPExchange, _ request: ReceiptRequest) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        guard
            let (slot, stamp) = receipts.insert(
                PendingReceipt(exchange: exchange, app: request.app, form: request.form))
        else {
            return respond(exchange, .busy)
        }
        owner.receipt(request.command(origin: owner.route(.receipt, slot, stamp).origin(0)))
    }

    func answered(_ route: Route, _ answer: ReceiptAnswer) {
        guard let pending = receipts.remove(route.slot, route.stamp) else { return }
        switch answer {
        case .taken(let verdicts):
            api.proved(pending.app, now: owner.now)
            for verdict in verdicts { owner.metrics.count(.event(verdict)) }
        case .refused: owner.metrics.count(.receiptRefused)
        case .clockSkew: owner.metrics.count(.receiptSkewed)
        case .busy: owner.metrics.count(.receiptBusy)
        }
        respond(pending.exchange, ReceiptRequest.answer(answer, form: pending.form))
    }
}
