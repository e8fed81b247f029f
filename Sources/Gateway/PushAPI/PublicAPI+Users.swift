// Getui's calls about users: aliases, tags, blacklist, badge, status, detail and counts.

internal import Quotas
internal import Cryptography
internal import Delivery
internal import Directory
internal import JSON
internal import Wire

extension PublicAPI {
    func userRequest(
        _ endpoint: PublicEndpoint, _ request: APIRequest, _ path: RequestPath, app: App
    ) throws(GetuiFault) -> UserRequest {
        var user = try parsedUserRequest(endpoint, request, path, app: app)
        user.notes = messages.notes
        return user
    }

    private func parsedUserRequest(
        _ endpoint: PublicEndpoint, _ request: APIRequest, _ path: RequestPath, app: App
    ) throws(GetuiFault) -> UserRequest {
        switch endpoint {
        case .bindAliases: return try aliasList(request, app: app, binds: true)
        case .unbindAliases: return try aliasList(request, app: app, binds: false)
        case .unbindAlias:
            let name = try alias(path[4], type: aliasType(of: request), app: app)
            return UserRequest(app: app, work: .unbindAll(name), form: .unbindAll)
        case .aliasOfDevice:
            let type = AliasName(app: app.key, text: "", type: try aliasType(of: request)).type
            return try one(path[5], app: app, form: .aliasOfDevice(type: type))
        case .devicesOfAlias:
            let name = try alias(path[5], type: aliasType(of: request), app: app)
            return UserRequest(app: app, work: .resolve([name]), form: .devicesOfAlias)
        case .replaceTags: return try replaceTags(request, path[5], app: app)
        case .tagsOfDevice: return try one(path[5], app: app, form: .tagsOfDevice, counted: .tagQuery)
        case .addTag: return try tagBatch(request, path[5], app: app, adds: true)
        case .removeTag: return try tagBatch(request, path[5], app: app, adds: false)
        case .blacklist, .unblacklist:
            // The body is ignored, but invalid JSON is refused.
            _ = try parameters(request, .blacklist)
            return try each(
                path[5], app: app, limit: userLimits.blacklistDevices, .setBlacklisted(endpoint == .blacklist),
                form: .change)
        case .setBadge:
            let change = try badge(try parameters(request, .badge)?["badge"])
            return try each(path[5], app: app, limit: userLimits.badgeDevices, .setBadge(change), form: .change)
        case .userDetail:
            return try each(path[4], app: app, limit: userLimits.detailDevices, .describeWithAttributes, form: .details)
        case .userBaseInfo, .userAdvancedInfo:
            return try each(path[5], app: app, limit: userLimits.detailDevices, .describeWithAttributes, form: .info)
        case .deviceStatus:
            return try each(path[4], app: app, limit: userLimits.deviceStatusDevices, .describe, form: .deviceStatus)
        case .countUsers: return try count(request, app: app)
        default: throw .notFound
        }
    }

    // MARK: Names

    /// Parses `alias` and `alias_type` of one object.
    private func alias(of item: JSONValue, app: App) throws(GetuiFault) -> AliasName {
        guard let value = item["alias"] else { throw .null("alias") }
        guard let text = value.lenientText else { throw .type("alias") }
        return try names(app).alias(text, type: aliasType(item["alias_type"]))
    }

    /// Parses `alias_type`, an app-defined kind of alias; empty if absent.
    func aliasType(_ value: JSONValue?) throws(GetuiFault) -> String {
        guard let value = value?.given else { return "" }
        guard let text = value.lenientText else { throw .type("alias_type") }
        return try checked(aliasType: text)
    }

    /// Parses the query parameter `alias_type`.
    private func aliasType(of request: APIRequest) throws(GetuiFault) -> String {
        try checked(aliasType: queryValue("alias_type", of: request.target) ?? "")
    }

    private func checked(aliasType text: String) throws(GetuiFault) -> String {
        try NameReader.aliasType(text, userLimits)
    }

    private func alias(_ bytes: ArraySlice<UInt8>, type: String, app: App) throws(GetuiFault) -> AliasName {
        try names(app).alias(String(decoding: bytes, as: UTF8.self), type: type)
    }

    private func names(_ app: App) -> NameReader { NameReader(app: app.key, limits: userLimits) }

    // MARK: Devices

    /// Parses comma-separated cids; invalid ones are returned separately.
    private func devices(
        _ segment: ArraySlice<UInt8>, app: App, limit: Int
    ) throws(GetuiFault) -> (places: [DevicePlace], notCIDs: [String]) {
        var list = DeviceList(app: app, limit: limit)
        for text in segment.split(separator: UInt8(ascii: ",")) { try list.add(text) }
        return try list.taken()
    }

    private func devices(
        _ value: JSONValue?, app: App, limit: Int
    ) throws(GetuiFault) -> (places: [DevicePlace], notCIDs: [String]) {
        guard let value else { throw .null("cid") }
        guard value.kind == .array || value.isEmptyContainer else { throw .type("cid") }
        var list = DeviceList(app: app, limit: limit)
        var textCount = 0
        for (index, element) in value.elements.enumerated() {
            if element.kind == .string { textCount += 1 }
            // The answer names a member that is not a text by its digits or its index.
            try list.add(Array((element.lenientText ?? "cid[\(index)]").utf8)[...])
        }
        guard textCount > 0 || value.isEmptyContainer else { throw .type("cid") }
        return try list.taken()
    }

    private func each(
        _ segment: ArraySlice<UInt8>, app: App, limit: Int, _ step: DirectoryOperation.EachStep, form: UserRequest.Form
    ) throws(GetuiFault) -> UserRequest {
        let (places, notCIDs) = try devices(segment, app: app, limit: limit)
        return UserRequest(
            app: app, work: .each(places, step), form: form, devices: places.map(\.cid), notCIDs: notCIDs)
    }

    private func one(
        _ segment: ArraySlice<UInt8>, app: App, form: UserRequest.Form, counted: RateKind? = nil,
        _ step: DirectoryOperation.EachStep = .describe
    ) throws(GetuiFault) -> UserRequest {
        guard let cid = DeviceID(hex: segment) else { throw .targetUser }
        let place = DevicePlace(cid: cid, bucket: app.bucket(of: cid))
        return UserRequest(app: app, counted: counted, work: .each([place], step), form: form, devices: [cid])
    }

    // MARK: Bodies

    private func aliasList(_ request: APIRequest, app: App, binds: Bool) throws(GetuiFault) -> UserRequest {
        let body = try parameters(request, .aliasList)
        guard let list = body?["data_list"] else { throw .null("data_list") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("data_list") }
        guard list.hasContent else { throw .empty("data_list") }
        var items: [AliasItem] = []
        var places: [HeldType: Int] = [:]
        var unbound = Set<AliasItem>()
        var notCIDs: [String] = []
        var refused: [PushForm.Refused] = []
        for (index, element) in list.elements.enumerated() {
            guard index < userLimits.aliasItems else { throw .size("data_list", "at most \(userLimits.aliasItems)") }
            let (text, name): (String, AliasName)
            do throws(GetuiFault) {
                (text, name) = try pair(element, app: app)
            } catch {
                let alias = element["alias"]?.lenientText.map { " \($0.prefix(64))" } ?? ""
                let message = "\(error.message): data_list[\(index)]\(alias)"
                refused.append(PushForm.Refused(itemIndex: index, code: error.code, message: message))
                continue
            }
            guard let cid = DeviceID(text) else {
                notCIDs.append(String(text.prefix(64)))
                continue
            }
            let item = AliasItem(device: DevicePlace(cid: cid, bucket: app.bucket(of: cid)), name: name)
            // A device has one alias of each type, so the last of several items is used.
            let held = HeldType(cid: cid, type: name.type)
            if binds, let place = places[held] {
                items[place] = item
            } else if binds || unbound.insert(item).inserted {
                places[held] = items.count
                items.append(item)
            }
        }
        if items.isEmpty, notCIDs.isEmpty, let first = refused.first {
            throw GetuiFault(code: first.code, message: first.message)
        }
        var user = UserRequest(
            app: app, work: binds ? .bind(items) : .unbind(items), form: .change, devices: items.map(\.device.cid),
            notCIDs: notCIDs)
        user.refused = refused
        return user
    }

    private func pair(_ element: JSONValue, app: App) throws(GetuiFault) -> (cid: String, name: AliasName) {
        guard element.kind == .object else { throw .type("data_list") }
        try messages.check(element, .aliasItem, of: parser)
        guard let value = element["cid"] else { throw .null("cid") }
        guard let text = value.string else { throw .type("cid") }
        guard !text.isEmpty else { throw .empty("cid") }
        return (text, try alias(of: element, app: app))
    }

    private func replaceTags(
        _ request: APIRequest, _ segment: ArraySlice<UInt8>, app: App
    ) throws(GetuiFault) -> UserRequest {
        guard let value = try parameters(request, .tagsOfDevice)?["custom_tag"] else { throw .null("custom_tag") }
        guard value.kind == .array || value.isEmptyContainer else { throw .type("custom_tag") }
        guard value.hasContent else { throw .empty("custom_tag") }
        var tags = TagSet(userLimits)
        var count = 0
        for element in value.elements {
            count += 1
            guard count <= Limits.tagValueCount else {
                throw .size("custom_tag", "at most \(Limits.tagValueCount) values")
            }
            let text = element.lenientText
            let tag: TagName
            do throws(GetuiFault) {
                guard let text else { throw .type("custom_tag") }
                tag = try names(app).tag(text)
            } catch {
                // Either all tags are replaced or none, so the error names the invalid one.
                var fault = error
                fault.message += ": custom_tag[\(count - 1)] \((text ?? "").prefix(64))"
                throw fault
            }
            try tags.add(tag)
        }
        return try one(segment, app: app, form: .tagsReplaced, .replaceTags(tags.tags))
    }

    private func tagBatch(
        _ request: APIRequest, _ segment: ArraySlice<UInt8>, app: App, adds: Bool
    ) throws(GetuiFault) -> UserRequest {
        let tag = try names(app).tag(String(decoding: segment, as: UTF8.self))
        let (places, notCIDs) = try devices(
            try parameters(request, .taggedDevices)?["cid"], app: app, limit: userLimits.tagDevices)
        return UserRequest(
            app: app, counted: .tagChange, work: .each(places, adds ? .addTags([tag]) : .removeTags([tag])),
            form: .tagBatch,
            devices: places.map(\.cid), notCIDs: notCIDs)
    }

    /// Parses "+1", "-1" or "5", as text or number; a sign makes it a change.
    private func badge(_ value: JSONValue?) throws(GetuiFault) -> BadgeChange {
        guard let value else { throw .null("badge") }
        guard let text = value.lenientText else { throw .type("badge") }
        guard !text.isEmpty else { throw .empty("badge") }
        guard let number = Int32(text) else {
            throw .invalid("badge", "a number, or one with its sign to add or take away")
        }
        return text.utf8.first == UInt8(ascii: "+") || number < 0 ? .add(number) : .set(number)
    }

    // MARK: Count

    private func count(_ request: APIRequest, app: App) throws(GetuiFault) -> UserRequest {
        let body = try parameters(request, .userCount)
        var conditions = TagConditions(app: app, limits: userLimits)
        return UserRequest(app: app, work: .count(try conditions.parse(body?["tag"])), form: .count)
    }
}

/// The key of a device's alias: each device has one alias of each type.
private struct HeldType: Hashable {
    let cid: DeviceID
    let type: UInt64
}

/// Cids from a request, without repetitions and up to a limit.
private struct DeviceList {
    let app: App
    let limit: Int
    private var count = 0
    private var seen = Set<DeviceID>()
    private var places: [DevicePlace] = []
    private var notCIDs: [String] = []

    init(app: App, limit: Int) { (self.app, self.limit) = (app, limit) }

    mutating func add(_ text: ArraySlice<UInt8>) throws(GetuiFault) {
        count += 1
        guard count <= limit else { throw .size("cid", "at most \(limit)") }
        guard let cid = DeviceID(hex: text) else {
            notCIDs.append(String(decoding: text.prefix(64), as: UTF8.self))
            return
        }
        guard seen.insert(cid).inserted else { return }
        places.append(DevicePlace(cid: cid, bucket: app.bucket(of: cid)))
    }

    func taken() throws(GetuiFault) -> (places: [DevicePlace], notCIDs: [String]) {
        guard count > 0 else { throw .empty("cid") }
        return (places, notCIDs)
    }
}
