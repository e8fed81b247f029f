internal import Quotas
internal import Cryptography
internal import Delivery
internal import Directory
internal import JSON
internal import TextForms
internal import Wire

// Lists, whose message is stored once and then sent to many devices; and pushes to aliases, which may have several devices.
extension PublicAPI {
    // MARK: list/message

    /// Parses `list/message`.
    ///
    /// The audience is ignored; the PHP SDK sends `"all"`.
    func createList(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, .newList)
        var key: (UInt64, UInt64) = (0, 0)
        if let id = body?["request_id"]?.given {
            key = requestKey(app: app.key, endpoint: "push/list/message", requestID: try messages.requestID(id))
        }
        let group = try MessageParser.groupName(body?["group_name"])
        let settings = try PushSettings(body?["settings"], app: app, scope: .list, now: now, callerOffset: callerOffset)
        let home = key == (0, 0) ? Bucket(digest: random.next()) : Bucket(digest: key.0)
        let task = TaskID(kind: .list, now: now, home: home, random: random)
        let content = try messages.content(body, app: app, task: task, settings: settings)

        let validity = ScheduleRules.validity(
            timeToLive: settings.timeToLive, defaultTimeToLive: app.defaultTimeToLive)
        let start = max(now, settings.scheduleAt)
        let record = TaskRecord(
            id: task, app: app.key, state: settings.scheduleAt > 0 ? .scheduled : .open, createdAt: now,
            validUntil: start + validity, scheduleAt: settings.scheduleAt, group: group, content: content)
        return create(record, settings, .list, key: key, request, app: app)
    }

    func create(
        _ record: TaskRecord, _ settings: PushSettings, _ rate: RateKind, key: (UInt64, UInt64), _ request: APIRequest,
        app: App
    ) -> PublicAction {
        let content = record.content
        let note = content.fallbackReason()
        return .campaign(
            .create(
                NewTask(
                    record: record, rate: rate, lateness: settings.lateness,
                    requestKey: CallKey(high: key.0, low: key.1), requestDigest: SHA256.digest(request.body).words.0,
                    group: record.group.isEmpty ? nil : groupPlace(record.group, app: app), fallback: note,
                    notes: messages.notes)))
    }

    func groupPlace(_ group: String, app: App) -> GroupPlace {
        let words = SHA256.digest(Array((app.appID + "\0" + group).utf8)).words
        return GroupPlace(bucket: Bucket(digest: words.0), owner: (words.0, words.1))
    }

    // MARK: list/cid, list/alias

    func pushList(
        _ request: APIRequest, app: App, toAliases: Bool, now: GatewayTime
    ) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, toAliases ? .listToAliases : .listToDevices)
        var call = try listCall(body, app: app, digest: request.body)
        let task = call.task
        let list = try audience(body?["audience"], toAliases ? "alias" : "cid", app: app)
        if toAliases {
            var aliases: [AliasName] = []
            var seen = Set<AliasName>()
            let type = try aliasType(body?["audience"]?["alias_type"])
            for (index, element) in list.elements.enumerated() {
                do throws(GetuiFault) {
                    let alias = AliasName(app: app.key, text: try alias(element), type: type)
                    if seen.insert(alias).inserted { aliases.append(alias) }
                } catch {
                    call.refused.append(RefusedTarget(index, element, .alias, error))
                }
            }
            guard !aliases.isEmpty else { throw RefusedTarget.all(call.refused) }
            call.audience = .aliases(aliases)
        } else {
            var targets: [ListTarget] = []
            targets.reserveCapacity(256)
            var seen = Set<DeviceID>(minimumCapacity: 256)
            for (index, element) in list.elements.enumerated() {
                guard let text = element.stringBytes else {
                    let fault = element.kind == .unreadable ? GetuiFault.unreadable("cid") : .type("cid")
                    call.refused.append(RefusedTarget(index, element, .cid, fault))
                    continue
                }
                guard let cid = DeviceID(hex: text) else {
                    call.unknown.append(String(decoding: text.prefix(64), as: UTF8.self))
                    continue
                }
                // Repeated cids are dropped; Getui's own demo names a cid twice.
                if seen.insert(cid).inserted { targets.append(app.target(cid, of: task)) }
            }
            guard !targets.isEmpty else {
                throw call.unknown.isEmpty ? RefusedTarget.all(call.refused) : .targetUser
            }
            call.audience = .devices(targets)
        }
        return .campaign(.list(call))
    }

    func listCall(_ body: JSONValue?, app: App, digest: UnsafeRawBufferPointer) throws(GetuiFault) -> ListCall {
        guard let text = body?["taskid"] else { throw .null("taskid") }
        guard let bytes = text.stringBytes else { throw .type("taskid") }
        guard bytes.count > 0 else { throw .empty("taskid") }
        guard let task = TaskID(text: String(decoding: bytes, as: UTF8.self)), task.kind == .list else {
            throw .invalid("taskid")
        }
        var call = ListCall(
            app: app, task: task, audience: .devices([]), isAsync: try flag(body, "is_async"),
            needsAliasDetail: try flag(body, "need_alias_detail"), key: .none, digest: 0)
        call.notes = messages.notes
        if let id = body?["request_id"]?.given {
            let key = requestKey(app: app.key, endpoint: "push/list", requestID: try messages.requestID(id))
            call.key = CallKey(high: key.0, low: key.1)
            call.digest = SHA256.digest(digest).words.0
        }
        return call
    }

    private func flag(_ body: JSONValue?, _ name: StaticString) throws(GetuiFault) -> Bool {
        guard let value = body?[name]?.given else { return false }
        guard let flag = value.lenientBool else { throw .type("\(name)") }
        return flag
    }

    /// Returns a list in `audience`, after a check that it is neither empty nor too long.
    private func audience(_ audience: JSONValue?, _ name: StaticString, app: App) throws(GetuiFault) -> JSONValue {
        guard let audience else { throw .null("audience") }
        guard audience.hasContent else { throw .empty("audience") }
        guard audience.kind == .object else { throw .type("audience") }
        guard let list = audience[name] else { throw .null("\(name)") }
        guard list.kind == .array else { throw .type("\(name)") }
        var count = 0
        for _ in list.elements { count += 1 }
        guard count > 0 else { throw .empty("\(name)") }
        guard count <= app.bounds.listTargets else { throw .size("\(name)", "at most \(app.bounds.listTargets)") }
        return list
    }

    private func alias(_ value: JSONValue) throws(GetuiFault) -> String {
        guard value.kind != .unreadable else { throw .unreadable("alias") }
        // Numbers are accepted, as when an alias is bound.
        guard let text = value.lenientText else { throw .type("alias") }
        guard !text.isEmpty else { throw .empty("alias") }
        guard text.unicodeScalars.count <= userLimits.aliasCharacters else {
            throw .size("alias", "at most \(userLimits.aliasCharacters) characters")
        }
        // The rule for binding applies. Without it, a zero character could produce the digest of an alias with a type
        // (`AliasName`).
        guard NameRules.isAlias(text) else { throw .invalid("alias", "letters, digits, _ and Chinese characters") }
        return text
    }

    // MARK: single/alias

    func pushAlias(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, .pushToAlias)
        let digest = SHA256.digest(request.body).words.0
        let push = try aliasPush(
            body, app: app, endpoint: "push/single/alias", itemIndex: 0, digest: digest, now: now)
        return .campaign(.aliases([push], PushForm(kind: .single, notes: messages.notes)))
    }

    func pushAliasBatch(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let (list, isAsync) = try batchItems(try parameters(request, .batch), app: app)
        var form = PushForm(kind: .batch(isAsync: isAsync))
        var pushes: [AliasPush] = []
        var canonical = JSONWriter(capacity: 1_024)
        for (index, item) in list.elements.enumerated() {
            do throws(GetuiFault) {
                guard item.kind == .object else { throw .type("msg_list") }
                canonical.removeAll()
                canonical.value(item)
                try messages.check(item, .pushToAlias, of: parser)
                pushes.append(
                    try aliasPush(
                        item, app: app, endpoint: "push/single/batch/alias", itemIndex: index,
                        digest: SHA256.digest(canonical.bytes).words.0, now: now))
            } catch {
                form.refused.append(PushForm.Refused(itemIndex: index, code: error.code, message: error.message))
            }
        }
        guard !pushes.isEmpty else { return .respond(PushAnswer.nothingAccepted(form.refused)) }
        form.notes = messages.notes
        return .campaign(.aliases(pushes, form))
    }

    private func aliasPush(
        _ body: JSONValue?, app: App, endpoint: StaticString, itemIndex: Int, digest: UInt64, now: GatewayTime
    ) throws(GetuiFault) -> AliasPush {
        let requestID = try messages.requestID(body?["request_id"])
        guard let audience = body?["audience"] else { throw .null("audience") }
        guard audience.hasContent else { throw .empty("audience") }
        guard audience.kind == .object else { throw .type("audience") }
        guard let list = audience["alias"] else { throw .null("alias") }
        guard list.kind == .array else { throw .type("alias") }
        var elements = list.elements
        guard let first = elements.next() else { throw .empty("alias") }
        guard elements.next() == nil else { throw .size("alias", "a single push has one") }
        let alias = AliasName(
            app: app.key, text: try alias(first), type: try aliasType(audience["alias_type"]))
        let settings = try PushSettings(
            body?["settings"], app: app, scope: .alias, now: now, callerOffset: callerOffset)
        // The alias may have several devices, and each is to be reached once, so the task is a list.
        let task = TaskID(kind: .list, now: now, random: random).marked(with: alias)
        let content = try messages.content(body, app: app, task: task, settings: settings, itemIndex: itemIndex)
        let key = requestKey(app: app.key, endpoint: endpoint, requestID: requestID)
        var words: [UInt8] = Array(requestID) + [0]
        for word in [alias.high, alias.low] { words.append(bigEndian: word) }
        let own = words.withUnsafeBytes { requestKey(app: app.key, endpoint: endpoint, requestID: $0) }
        return AliasPush(
            app: app, task: task, alias: alias, content: content, key: CallKey(high: key.0, low: key.1),
            ownKey: CallKey(high: own.0, low: own.1), digest: digest, itemIndex: itemIndex)
    }

    /// Parses `msg_list` and `is_async` of a batch.
    func batchItems(_ body: JSONValue?, app: App) throws(GetuiFault) -> (list: JSONValue, isAsync: Bool) {
        guard let list = body?["msg_list"] else { throw .null("msg_list") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("msg_list") }
        guard list.hasContent else { throw .empty("msg_list") }
        let isAsync = try flag(body, "is_async")
        var count = 0
        for _ in list.elements { count += 1 }
        guard count <= app.bounds.batchItems else { throw .size("msg_list", "at most \(app.bounds.batchItems)") }
        return (list, isAsync)
    }
}
