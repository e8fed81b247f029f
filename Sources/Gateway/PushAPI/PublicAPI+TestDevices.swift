// Getui's calls about test devices, and the call for binding the vendors' device tokens.

internal import Delivery
internal import Directory
internal import JSON
internal import Wire

extension PublicAPI {
    func testDevices(
        _ endpoint: PublicEndpoint, _ request: APIRequest, app: App
    ) throws(GetuiFault) -> TestDeviceRequest {
        var parsed = try parsedTestDevices(endpoint, request, app: app)
        parsed.notes = messages.notes
        return parsed
    }

    private func parsedTestDevices(
        _ endpoint: PublicEndpoint, _ request: APIRequest, app: App
    ) throws(GetuiFault) -> TestDeviceRequest {
        switch endpoint {
        case .addTestDevices: return try addTestDevices(try parameters(request, .testDevices), app: app)
        case .updateTestDevice:
            let body = try parameters(request, .changedTestDevice)
            guard let cid = try cid(body) else { throw .targetUser }
            return TestDeviceRequest(app: app.key, work: .update(cid, try remark(body)))
        case .deleteTestDevices:
            var cids: [DeviceID] = []
            var notCIDs: [String] = []
            var seen = Set<DeviceID>()
            let items = try items(try parameters(request, .testDevices))
            guard items.contains(where: { $0.kind == .string }) else { throw .type("cid_list") }
            for (index, element) in items.enumerated() {
                let text = element.lenientText ?? "cid_list[\(index)]"
                if let cid = DeviceID(text) {
                    if seen.insert(cid).inserted { cids.append(cid) }
                } else {
                    notCIDs.append(String(text.prefix(64)))
                }
            }
            return TestDeviceRequest(app: app.key, work: .delete(cids), notCIDs: notCIDs)
        default: return TestDeviceRequest(app: app.key, work: .list(try query(request)))
        }
    }

    private func addTestDevices(_ body: JSONValue?, app: App) throws(GetuiFault) -> TestDeviceRequest {
        var devices: [TestDeviceRequest.Item] = []
        var notCIDs: [String] = []
        var places: [DeviceID: Int] = [:]
        var fault: GetuiFault?
        for (index, element) in try items(body).enumerated() {
            let name = element["cid"]?.lenientText ?? "cid_list[\(index)]"
            let remark: String
            let cid: DeviceID
            do throws(GetuiFault) {
                guard element.kind == .object else { throw .type("cid_list") }
                try messages.check(element, .testDevice, of: parser)
                remark = try self.remark(element)
                guard let given = try self.cid(element) else {
                    notCIDs.append(String(name.prefix(64)))
                    continue
                }
                cid = given
            } catch {
                fault = fault ?? error
                notCIDs.append(String(name.prefix(64)))
                continue
            }
            let item = TestDeviceRequest.Item(
                place: DevicePlace(cid: cid, bucket: app.bucket(of: cid)), remark: remark)
            // The last of several items for one cid is used.
            if let place = places[cid] {
                devices[place] = item
            } else {
                places[cid] = devices.count
                devices.append(item)
            }
        }
        // If no item is valid, the first fault refuses the call.
        if devices.isEmpty, let fault { throw fault }
        return TestDeviceRequest(app: app.key, work: .add(devices), notCIDs: notCIDs)
    }

    /// Returns the members of `cid_list`, up to an app's limit of test devices.
    private func items(_ body: JSONValue?) throws(GetuiFault) -> [JSONValue] {
        guard let list = body?["cid_list"] else { throw .null("cid_list") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("cid_list") }
        guard list.hasContent else { throw .empty("cid_list") }
        var items: [JSONValue] = []
        for element in list.elements {
            guard items.count < userLimits.testDevices else {
                throw .size("cid_list", "at most \(userLimits.testDevices)")
            }
            items.append(element)
        }
        return items
    }

    /// - Returns: `nil` for a text that is not a cid.
    private func cid(_ body: JSONValue?) throws(GetuiFault) -> DeviceID? {
        guard let value = body?["cid"] else { throw .null("cid") }
        guard let bytes = value.stringBytes else { throw .type("cid") }
        guard !bytes.isEmpty else { throw .empty("cid") }
        return DeviceID(hex: bytes)
    }

    private func remark(_ body: JSONValue?) throws(GetuiFault) -> String {
        guard let value = body?["remark"] else { return "" }
        guard let text = value.lenientText else { throw .type("remark") }
        try checkLength(remark: text)
        return text
    }

    private func checkLength(remark: String) throws(GetuiFault) {
        guard remark.unicodeScalars.count <= Limits.remarkCharacterCount else {
            throw .size("remark", "at most \(Limits.remarkCharacterCount) characters")
        }
    }

    private func query(_ request: APIRequest) throws(GetuiFault) -> TestDeviceRequest.Query {
        func number(_ name: String, _ standard: Int) throws(GetuiFault) -> Int {
            guard let text = queryValue(name, of: request.target), !text.isEmpty else { return standard }
            guard let value = Int(text) else { throw .type(name) }
            return value < 1 ? standard : value
        }
        var query = TestDeviceRequest.Query()
        query.page = try number("pageNum", 1)
        query.pageSize = min(try number("pageSize", 10), Limits.testDevicePageCount)
        if let cid = queryValue("cid", of: request.target), !cid.isEmpty { query.cid = cid }
        if let remark = queryValue("remark", of: request.target), remark.contains(where: { !$0.isWhitespace }) {
            try checkLength(remark: remark)
            query.remark = remark
        }
        return query
    }

    // MARK: Device tokens

    private func deviceToken(_ element: JSONValue) throws(GetuiFault) -> (cid: String, token: String) {
        guard element.kind == .object else { throw .type("dt_list") }
        try messages.check(element, .deviceToken, of: parser)
        guard let value = element["cid"] else { throw .null("cid") }
        guard let cid = value.string else { throw .type("cid") }
        guard !cid.isEmpty else { throw .empty("cid") }
        guard let value = element["device_token"]?.given else { return (cid, "") }
        guard let token = value.string else { throw .type("device_token") }
        return (cid, token)
    }

    /// Answers `POST /user/bind_dt/{type}`.
    ///
    /// Devices register their vendor tokens themselves, so the call binds no token. Each item with a token is reported as failed,
    /// in the format of this call.
    func bindDeviceTokens(
        _ request: APIRequest, _ type: ArraySlice<UInt8>, app: App
    ) throws(GetuiFault) -> APIResponse {
        guard let list = try parameters(request, .deviceTokens)?["dt_list"] else { throw .null("dt_list") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("dt_list") }
        guard list.hasContent else { throw .empty("dt_list") }
        var failed: [(cid: String, token: String)] = []
        var fault: GetuiFault?
        var (count, readCount) = (0, 0)
        for element in list.elements {
            count += 1
            guard count <= Limits.deviceTokenItemCount else {
                throw .size("dt_list", "at most \(Limits.deviceTokenItemCount)")
            }
            do throws(GetuiFault) {
                let (cid, token) = try deviceToken(element)
                readCount += 1
                // An empty token means unbinding. Nothing is ever bound here, so that always succeeds.
                if !token.isEmpty { failed.append((cid, token)) }
            } catch {
                fault = fault ?? error
                failed.append((element["cid"]?.lenientText ?? "dt_list[\(count - 1)]", ""))
            }
        }
        if readCount == 0, let fault { throw fault }
        guard !failed.isEmpty else { return .success(longwire: messages.notes.members) }
        let errors = failed.map { item -> JSONObject in
            ["cid": item.cid, "device_token": item.token, "error_code": GetuiCode.parameter.rawValue]
        }
        let data: JSONObject = ["errorList": errors]
        return .success(data, longwire: ["reason": "noSuchChannel"] + messages.notes.members)
    }
}
