internal import Quotas
internal import Cryptography
internal import Delivery
internal import Directory
internal import JSON
internal import Wire

// Broadcasts to all devices of an app, by tag conditions or by one tag; and pushes to named devices under a tag condition.
extension PublicAPI {
    // MARK: Broadcasts

    enum BroadcastAudience {
        case all, conditions, oneTag

        var endpoint: StaticString {
            switch self {
            case .all: "push/all"
            case .conditions: "push/tag"
            case .oneTag: "push/fast_custom_tag"
            }
        }
        var fields: FieldTable {
            switch self {
            case .all: .pushToAll
            case .conditions: .pushToTags
            case .oneTag: .pushToTag
            }
        }
        var rate: RateKind {
            switch self {
            case .all: .broadcast
            case .conditions: .tagBroadcast
            case .oneTag: .fastTagBroadcast
            }
        }
    }

    func broadcast(
        _ request: APIRequest, to audience: BroadcastAudience, app: App, now: GatewayTime
    ) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, audience.fields)
        let requestID = try messages.requestID(body?["request_id"])
        let group = try MessageParser.groupName(body?["group_name"])
        let expression = try self.expression(body?["audience"], audience, app: app)
        let settings = try PushSettings(body?["settings"], app: app, scope: .list, now: now, callerOffset: callerOffset)
        let home = app.key.home
        let task = TaskID(kind: .app, now: now, home: home, random: random)
        let content = try messages.content(body, app: app, task: task, settings: settings, isBroadcast: true)

        let key = broadcastRequestKey(app: app.key, endpoint: audience.endpoint, requestID: requestID)
        let start = max(now, settings.scheduleAt)
        var record = TaskRecord(
            id: task, app: app.key, state: settings.scheduleAt > 0 ? .scheduled : .open, createdAt: now,
            validUntil: start + max(0, settings.timeToLive), scheduleAt: settings.scheduleAt, group: group,
            content: content)
        record.broadcast = BroadcastPlan(audience: expression, speed: settings.speed)
        return create(record, settings, audience.rate, key: key, request, app: app)
    }

    private func expression(
        _ value: JSONValue?, _ kind: BroadcastAudience, app: App
    ) throws(GetuiFault) -> TagExpression {
        guard let value else { throw .null("audience") }
        switch kind {
        case .all:
            guard value.kind == .string else { throw .type("audience") }
            guard value.equals("all") else { throw .invalid("audience", "it is \"all\" here") }
            return TagExpression()
        case .conditions:
            let object = try audienceObject(value)
            var conditions = TagConditions(app: app, limits: userLimits)
            return try conditions.parse(object["tag"])
        case .oneTag:
            let object = try audienceObject(value)
            guard let text = object["fast_custom_tag"] else { throw .null("fast_custom_tag") }
            var expression = TagExpression()
            _ = expression.add(.all, [try tagName(text, "fast_custom_tag", app: app)])
            return expression
        }
    }

    private func audienceObject(_ value: JSONValue) throws(GetuiFault) -> JSONValue {
        guard value.hasContent else { throw .empty("audience") }
        guard value.kind == .object else { throw .type("audience") }
        return value
    }

    private func tagName(_ value: JSONValue, _ name: String, app: App) throws(GetuiFault) -> TagName {
        guard let text = value.lenientText else { throw .type(name) }
        guard !text.isEmpty else { throw .empty(name) }
        guard text.unicodeScalars.count <= userLimits.tagCharacters else {
            throw GetuiFault(
                code: .tagTooLong, message: "\(name) is too long, at most \(userLimits.tagCharacters) characters")
        }
        guard NameRules.isTag(text) else { throw .invalid(name, "a tag has no spaces") }
        return TagName(app: app.key, text: text)
    }

    // MARK: cid_by_tag

    func pushByTag(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, .pushByTag)
        let requestID = try messages.requestID(body?["request_id"])
        let (candidates, refused) = try candidates(body?["audience"], app: app)
        let settings = try PushSettings(
            body?["settings"], app: app, scope: .single, now: now, callerOffset: callerOffset)
        let task = TaskID(kind: .list, now: now, random: random)
        let content = try messages.content(body, app: app, task: task, settings: settings, isBroadcast: true)
        let key = requestKey(app: app.key, endpoint: "push/single/cid_by_tag", requestID: requestID)
        return .campaign(
            .byTag(
                TagPush(
                    app: app, task: task, candidates: candidates, content: content,
                    key: CallKey(high: key.0, low: key.1), digest: SHA256.digest(request.body).words.0,
                    refused: refused, notes: messages.notes)))
    }

    func pushListByTag(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, .listByTag)
        var call = try listCall(body, app: app, digest: request.body)
        let (candidates, refused) = try candidates(body?["audience"], app: app)
        (call.audience, call.refused) = (.conditions(candidates), refused)
        return .campaign(.list(call))
    }

    /// Parses `cid_by_tag`; an invalid device is refused without affecting the others.
    private func candidates(
        _ value: JSONValue?, app: App
    ) throws(GetuiFault) -> (candidates: [TagCandidate], refused: [RefusedTarget]) {
        guard let value else { throw .null("audience") }
        let object = try audienceObject(value)
        guard let list = object["cid_by_tag"] else { throw .null("cid_by_tag") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("cid_by_tag") }
        guard list.hasContent else { throw .empty("cid_by_tag") }
        var candidates: [TagCandidate] = []
        var refused: [RefusedTarget] = []
        var seen = Set<DeviceID>()
        var (count, valueCount) = (0, 0)
        for (index, element) in list.elements.enumerated() {
            count += 1
            guard count <= app.bounds.listTargets else {
                throw .size("cid_by_tag", "at most \(app.bounds.listTargets)")
            }
            for _ in element["tag"]?.elements ?? element.elements {
                valueCount += 1
                guard valueCount <= Limits.tagValueCount else {
                    throw .size("tag", "at most \(Limits.tagValueCount) in one request")
                }
            }
            do throws(GetuiFault) {
                let candidate = try candidate(element, app: app)
                if seen.insert(candidate.target.cid).inserted { candidates.append(candidate) }
            } catch {
                refused.append(RefusedTarget(index, element["cid"], .cid, error))
            }
        }
        guard !candidates.isEmpty else { throw RefusedTarget.all(refused) }
        return (candidates, refused)
    }

    private func candidate(_ element: JSONValue, app: App) throws(GetuiFault) -> TagCandidate {
        guard element.kind == .object else { throw .type("cid_by_tag") }
        try messages.check(element, .conditionedCID, of: parser)
        guard let cid = element["cid"] else { throw .null("cid") }
        guard let bytes = cid.stringBytes else { throw .type("cid") }
        guard let device = DeviceID(hex: bytes) else { throw .targetUser }
        guard let tags = element["tag"] else { throw .null("tag") }
        guard tags.kind == .array || tags.isEmptyContainer else { throw .type("tag") }
        guard tags.hasContent else { throw .empty("tag") }
        var names: [TagName] = []
        for tag in tags.elements { names.append(try tagName(tag, "tag", app: app)) }
        let combination: TagExpression.Combination
        switch try PushSettings.integer(element, "op_type", 0...2) {
        case 1: combination = .all
        case 2: combination = .none
        default: combination = .any
        }
        var expression = TagExpression()
        guard expression.add(combination, names) else {
            throw GetuiFault(
                code: .tooManyTags, message: "too many tags, at most \(TagExpression.tagLimit) for one device")
        }
        return TagCandidate(target: app.address(device), expression: expression)
    }
}
