// The push listener's API, compatible with version 2 of Getui's HTTP API.

internal import Cryptography
package import Quotas
package import Delivery
internal import JSON
package import Wire

/// The gateway's action for a request on the push listener.
package enum PublicAction {
    case respond(APIResponse)
    /// Publishes each message on its device's loop; answered with `PushAnswer.render` after the last outcome.
    case push([ParsedPush], PushForm)
    /// Asks each device's loop; answered with `StatusAnswer.render`.
    case userStatus(StatusQuery)
    /// Checks the quota, if the request is counted, then runs the operation; answered with `UserAnswer.render`.
    case users(UserRequest)
    /// Asks the owner of the test devices; answered with `TestDeviceAnswer.render`.
    case testDevices(TestDeviceRequest)
    case campaign(CampaignAction)
    /// Revokes the token durably and on all loops, then answers.
    case revokeToken(TokenID, of: AppKey, APIResponse)
    /// Asks the device's loop to record the events; answered with `ReceiptRequest.answer`.
    case receipt(ReceiptRequest)
    /// Answers with a new token once its signing key is durable.
    case token(APIResponse)
    case check
    /// Looks the app up and handles the request again; the response is the answer if the app does not exist.
    case unlistedApp(APIResponse)
    case healthz
    case readyz
}

/// Counts the apps' use of rate limits, over all loops.
package protocol RateLimiting: AnyObject {
    func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateLimiter.Verdict
    /// Returns whether `take` would refuse; counts nothing.
    func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool
    /// Counts a receipt from a network address; returns `false` if the address has reached `limit` (0 for none) in this minute.
    func takeReceipt(from network: UInt64, app: AppKey, limit: Int, now: GatewayTime) -> Bool
}

/// Parses requests into actions; confined to one event loop.
package final class PublicAPI {
    /// Replaced at each reload.
    package var registry: AppRegistry
    /// Whether an unknown app may have just been created on another gateway.
    package var mayMissApps = false
    /// Replaced at each reload.
    package var userLimits = UserLimits()
    /// Replaced when a token is revoked.
    package var tokens: TokenAuthority { didSet { cache.removeAll() } }
    let random: RandomWords
    let parser = JSONParser()
    var messages: MessageParser
    /// The machine's clock minus gateway time, in milliseconds.
    ///
    /// Signatures are checked by the machine's clock. A business server signs by its own clock, because no answer contains
    /// gateway time.
    package var clockOffset: Int64 = 0 { didSet { messages.callerOffset = callerOffset } }
    /// Whether the machine's clock is too far ahead to be trusted; signatures by either clock are then accepted.
    package var isClockDoubted = false { didSet { messages.callerOffset = callerOffset } }
    /// The estimated offset of callers' clocks from gateway time, in milliseconds; it is taken from the machine's clock.
    ///
    /// It is 0 for a small offset and while the machine's clock is not trusted.
    var callerOffset: Int64 { isClockDoubted || abs(clockOffset) <= Limits.clockNoise ? 0 : clockOffset }
    /// The use of rate limits; `nil` to count nothing.
    package var rates: (any RateLimiting)?
    private var cache = TokenCache()
    private var lastToken = LastToken()
    /// The app whose token authenticated the last request; `nil` if there was none.
    package private(set) var provenApp: AppKey?

    package init(registry: AppRegistry, tokens: TokenAuthority, random: RandomWords = RandomWords()) {
        (self.registry, self.tokens, self.random) = (registry, tokens, random)
        messages = MessageParser()
    }

    /// Returns an action for any input; never traps or throws.
    package func handle(_ request: APIRequest, now: GatewayTime) -> PublicAction {
        provenApp = nil
        do throws(GetuiFault) {
            return try route(request, now: now)
        } catch {
            return mayMissApps && error.isOfUnlistedApp ? .unlistedApp(error.response) : .respond(error.response)
        }
    }

    private func route(_ request: APIRequest, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        messages.begin()
        let path = RequestPath(request.target)
        switch PublicEndpoint.table.match(path, request.method) {
        case .endpoint(let endpoint): return try perform(endpoint, request, path, now: now)
        case .otherMethod(let allow): throw .methodNotAllowed(allow)
        case .none: throw .notFound
        }
    }

    private func perform(
        _ endpoint: PublicEndpoint, _ request: APIRequest, _ path: RequestPath, now: GatewayTime
    ) throws(GetuiFault) -> PublicAction {
        func app() throws(GetuiFault) -> App {
            let app = try authenticated(request, path, now: now)
            try checkQuery(request, of: endpoint)
            return app
        }
        switch endpoint {
        case .pushSingle: return try pushSingle(request, app: app(), now: now)
        case .pushBatch: return try pushBatch(request, app: app(), now: now)
        case .pushAlias: return try pushAlias(request, app: app(), now: now)
        case .pushAliasBatch: return try pushAliasBatch(request, app: app(), now: now)
        case .createList: return try createList(request, app: app(), now: now)
        case .pushList: return try pushList(request, app: app(), toAliases: false, now: now)
        case .pushListToAliases: return try pushList(request, app: app(), toAliases: true, now: now)

        case .pushByTag: return try pushByTag(request, app: app(), now: now)
        case .pushListByTag: return try pushListByTag(request, app: app(), now: now)
        case .pushToAll: return try broadcast(request, to: .all, app: app(), now: now)
        case .pushToTags: return try broadcast(request, to: .conditions, app: app(), now: now)
        case .pushToTag: return try broadcast(request, to: .oneTag, app: app(), now: now)

        case .stopTask, .schedule, .cancelSchedule, .messageDetail:
            return .campaign(try taskAction(endpoint, path, app: app()))
        case .taskReport, .detailedTaskReport, .groupReport, .pushDayReport, .quotaReport, .userDayReport,
            .onlineReport:
            return .campaign(try report(endpoint, request, path, app: app(), now: now))

        case .userStatus: return .userStatus(try statusQuery(path[4], app: app()))
        case .bindAliases, .unbindAliases, .unbindAlias, .aliasOfDevice, .devicesOfAlias, .replaceTags, .tagsOfDevice,
            .addTag, .removeTag, .blacklist, .unblacklist, .deviceStatus, .userDetail, .userBaseInfo, .userAdvancedInfo,
            .setBadge, .countUsers:
            return .users(try userRequest(endpoint, request, path, app: app()))
        case .addTestDevices, .updateTestDevice, .deleteTestDevices, .listTestDevices:
            return .testDevices(try testDevices(endpoint, request, app: app()))
        case .bindDeviceTokens: return .respond(try bindDeviceTokens(request, path[4], app: app()))

        case .authenticate: return .token(try authenticate(request, appID: path.text(1), now: now))
        case .revokeToken: return try revoke(path[3], appID: path.text(1), now: now)
        case .receipt: return .receipt(try receipt(request, appID: path.text(1), now: now))
        // Getui's Java SDK reports its own health here, which is ignored.
        case .uploadLog: return .respond(.getui(.ok))
        case .check: return .check
        case .healthz: return .healthz
        case .readyz: return .readyz
        }
    }

    /// Refuses unknown parameters; ignoring one could answer a different question or reach other devices.
    private func checkQuery(_ request: APIRequest, of endpoint: PublicEndpoint) throws(GetuiFault) {
        if let name = unknownQueryName(in: request.target, known: endpoint.queryNames) {
            throw .invalid(name, "the call has no such parameter")
        }
    }

    /// Returns the app of the path if the token belongs to it, and counts a call.
    func authenticated(
        _ request: APIRequest, _ path: RequestPath, now: GatewayTime
    ) throws(GetuiFault) -> App {
        let app = try identified(request, path, now: now)
        try take(.call, app, now: now)
        return app
    }

    /// Returns the app of the path if the token belongs to it, without counting a call.
    func identified(
        _ request: APIRequest, _ path: RequestPath, now: GatewayTime
    ) throws(GetuiFault) -> App {
        guard let text = request.token, let token = lastToken.parse(text) else { throw .token }
        let appID = path.text(1)
        guard let app = registry[appID] else { throw registry.known(appID) == nil ? .token.ofUnlistedApp : .token }
        guard token.app == app.key else { throw .token }
        if !cache.contains(token) {
            guard tokens.isAuthentic(token) else { throw .token }
            cache.insert(token)
        }
        guard tokens.isInForce(token, now: now) else { throw .token }
        provenApp = app.key
        return app
    }

    /// Returns the app in the request's path, and whether the request's token is valid, without handling the request.
    package func caller(of request: APIRequest, now: GatewayTime) -> (app: AppKey?, isProven: Bool) {
        let path = RequestPath(request.target)
        guard path.count > 1 else { return (nil, false) }
        do throws(GetuiFault) {
            return (try identified(request, path, now: now).key, true)
        } catch {
            return (registry.known(path.text(1))?.key, false)
        }
    }

    /// Whether the request has a token for the app that was issued with this gateway's key.
    func isOwnToken(_ request: APIRequest, appID: String) -> Bool {
        guard let token = request.token.flatMap({ lastToken.parse($0) }) else { return false }
        return token.app == AppKey(appID: appID) && tokens.isAuthentic(token)
    }

    /// Returns the app of a call that needs no token.
    func served(_ appID: String) throws(GetuiFault) -> App {
        if let app = registry[appID] { return app }
        if registry.known(appID) != nil { throw .invalid("appId", "the app is disabled") }
        guard registry.isComplete else { throw .starting }
        throw .invalid("appId").ofUnlistedApp
    }

    /// Counts a new call against its app's limits on broadcasts and lists; returns the refusal if one is used up.
    ///
    /// A call with a known request id must not be counted or refused, so this is not part of `handle`.
    package func refusal(of action: CampaignAction, now: GatewayTime) -> APIResponse? {
        if case .create(let task) = action, let fault = task.lateness { return fault.response }
        guard let (key, rate) = action.counted, let app = registry[key] else { return nil }
        do throws(GetuiFault) {
            try take(rate, app, now: now)
            return nil
        } catch {
            return error.response
        }
    }

    /// Counts one use of a rate limit; throws Getui's fault if the limit is reached.
    func take(_ kind: RateKind, _ app: App, now: GatewayTime) throws(GetuiFault) {
        guard let rates, app.rates.perMinute(kind) > 0 || app.rates.perDay(kind) > 0 else { return }
        let verdict = rates.take(kind, app: app.key, limits: app.rates, now: now)
        guard verdict != .granted else { return }
        switch kind {
        case .authentication:
            throw GetuiFault(code: .authenticationRate, message: "authentications of this minute are used up")
        case .call: throw GetuiFault(code: .callRate, message: "calls of this minute are used up")
        case .receipt: throw .receiptsSpent
        // The operator's limits on these calls apply later, after the request was validated (`UserAnswer.refused`).
        case .tagChange, .tagQuery: return
        case .broadcast, .tagBroadcast:
            throw verdict == .minuteExceeded
                ? GetuiFault(code: .broadcastRate, message: "broadcasts of this minute are used up")
                : GetuiFault(
                    code: kind == .broadcast ? .broadcastDayQuota : .tagBroadcastDayQuota,
                    message: "broadcasts of this day are used up")
        case .fastTagBroadcast:
            throw verdict == .minuteExceeded
                ? GetuiFault(code: .fastTagRate, message: "fast_custom_tag pushes of this minute are used up")
                : GetuiFault(code: .fastTagDayQuota, message: "fast_custom_tag pushes of this day are used up")
        case .list:
            throw verdict == .dayExceeded
                ? GetuiFault(code: .listDayQuota, message: "list calls of this day are used up")
                : GetuiFault(code: .listRate, message: "list calls of this minute are used up")
        }
    }

    /// Returns the body as JSON, checked against its table; an absent body, `null` and `[]` all return `nil`, for "no
    /// parameters".
    func parameters(_ request: APIRequest, _ table: FieldTable) throws(GetuiFault) -> JSONValue? {
        let body = try document(request)
        try messages.check(body, table, of: parser)
        return body
    }

    private func document(_ request: APIRequest) throws(GetuiFault) -> JSONValue? {
        guard request.body.count <= Limits.requestBodyByteCount else {
            throw .size("body", "at most \(Limits.requestBodyByteCount) bytes")
        }
        guard request.body.count > 0 else { return nil }
        let root: JSONValue
        do throws(JSONError) { root = try parser.parse(request.body) } catch { throw .notJSON(error) }
        guard parser.wordCount <= Limits.requestWordCount else {
            throw .size("body", "at most \(Limits.requestWordCount) keys and values")
        }
        guard root.hasContent else { return nil }
        guard root.kind == .object else { throw .type("body") }
        return root
    }
}

extension PublicAPI {
    /// Answers `POST /auth`; the header `token` is ignored, because Getui's PHP SDK sends an expired one.
    private func authenticate(_ request: APIRequest, appID: String, now: GatewayTime) throws(GetuiFault) -> APIResponse
    {
        let body = try parameters(request, .authentication)
        let app = try served(appID)
        guard let appKey = body?["appkey"] else { throw .null("appkey") }
        guard let appKeyBytes = appKey.stringBytes else { throw .type("appkey") }
        guard let timestamp = body?["timestamp"] else { throw .null("timestamp") }
        guard let sign = body?["sign"] else { throw .null("sign") }
        guard let signBytes = sign.stringBytes else { throw .type("sign") }
        guard appKeyBytes.elementsEqual(app.appKey.utf8) else { throw .invalid("appkey") }

        // The signature covers the timestamp as sent, either number or string.
        let timestampText: String
        switch timestamp.kind {
        case .string: timestampText = timestamp.string ?? ""
        case .integer: timestampText = timestamp.integer.map(String.init) ?? ""
        default: throw .type("timestamp")
        }
        guard let time = Int64(timestampText), (0...(1 << 52)).contains(time) else { throw .invalid("timestamp") }
        let distance = abs(time - now - clockOffset)
        guard distance <= app.timestampTolerance || isClockDoubted && abs(time - now) <= app.timestampTolerance else {
            throw .invalid("timestamp", "it is \(distance / 1_000) s off the clock of the gateway's machine")
        }
        let given = signBytes.map { (65...90).contains($0) ? $0 + 32 : $0 }
        // Every secret is tried, so that the time does not reveal which one is in use.
        var isSigned = false
        for secret in app.masterSecrets {
            let expected = SHA256.digest(Array((app.appKey + timestampText + secret).utf8)).hex
            if constantTimeEquals(Array(expected.utf8), given) { isSigned = true }
        }
        guard isSigned else { throw .invalid("sign") }
        // Counted after the proof. An app's id and key are not secret, and unauthenticated callers must not use up its limit.
        try take(.authentication, app, now: now)

        let expiresAt = now + Limits.tokenLifetime
        let data: JSONObject = [
            "token": tokens.issue(for: app.key, expiresAt: expiresAt, random: random.next()),
            // By the machine's clock, which callers' clocks resemble, this time is never after the token's expiry.
            "expire_time": String(expiresAt + min(0, clockOffset)),
        ]
        return .success(data, longwire: messages.notes.members)
    }

    /// Answers `DELETE /auth/{token}`; possession of the token is sufficient.
    private func revoke(
        _ text: ArraySlice<UInt8>, appID: String, now: GatewayTime
    ) throws(GetuiFault) -> PublicAction {
        guard let token = TokenAuthority.Parsed(text), token.app == AppKey(appID: appID), tokens.isAuthentic(token)
        else { throw .invalid("token") }
        guard let app = registry[appID] else {
            throw registry.known(appID) == nil ? .invalid("token").ofUnlistedApp : .invalid("token")
        }
        let answer = APIResponse.getui(.ok, "")
        guard tokens.isInForce(token, now: now) else { return .respond(answer) }
        // Each revocation stores a row until the token's expiry, so revocations are rate limited, too.
        try take(.authentication, app, now: now)
        return .revokeToken(token.id, of: app.key, answer)
    }
}
