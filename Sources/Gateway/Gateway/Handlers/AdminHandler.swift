internal import Configuration
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import PushAPI
internal import Wire

final class AdminHandler {
    static let pendingLimit = 4_096
    static let busy = APIResponse.adminUnavailable("too many requests wait here, retry")

    // SAFETY: the host outlives this object, because its loop closes all streams and servers before the host is released.
    private unowned(unsafe) let owner: EventLoopHost
    private let api: AdminAPI
    private let inspections: InspectionHandler
    private let apps: AppHandler
    /// The number of operators' requests in progress.
    private var pendingCount = 0

    init(_ owner: EventLoopHost) {
        self.owner = owner
        inspections = InspectionHandler(owner)
        apps = AppHandler(owner)
        api = AdminAPI(registry: owner.registry, credentials: owner.snapshot.credentials)
    }

    func reload(_ snapshot: GatewaySnapshot) {
        api.registry = snapshot.registry
        api.credentials = snapshot.credentials
    }

    func judge(_ head: HTTPRequestHead) -> HTTPPrecheck {
        if ConsolePage.isTarget(head.target) { return .take(byteLimit: 0, isProven: false) }
        let judgement = api.judge(head.request, bodyByteCount: head.bodyByteCount)
        if case .refuse(let response) = judgement {
            owner.metrics.count(.answered(response.status, isAdmin: true))
        }
        return HTTPPrecheck(judgement)
    }

    func handle(_ exchange: HTTPExchange) {
        if ConsolePage.isDevice(exchange.rawTargetBytes) {
            return owner.metrics.count(
                .answered(DeviceHandshake.accept(upgrading: exchange, on: owner), isAdmin: true))
        }
        if ConsolePage.isTarget(exchange.rawTargetBytes) {
            let reply = ConsolePage.reply(exchange.method, exchange.rawTargetBytes)
            owner.metrics.count(.answered(reply.status, isAdmin: true))
            return exchange.respond(
                status: reply.status, contentType: reply.contentType, headers: reply.headers, body: reply.body)
        }
        guard isOfUnlistedApp(exchange.rawTargetBytes) else { return handleListed(exchange) }
        owner.appInquiry.confirm { [self] isConfirmed in
            guard isConfirmed else {
                respond(exchange, .adminUnavailable("the owner of the apps' rows does not answer now; retry"))
                return
            }
            handleListed(exchange)
        }
    }

    /// Whether a path names an app that is unknown here; another gateway may have just created the app.
    private func isOfUnlistedApp(_ target: UnsafeRawBufferPointer) -> Bool {
        guard owner.context.cluster != nil, target.starts(with: "/v1/apps/".utf8) else { return false }
        let path = RequestPath(target)
        return path.count > 2 && owner.registry.known(path.text(2)) == nil
    }

    private func handleListed(_ exchange: HTTPExchange) {
        switch exchange.withRequest({ api.handle($0, now: owner.now) }) {
        case .respond(let response): respond(exchange, response)
        case .lease(let request): lease(exchange, request)
        case .results(let request):
            let isTaken = owner.handoff.settle(request.results, apps: request.apps) { [self] verdicts in
                respond(exchange, HandoffAnswer.verdicts(verdicts))
            }
            if !isTaken { respond(exchange, Self.busy) }
        case .receipts(let receipts, let apps):
            let isTaken = owner.handoff.take(receipts, apps: apps) { [self] verdicts in
                respond(exchange, HandoffAnswer.verdicts(verdicts))
            }
            if !isTaken { respond(exchange, Self.busy) }
        case .extend(let request):
            let items = request.items.map { ExtendItem(job: $0.job, leaseID: $0.leaseID) }
            let isTaken = owner.handoff.extend(
                items, milliseconds: request.leaseMilliseconds, apps: request.apps
            ) { [self] verdicts in
                respond(exchange, HandoffAnswer.verdicts(verdicts))
            }
            if !isTaken { respond(exchange, Self.busy) }
        case .device(let device):
            let request = DeviceStatusRequest(device: device, readsAttributes: true)
            ask(exchange, request, device.bucket) { [api] answer in
                if case .unreadable = answer {
                    return .adminUnavailable("the device's record cannot be read now, retry")
                }
                return AdminAnswer.device(answer.status, at: device, registry: api.registry)
            }
        case .message(let message, let scope):
            guard let bucket = message.bucket else { return }
            ask(exchange, MessageTraceRequest(message: message), bucket) { [api] answer in
                if case .unreadable = answer {
                    return .adminUnavailable("the message's rows cannot be read now, retry")
                }
                return AdminAnswer.trace(answer.trace, scope: scope, registry: api.registry)
            }
        case .push(let app, let credential):
            owner.log.write(.info, .operatorPush, [.name: .text(credential), .app: .text(app.appID)])
            owner.publicHandler.push(exchange, app: app)
        case .inspect(let request):
            guard owner.context.isReady else { return respond(exchange, .adminUnavailable("the gateway is starting")) }
            inspections.handle(request) { [self] response in respond(exchange, response) }
        case .feed(let request):
            owner.feeds.handle(request, isCallerPresent: { !exchange.isPeerGone }) { [self] response in
                respond(exchange, response)
            }
        case .metrics(let scope):
            MetricsGatherer.gather(owner, scope: scope) { [self] page in
                respond(exchange, APIResponse(status: 200, contentType: .metrics, body: page))
            }
        case .metricHistory: respond(exchange, MetricsGatherer.history(owner))
        case .cluster:
            respond(exchange, owner.context.cluster?.status().map(ClusterAnswer.status) ?? ClusterAnswer.none)
        case .registerRequest(let request): wish(exchange, request)
        case .backup(let name, let credential):
            guard let store = owner.context.store as? EmbeddedStore else { return respond(exchange, BackupAnswer.none) }
            guard !owner.context.isStopping else {
                return respond(exchange, .adminUnavailable("the gateway is stopping"))
            }
            respond(
                exchange,
                owner.context.backups.begin(
                    name, in: owner.snapshot.backupFolder, of: store, by: credential, log: owner.log))
        case .app(let request): apps.handle(request) { [self] response in respond(exchange, response) }
        case .drain(let request, let credential): drain(exchange, request, by: credential)
        case .drainState: respond(exchange, DrainAnswer.status(owner.context.drainStatus(now: Int64(owner.loop.now))))
        case .backupState: respond(exchange, BackupAnswer.status(owner.context.backups.status))
        case .health(let scope):
            respond(exchange, HealthPage.findings(owner.context, isForAllApps: scope == nil))
        case .signIn(let code):
            let token = owner.context.signInLink.take(code, now: ClockReader.monotonic())
            respond(exchange, AdminAnswer.signIn(token: token?.exposed))
        case .healthz: respond(exchange, HealthPage.health(owner.context))
        case .readyz: respond(exchange, HealthPage.readiness(owner.context, withFindings: true))
        }
    }

    private func lease(_ exchange: HTTPExchange, _ request: LeaseRequest) {
        guard !owner.context.isStopping else {
            return respond(exchange, .adminUnavailable("the gateway is stopping"))
        }
        let longPolls = owner.context.connections.longPolls
        guard longPolls.enter(limit: owner.limits.longPolls) else {
            longPolls.leave()
            return respond(exchange, Self.busy)
        }
        let isTaken = owner.handoff.lease(
            HandoffCoordinator.LeaseCall(
                channel: request.channel, apps: request.apps, limit: request.limit,
                leaseMilliseconds: request.leaseMilliseconds,
                deadline: Int64(owner.loop.now) + request.waitMilliseconds, leaseID: request.leaseID,
                isCallerPresent: { !exchange.isPeerGone },
                complete: { [self] jobs in
                    longPolls.leave()
                    respond(exchange, HandoffAnswer.lease(jobs, registry: api.registry))
                }), now: Int64(owner.loop.now))
        if !isTaken {
            longPolls.leave()
            respond(exchange, Self.busy)
        }
    }

    private func drain(_ exchange: HTTPExchange, _ request: DrainRequest, by credential: String) {
        guard !owner.context.isStopping else {
            return respond(exchange, .adminUnavailable("the gateway is stopping"))
        }
        let now = Int64(owner.loop.now)
        owner.context.drain(request, by: credential, now: now)
        respond(exchange, DrainAnswer.status(owner.context.drainStatus(now: now)))
    }

    /// Passes the request to the membership thread, because a call of the register may block.
    private func wish(_ exchange: HTTPExchange, _ request: ClusterRequest) {
        guard let cluster = owner.context.cluster else { return respond(exchange, ClusterAnswer.none) }
        let (loop, bound) = (owner.loop, LoopBound(exchange, on: owner.loop))
        let member = LoopBound(self, on: owner.loop)
        cluster.wish(request) { response in
            loop.submit { member.wrapped.respond(bound.wrapped, response) }
        }
    }

    private func ask<Request: PartitionRequest>(
        _ exchange: HTTPExchange, _ request: Request, _ bucket: Bucket,
        response: @escaping (Request.Answer) -> APIResponse
    ) {
        guard pendingCount < Self.pendingLimit else { return respond(exchange, Self.busy) }
        pendingCount += 1
        owner.ask(request, of: bucket) { [self] answer in
            pendingCount -= 1
            respond(exchange, response(answer))
        }
    }

    private func respond(_ exchange: HTTPExchange, _ response: APIResponse) {
        owner.metrics.count(.answered(response.status, isAdmin: true))
        exchange.respond(response)
    }
}
