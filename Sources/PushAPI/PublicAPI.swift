// The push listener's API: Getui's REST V2, first part.

internal import Cryptography
public import Campaigns
public import Delivery
public import Wire

/// What the gateway is to do about one request on the push listener.
public enum PublicAction {
    case respond(APIResponse)
    /// Hand each message to its device's loop; when all are answered, `PushAnswer.render`.
    case push([ParsedPush], PushForm)
    /// Ask each device's loop; then `StatusAnswer.render`.
    case userStatus(StatusQuery)
    /// Run the operation, after the quota if it is counted; then `UserAnswer.render`.
    case users(UserRequest)
    /// Tasks of several messages, and reports.
    case campaign(CampaignAction)
    /// Remember durably that this token is void, tell all loops, then answer.
    case revokeToken(TokenID, APIResponse)
    case healthz
    case readyz
}

/// Counts what apps use, over all loops.
public protocol RateKeeper: AnyObject {
    func take(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> RateBook.Verdict
}

/// Turns requests into actions.
///
/// One a loop, confined to it.
public final class PublicAPI {
    /// Replaced at a reload.
    public var registry: AppRegistry
    /// Replaced at a reload.
    public var userLimits = UserLimits()
    /// Replaced when a token is revoked.
    public var tokens: TokenAuthority { didSet { cache.removeAll() } }
    let random: RandomWords
    let parser = JSONParser()
    var messages: MessageParser
    /// What apps have used of their rates; `nil`: nothing is counted.
    public var rates: (any RateKeeper)?
    private var cache = TokenCache()
    private var lastToken = LastToken()

    public init(registry: AppRegistry, tokens: TokenAuthority, random: RandomWords = RandomWords()) {
        (self.registry, self.tokens, self.random) = (registry, tokens, random)
        messages = MessageParser(random: random)
    }

    /// Never traps and never throws: whatever the bytes are, there is an answer.
    public func handle(_ request: APIRequest, now: GatewayTime) -> PublicAction {
        do throws(GetuiFault) {
            return try route(request, now: now)
        } catch {
            return .respond(error.response)
        }
    }

    private func route(_ request: APIRequest, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let path = RequestPath(request.target)
        if path.count == 1, !path.isTooDeep {
            if path.matches(0, "healthz") { return try allow(request, .get, .head, "GET, HEAD") { .healthz } }
            if path.matches(0, "readyz") { return try allow(request, .get, .head, "GET, HEAD") { .readyz } }
        }
        guard path.count >= 2, !path.isTooDeep, path.matches(0, "v2") else { throw .notFound }
        if path.count == 2, path.matches(1, "check") {
            return try allow(request, .get, .head, "GET, HEAD") { .respond(APIResponse(status: 200)) }
        }
        guard path.count >= 3 else { throw .notFound }
        if path.matches(2, "push"), path.count >= 5, path.matches(3, "single") {
            if path.count == 5, path.matches(4, "cid") {
                try require(.post, "POST", request)
                return try pushSingle(request, app: try authenticated(request, path, now: now), now: now)
            }
            if path.count == 6, path.matches(4, "batch"), path.matches(5, "cid") {
                try require(.post, "POST", request)
                return try pushBatch(request, app: try authenticated(request, path, now: now), now: now)
            }
        }
        if let action = try listRoute(request, path, now: now) { return action }
        if let action = try broadcastRoute(request, path, now: now) { return action }
        if let action = try taskRoute(request, path, now: now) { return action }
        if let action = try reportRoute(request, path, now: now) { return action }
        if path.matches(2, "auth") {
            if path.count == 3 {
                try require(.post, "POST", request)
                return .respond(try authenticate(request, appID: path.text(1), now: now))
            }
            if path.count == 4 {
                try require(.delete, "DELETE", request)
                return try revoke(path[3], appID: path.text(1), now: now)
            }
        }
        if path.count == 5, path.matches(2, "user"), path.matches(3, "status") {
            try require(.get, "GET", request)
            return .userStatus(try statusQuery(path[4], app: try authenticated(request, path, now: now)))
        }
        if path.count >= 4, path.matches(2, "user"), let action = try users(request, path, now: now) { return action }
        // Getui's Java SDK reports its own health here; there is nothing to do with it.
        if path.count == 4, path.matches(2, "log"), path.matches(3, "upload") {
            try require(.post, "POST", request)
            return .respond(.getui(.ok))
        }
        throw .notFound
    }

    private func allow(
        _ request: APIRequest, _ first: APIRequest.Method, _ second: APIRequest.Method, _ names: String,
        _ action: () -> PublicAction
    ) throws(GetuiFault) -> PublicAction {
        guard request.method == first || request.method == second else { throw .methodNotAllowed(names) }
        return action()
    }

    func require(_ method: APIRequest.Method, _ name: String, _ request: APIRequest) throws(GetuiFault) {
        guard request.method == method else { throw .methodNotAllowed(name) }
    }

    /// The app of the path, when the token belongs to it.
    func authenticated(
        _ request: APIRequest, _ path: RequestPath, now: GatewayTime
    ) throws(GetuiFault) -> App {
        guard let text = request.token, let token = lastToken.parse(text),
            let app = registry[path.text(1)], token.app == app.key
        else { throw .token }
        if !cache.contains(token) {
            guard tokens.isAuthentic(token) else { throw .token }
            cache.insert(token)
        }
        guard tokens.isInForce(token, now: now) else { throw .token }
        try take(.call, app, now: now)
        return app
    }

    /// Counts one use of a rate, or refuses it with Getui's code.
    func take(_ kind: RateKind, _ app: App, now: GatewayTime) throws(GetuiFault) {
        guard let rates, app.rates.perMinute(kind) > 0 || app.rates.perDay(kind) > 0 else { return }
        let verdict = rates.take(kind, app: app.key, limits: app.rates, now: now)
        guard verdict != .granted else { return }
        switch kind {
        case .authentication:
            throw GetuiFault(code: .authenticationRate, message: "authentications of this minute are used up")
        case .call: throw GetuiFault(code: .callRate, message: "calls of this minute are used up")
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

    /// The body as JSON; `nil` for none, for `null` and for `[]`, which all mean "no parameters".
    func parameters(_ request: APIRequest) throws(GetuiFault) -> JSONValue? {
        guard request.body.count <= Limits.requestBodyByteCount else {
            throw .size("body", "at most \(Limits.requestBodyByteCount) bytes")
        }
        guard request.body.count > 0 else { return nil }
        let root: JSONValue
        do throws(JSONError) { root = try parser.parse(request.body) } catch { throw .notJSON(error) }
        guard root.hasContent else { return nil }
        guard root.kind == .object else { throw .type("body") }
        return root
    }
}

// Authentication.
extension PublicAPI {
    /// `POST /auth`.
    ///
    /// The header `token` is not looked at: Getui's PHP SDK sends its stale one.
    private func authenticate(_ request: APIRequest, appID: String, now: GatewayTime) throws(GetuiFault) -> APIResponse
    {
        let body = try parameters(request)
        guard let app = registry[appID] else { throw .invalid("appId") }
        guard let appKey = body?["appkey"] else { throw .null("appkey") }
        guard let appKeyBytes = appKey.stringBytes else { throw .type("appkey") }
        guard let timestamp = body?["timestamp"] else { throw .null("timestamp") }
        guard let sign = body?["sign"] else { throw .null("sign") }
        guard let signBytes = sign.stringBytes else { throw .type("sign") }
        guard appKeyBytes.elementsEqual(app.appKey.utf8) else { throw .invalid("appkey") }
        try take(.authentication, app, now: now)

        // The sign covers the timestamp as it was written, be it a number or a string.
        let timestampText: String
        switch timestamp.kind {
        case .string: timestampText = timestamp.string ?? ""
        case .integer: timestampText = timestamp.integer.map(String.init) ?? ""
        default: throw .type("timestamp")
        }
        guard let time = Int64(timestampText), (0...(1 << 52)).contains(time) else { throw .invalid("timestamp") }
        guard abs(time - now) <= app.timestampTolerance else {
            throw .invalid("timestamp", "it is \(abs(time - now) / 1_000) s off the gateway's clock")
        }
        let given = signBytes.map { (65...90).contains($0) ? $0 + 32 : $0 }
        // Every secret is tried, so that the time taken tells nothing about which one is in use.
        var isSigned = false
        for secret in app.masterSecrets {
            let expected = SHA256.digest(Array((app.appKey + timestampText + secret).utf8)).hex
            if constantTimeEquals(Array(expected.utf8), given) { isSigned = true }
        }
        guard isSigned else { throw .invalid("sign") }

        let expiresAt = now + Limits.tokenLifetime
        var writer = JSONWriter(capacity: 192)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        writer.key("token")
        writer.string(tokens.issue(for: app.key, expiresAt: expiresAt, random: random.next()))
        writer.key("expire_time")
        writer.string(String(expiresAt))
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// Answers `DELETE /auth/{token}`: holding the token is permission enough.
    private func revoke(
        _ text: ArraySlice<UInt8>, appID: String, now: GatewayTime
    ) throws(GetuiFault) -> PublicAction {
        guard let token = TokenAuthority.Parsed(text), let app = registry[appID], token.app == app.key,
            tokens.isAuthentic(token)
        else { throw .invalid("token") }
        let answer = APIResponse.getui(.ok, "")
        return tokens.isInForce(token, now: now) ? .revokeToken(token.id, answer) : .respond(answer)
    }
}
