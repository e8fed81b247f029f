internal import Quotas
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// The push listener of one loop; it parses requests with `PublicAPI`, sends the commands to their devices' loops and answers
/// after the last outcome.
final class PublicHandler {
    /// A class, so that storing one item's outcome does not copy the others.
    private final class PendingPush {
        let exchange: HTTPExchange
        let form: PushForm
        /// The app's index in `AppShares`.
        let share: Int
        var outcomes: [PublishOutcome?]
        var missing: Int
        init(exchange: HTTPExchange, form: PushForm, share: Int, count: Int) {
            (self.exchange, self.form, self.share) = (exchange, form, share)
            (outcomes, missing) = (Array(repeating: nil, count: count), count)
        }
    }

    /// The most requests in progress on one loop; further requests are refused as busy.
    static let pendingLimit = 65_536

    // SAFETY: the host outlives this object, because its loop closes all streams and servers before the host is released.
    unowned(unsafe) let owner: EventLoopHost
    let api: PublicAPI
    private var pushes = StampedTable<PendingPush>(limit: PublicHandler.pendingLimit)
    /// Throttled requests, by the callers' indices in `AppShares`, in the order of arrival.
    ///
    /// They are not parsed yet. Each connection has at most one, because the HTTP server reads nothing before the answer.
    private var waiting: [Int: [HTTPExchange]] = [:]
    private var waitingCount = 0
    private var handledCount = 0
    /// Whether the listeners are paused because most connections are used by throttled requests.
    private var isCrowded = false
    /// Revoked tokens that had expired before their rows were read here.
    private var expiredRows: [TokenID] = []

    init(_ owner: EventLoopHost) {
        self.owner = owner
        api = PublicAPI(
            registry: owner.registry,
            tokens: TokenAuthority(
                key: owner.context.tokenKey, revoked: owner.context.revokedTokens,
                trustedFrom: owner.context.cluster.map { _ in owner.context.startedAt + Self.clockMargin }))
        api.userLimits = owner.limits.users
        api.rates = owner.context.usage.rates
        api.mayMissApps = owner.context.cluster != nil
    }

    var hasWorkUnderWay: Bool { pushes.count > 0 || !waiting.isEmpty }

    func reload(_ snapshot: GatewaySnapshot) {
        api.registry = snapshot.registry
        api.userLimits = snapshot.limits.users
    }

    var revokedTokens: [TokenID] { api.tokens.revokedTokens.all.filter { $0.expiresAt > owner.now } }

    var hasRoomForRevoked: Bool { api.tokens.revokedTokens.count < PushAPI.Limits.revokedTokens }

    /// The largest clock difference between gateways, in milliseconds; gateways with a larger difference do not start.
    private static let clockMargin: Int64 = 2_000

    /// Adds the complete list of revoked tokens from the owner of partition 0.
    func learnRevoked(_ tokens: [TokenID]) {
        let now = owner.now
        for token in tokens where token.expiresAt > now { api.tokens.revoke(token) }
        // `forgetExpiredTokens` removes expired rows once this gateway owns partition 0.
        if owner.index == 0 { expiredRows += tokens.filter { $0.expiresAt <= now } }
        api.tokens.knowsRevoked()
    }

    /// Replaces the token key after a new store history, because the store may have lost revocations.
    func historyBegan() { api.tokens.replaceKey(owner.context.tokenKey) }

    func revoke(_ token: TokenID) {
        api.tokens.revoke(token)
    }

    /// Removes some expired tokens from memory, and their rows if this host has partition 0.
    func forgetExpiredTokens() {
        let rows = owner.servingPartition(0)
        if let rows, !expiredRows.isEmpty {
            for token in expiredRows.suffix(Self.expiredTokensAtOnce) { MetaRows.delete(token, on: rows) }
            expiredRows.removeLast(min(expiredRows.count, Self.expiredTokensAtOnce))
        }
        guard api.tokens.hasExpired(now: owner.now) else { return }
        let expired = api.tokens.forgetExpired(now: owner.now, limit: Self.expiredTokensAtOnce)
        guard let rows else { return }
        for token in expired { MetaRows.delete(token, on: rows) }
    }

    /// The maximum number of expired tokens removed in a second; each row is removed by its own batch.
    private static let expiredTokensAtOnce = 256

    /// Checks the head of a request with a large or delayed body, so that a refusal comes before the body is buffered.
    func judge(_ head: HTTPRequestHead) -> HTTPPrecheck {
        if let refusal = owner.context.peers.addresses.bodyRefusal(
            head.countedNetwork, of: head.peerHost, now: owner.loop.now)
        {
            let response = Self.tooFast(head.target, refusal)
            owner.metrics.count(.answered(response.status, isAdmin: false))
            return HTTPPrecheck(.refuse(response))
        }
        let judgement =
            mustWait(head.target)
            ? .refuse(.starting) : api.judge(head.request, bodyByteCount: head.bodyByteCount, now: owner.now)
        if case .refuse(let response) = judgement {
            owner.metrics.count(.answered(response.status, isAdmin: false))
        }
        return HTTPPrecheck(judgement)
    }

    func handle(_ exchange: HTTPExchange) {
        // A refused health check would take the gateway out of service for all clients.
        let isProbe = Self.isProbe(exchange.rawTargetBytes)
        if !isProbe,
            let refusal = owner.context.peers.addresses.request(
                exchange.countedNetwork, byteCount: exchange.body.count, of: exchange.peerHost, now: owner.loop.now)
        {
            return respond(exchange, Self.tooFast(exchange.rawTargetBytes, refusal))
        }
        guard isProbe || owner.context.isReady else { return respond(exchange, .starting) }
        // The caller is identified only under contention, or if the requests exceed one slice.
        let isCalm = waiting.isEmpty && handledCount < AppShares.loneRequestsPerTurn
        guard !isProbe, !isCalm || owner.core.pointee.shares.isContended else {
            return take(exchange)
        }
        let caller = exchange.withRequest { api.caller(of: $0, now: owner.now) }
        let share = owner.core.pointee.shares.place(of: caller.app ?? Self.noApp, isProven: caller.isProven)
        guard waiting[share] == nil, owner.core.pointee.shares.mayTakeRequest(share) else {
            waiting[share, default: []].append(exchange)
            waitingCount += 1
            return
        }
        take(exchange, share)
    }

    private static let noApp = AppKey(0)

    /// Handles a request in this turn; `share` is its caller's index in `AppShares`, if known.
    private func take(_ exchange: HTTPExchange, _ share: Int? = nil) {
        handledCount += 1
        let action = exchange.withRequest { api.handle($0, now: owner.now) }
        // A push is charged by its messages.
        if case .push = action {} else { noteRequest(of: api.provenApp, share, exchange.body.count) }
        perform(exchange, action)
    }

    /// Charges a request that publishes nothing to its caller's share.
    private func noteRequest(of app: AppKey?, _ share: Int?, _ byteCount: Int) {
        guard let share = share ?? app.map({ owner.core.pointee.shares.place(of: $0) }),
            let app = owner.core.pointee.shares.tookRequest(share, byteCount: byteCount, now: owner.loop.now)
        else { return }
        owner.context.activity.note([app], now: owner.loop.now)
    }

    /// Whether a request is refused because the gateway has not read the revoked tokens and the store's content yet.
    private func mustWait(_ target: UnsafeRawBufferPointer) -> Bool {
        !owner.context.isReady && !Self.isProbe(target)
    }

    private static func tooFast(_ target: UnsafeRawBufferPointer, _ refusal: AddressRefusal) -> APIResponse {
        .tooFast(
            isGetui: target.starts(with: "/v2/".utf8), isAboutBytes: refusal.kind == .bytes,
            retryAfterSeconds: refusal.retryAfterSeconds)
    }

    static func isProbe(_ target: UnsafeRawBufferPointer) -> Bool {
        for path in ["/healthz", "/readyz"] where target.starts(with: path.utf8) {
            return target.count == path.utf8.count || target[path.utf8.count] == UInt8(ascii: "?")
        }
        return false
    }

    func push(_ exchange: HTTPExchange, app: App) {
        perform(exchange, exchange.withRequest { api.push($0, app: app, now: owner.now) })
    }

    private func perform(_ exchange: HTTPExchange, _ action: PublicAction) {
        switch action {
        case .respond, .healthz, .readyz: break
        // Before the rows are read, an existing row would appear missing, and a token's key may still be replaced.
        default: guard owner.context.isReady else { return respond(exchange, .starting) }
        }
        switch action {
        case .respond(let response): respond(exchange, response)
        case .push(let pushes, let form): push(exchange, pushes, form)
        case .userStatus(let query): status(exchange, query)
        case .users(let request): users(exchange, request)
        case .testDevices(let request): testDevices(exchange, request)
        case .campaign(let action):
            owner.campaigns.perform(action, byteCount: exchange.body.count) { [self] response in
                respond(exchange, response)
            }
        case .revokeToken(let token, let app, let response):
            void(token, of: app) { [self] refusal in respond(exchange, refusal ?? response) }
        case .receipt(let request): receipt(exchange, request)
        case .token(let response): respond(exchange, response)
        case .check: respond(exchange, APIResponse(status: 200))
        case .unlistedApp(let response):
            owner.appInquiry.confirm { [self] isConfirmed in
                guard isConfirmed else { return respond(exchange, .starting) }
                let action = exchange.withRequest { self.api.handle($0, now: self.owner.now) }
                if case .unlistedApp = action { respond(exchange, response) } else { perform(exchange, action) }
            }
        case .healthz: respond(exchange, HealthPage.health(owner.context))
        case .readyz: respond(exchange, HealthPage.readiness(owner.context))
        }
    }

    /// Revokes a token durably; `then` receives a response if the revocation failed.
    func void(_ token: TokenID, of app: AppKey, then: @escaping (APIResponse?) -> Void) {
        let revocations = owner.context.usage.revocations
        guard revocations.withLock({ $0.take(token, of: app, now: owner.now) }) else { return then(.tooManyRevoked) }
        guard hasRoomForRevoked else {
            revocations.withLock { $0.giveBack(token, of: app) }
            return then(.tooManyRevokedInAll)
        }
        owner.ask(RevokeToken(token: token), of: Bucket(0)) { isRevoked in
            if isRevoked { return then(nil) }
            // The owner may have revoked the token nevertheless; the token then does not count against the app's limit.
            revocations.withLock { $0.giveBack(token, of: app) }
            then(.busy)
        }
    }

    // MARK: Push

    func push(_ exchange: HTTPExchange, _ items: [ParsedPush], _ form: PushForm) {
        guard owner.context.isReady, !owner.context.isStopping else { return respond(exchange, .starting) }
        guard let first = items.first else { return respond(exchange, render([], form)) }
        let permit: PublishPermit
        do throws(QuotaRefusal) {
            permit = try owner.permit(
                of: first.address.app, publishes: items.count, byteCount: exchange.body.count)
        } catch {
            noteRequest(of: first.address.app, nil, exchange.body.count)
            return respond(exchange, .overQuota(error))
        }
        let share = owner.core.pointee.shares.place(of: first.address.app)
        let pending = PendingPush(exchange: exchange, form: form, share: share, count: items.count)
        guard let (slot, stamp) = pushes.insert(pending) else { return respond(exchange, .busy) }
        let route = owner.route(.push, slot, stamp)
        for (index, item) in items.enumerated() {
            if let app = owner.core.pointee.shares.took(share, now: owner.loop.now) {
                owner.context.activity.note([app], now: owner.loop.now)
            }
            item.withCommand(origin: route.origin(UInt64(index))) { owner.publish($0, permit) }
        }
    }

    /// Whether a throttled request has a new slice, so that `goOn` must be called.
    var mayGoOn: Bool { !waiting.isEmpty && waiting.contains { owner.core.pointee.shares.mayTakeRequest($0.key) } }

    /// Resets the turn's count; pauses the listeners while throttled requests use over three quarters of the connections.
    func turnEnded() {
        handledCount = 0
        let isCrowded = waitingCount > owner.publicRoom.limit / 4 * 3
        guard isCrowded != self.isCrowded else { return }
        self.isCrowded = isCrowded
        for listener in owner.listeners.publicHTTP {
            if isCrowded { listener.pause() } else { listener.resume() }
        }
    }

    /// Handles throttled requests whose callers have a new slice.
    func goOn() {
        for share in waiting.keys.sorted() {
            guard var requests = waiting.removeValue(forKey: share) else { continue }
            var count = 0
            while count < requests.count, owner.core.pointee.shares.mayTakeRequest(share) {
                take(requests[count], share)
                count += 1
            }
            requests.removeFirst(count)
            waitingCount -= count
            if !requests.isEmpty { waiting[share] = requests }
        }
    }

    func answered(_ route: Route, item: Int, _ outcome: PublishOutcome) {
        guard let pending = pushes[route.slot, route.stamp], pending.outcomes.indices.contains(item),
            pending.outcomes[item] == nil
        else { return }
        pending.outcomes[item] = outcome
        pending.missing -= 1
        owner.core.pointee.shares.answered(pending.share)
        guard pending.missing == 0 else { return }
        pushes.remove(route.slot, route.stamp)
        respond(pending.exchange, render(pending.outcomes.compactMap { $0 }, pending.form))
    }

    /// Renders the answer to a push.
    ///
    /// An asynchronous batch also waits for its outcomes, but its answer does not contain them.
    private func render(_ outcomes: [PublishOutcome], _ form: PushForm) -> APIResponse {
        PushAnswer.render(outcomes: outcomes, form: form, durability: owner.context.isFsync ? .fsync : .os)
    }

    // MARK: Status

    private func status(_ exchange: HTTPExchange, _ query: StatusQuery) {
        let devices = query.devices
        guard !devices.isEmpty else { return respond(exchange, StatusAnswer.render(query, statuses: [:])) }
        let gathering = Gathering<(cid: DeviceID, answer: DeviceAnswer)>(count: devices.count) { [self] answers in
            var statuses: [DeviceID: DeviceStatus] = [:]
            for (cid, answer) in answers {
                // One unreadable device fails the request, because the answer would show it as a missing device.
                if case .unreadable = answer { respond(exchange, .statusUnreadable); return }
                statuses[cid] = answer.status
            }
            respond(exchange, StatusAnswer.render(query, statuses: statuses))
        }
        for (place, device) in devices.enumerated() {
            owner.ask(DeviceStatusRequest(device: device), of: device.bucket) {
                gathering.take((device.cid, $0), at: place)
            }
        }
    }

    func respond(_ exchange: HTTPExchange, _ response: APIResponse) {
        owner.metrics.count(.answered(response.status, isAdmin: false))
        owner.metrics.observe(.request, microseconds: Int64(owner.loop.now &- exchange.startedAt) * 1_000)
        exchange.respond(response)
    }
}
