internal import Directory
internal import EventLoops
internal import PushAPI

// Calls about users, and pushes to an alias: both run operations over several loops first.
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

    func push(_ exchange: HTTPExchange, _ aliasPush: AliasPush) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        let isTaken = owner.directoryFront.run(.resolve([aliasPush.name]), app: aliasPush.app) {
            [weak self] operation in
            guard let self else { return }
            guard operation.outcomes == [.done] else { return respond(exchange, UserAnswer.unreadable) }
            let members = operation.members.first ?? []
            guard !members.isEmpty else { return respond(exchange, UserAnswer.nobodyHasAlias) }
            push(exchange, aliasPush.pushes(to: members), PushForm(kind: .alias))
        }
        if !isTaken { respond(exchange, .busy) }
    }
}
