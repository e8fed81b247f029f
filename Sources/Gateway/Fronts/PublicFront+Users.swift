internal import Directory
internal import EventLoops
internal import PushAPI

// Calls about users run operations over several loops first.
extension PublicFront {
    func users(_ exchange: HTTPExchange, _ request: UserRequest) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        guard let counted = request.counted else { return run(exchange, request) }
        let isTaken = owner.directoryFront.charge(counted, app: request.app) { [weak self] verdict in
            guard let self else { return }
            guard verdict == .granted else { return respond(exchange, UserAnswer.refused(request, verdict)) }
            run(exchange, request)
        }
        if !isTaken { respond(exchange, .busy) }
    }

    private func run(_ exchange: HTTPExchange, _ request: UserRequest) {
        let isTaken = owner.directoryFront.run(request.work, app: request.app) { [weak self] operation in
            self?.respond(exchange, UserAnswer.render(request, operation))
        }
        if !isTaken { respond(exchange, .busy) }
    }
}
