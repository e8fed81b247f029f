internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// Operators' requests about apps; the owner of part 0 applies the changes, and every gateway replicates them.
struct AppHandler {
    private unowned let owner: EventLoopHost

    init(_ owner: EventLoopHost) { self.owner = owner }

    func handle(_ request: AppRequest, respond: @escaping (APIResponse) -> Void) {
        switch request {
        case .show(let appID):
            var page = owner.context.apps.page(of: appID, now: owner.now)
            if let app = owner.registry.known(appID) {
                page?.quotas = owner.context.usage.quotas.usage(of: app.key, quotas: app.quotas, now: owner.loop.now)
            }
            respond(page.map(AppAnswer.page) ?? AppAnswer.unknown)
        case .change(let change, let name):
            guard owner.context.isReady, !owner.context.isStopping else {
                return respond(.adminUnavailable("the gateway is starting or stopping"))
            }
            owner.ask(ChangeApp(change: change), of: Bucket(0)) { [self] answer in
                guard let result = answer else {
                    return respond(
                        .adminUnavailable("the owner of the apps' rows does not answer now: look at the app, and retry")
                    )
                }
                switch result {
                case .refused(let refusal, let message): respond(AppAnswer.refused(refusal, message))
                case .done(let app, let isNew, let shown):
                    if isNew {
                        owner.log.write(
                            .info, .appChanged,
                            [.name: .text(name), .app: .text(app.appID), .detail: .text(change.act.past)])
                    }
                    let response = AppAnswer.done(
                        change.act, isNew: isNew, AppPage(app, now: owner.now),
                        secrets: shown.map { ($0.name, $0.exposed) })
                    // The answer waits until this gateway has the change, so that a later request here sees it.
                    guard isNew, owner.context.apps.version < app.version else { return respond(response) }
                    owner.followApps { _ in respond(response) }
                }
            }
        }
    }
}
