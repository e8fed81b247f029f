internal import Quotas
internal import Directory
internal import EventLoops
internal import PushAPI

extension PublicHandler {
    func users(_ exchange: HTTPExchange, _ request: UserRequest) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        if let counted = request.counted, let bound = owner.limits.bound(of: counted) {
            let verdict = owner.context.usage.rates.take(counted, app: request.app, bound: bound, now: owner.now)
            guard verdict == .granted else { return respond(exchange, UserAnswer.refused(request, verdict)) }
        }
        let isTaken = owner.directoryHandler.run(request.work, app: request.app) { [self] operation in
            respond(exchange, UserAnswer.render(request, operation))
        }
        if !isTaken { respond(exchange, .busy) }
    }
}
