internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

extension PublicHandler {
    func receipt(_ exchange: HTTPExchange, _ request: ReceiptRequest) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        let command = request.command(origin: .none)
        owner.ask(command, of: command.bucket) { [self, app = request.app, form = request.form] answer in
            count(answer, of: app)
            respond(exchange, ReceiptRequest.answer(answer, form: form))
        }
    }

    private func count(_ answer: ReceiptAnswer, of app: AppKey) {
        switch answer {
        case .taken(let verdicts):
            api.proved(app, now: owner.now)
            for verdict in verdicts { owner.metrics.count(.event(verdict)) }
        case .refused: owner.metrics.count(.receiptRefused)
        case .clockSkew: owner.metrics.count(.receiptSkewed)
        case .busy: owner.metrics.count(.receiptBusy)
        }
    }
}
