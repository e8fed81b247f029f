// Answers to calls about users. `data` has the formats that Getui's SDKs parse. Additional information is in `longwire`.

package import Quotas
internal import Delivery
package import Directory
internal import JSON
internal import Wire

package enum UserAnswer {
    /// Returns the answer to a call that was refused by its quota before any work.
    package static func refused(_ request: UserRequest, _ verdict: RateLimiter.Verdict) -> APIResponse {
        let span = verdict == .minuteExceeded ? "minute" : "day"
        return switch (request.counted, verdict) {
        case (.tagQuery?, _): APIResponse.getui(.callRate, "calls per \(span) exceeded")
        case (_, .minuteExceeded): APIResponse.getui(.tagCallsPerMinute, "tag changes per minute exceeded")
        default: APIResponse.getui(.tagCallsPerDay, "tag changes per day exceeded")
        }
    }

    package static func render(_ request: UserRequest, _ operation: DirectoryOperation) -> APIResponse {
        let answer = Answer(request: request, operation: operation)
        do throws(GetuiFault) { return try answer.response() } catch { return error.response }
    }

    /// The answer if an alias could not be read.
    package static let unreadable = APIResponse.getui(
        .busy, "the directory cannot be read now, nothing was done, retry")

    /// Returns Getui's number of the platform: 1 Android, 2 iOS, 3 HarmonyOS; 0 for a platform that Getui does not number.
    ///
    /// Without a platform in its attributes the device's token decides. A device without a token counts as iOS.
    static func phoneType(_ detail: DeviceDetail) -> Int {
        switch detail.attributes?.platform ?? .unknown {
        case .android: return 1
        case .ios: return 2
        case .harmony: return 3
        case .web, .miniProgram, .other: return 0
        case .unknown: break
        }
        return switch detail.platform {
        case .android: 1
        case .apple, .followUp, nil: 2
        case .harmony: 3
        }
    }
}

private struct Answer {
    let request: UserRequest
    let operation: DirectoryOperation

    var outcomes: [ItemOutcome] { operation.outcomes }

    func response() throws(GetuiFault) -> APIResponse {
        switch request.form {
        case .change: return try change()
        case .unbindAll:
            try checkFailures()
            return envelope()
        case .devicesOfAlias:
            try checkFailures()
            return envelope(["cid": (operation.members.first ?? []).map { $0.cid.description }])
        case .aliasOfDevice(let type):
            return envelope(["alias": try onlyDevice().alias(ofType: type)?.text ?? ""])
        case .tagsOfDevice:
            let tags = try onlyDevice().tags
            // Getui's format: one element with all tags, separated by spaces.
            let joined = tags.isEmpty ? [] : [tags.map(\.text).joined(separator: " ")]
            return envelope([request.devices[0].description: joined])
        case .tagsReplaced: return try tagsReplaced()
        case .tagBatch: return try tagBatch()
        case .details:
            try checkFailures()
            return details(.detail)
        case .info:
            try checkFailures()
            return details(.info)
        case .deviceStatus:
            try checkFailures()
            return deviceStatus()
        case .count:
            try checkFailures()
            return count()
        }
    }

    // MARK: Changes

    /// Returns the answer to a change.
    ///
    /// Missing devices are listed; a failed change is an error.
    private func change() throws(GetuiFault) -> APIResponse {
        try checkFailures()
        if let place = outcomes.firstIndex(of: .full) {
            let text = "cid \(request.devices[place]) was not bound: the alias has as many as it may"
            let count = outcomes.count { $0 == .full }
            throw .size("alias", count == 1 ? text : "\(text), and \(count - 1) more")
        }
        if let place = outcomes.firstIndex(of: .tooMany) {
            throw .size(
                "alias_type",
                "cid \(request.devices[place]) has aliases of as many types as it may: unbind one of them first")
        }
        let unknown = self.unknown
        // The other items were changed, so the caller must know about the refused ones.
        if !request.refused.isEmpty { return PushAnswer.refusal(request.refused, notes: request.notes) }
        guard unknown.count < request.devices.count + request.notCIDs.count else { throw .targetUser }
        var notBound: [String] = []
        for (device, outcome) in zip(request.devices, outcomes) where outcome == .notHeld {
            notBound.append(device.description)
        }
        return envelope(longwire: ["unknown": unknown.unlessEmpty, "notBound": notBound.unlessEmpty])
    }

    private func tagsReplaced() throws(GetuiFault) -> APIResponse {
        try checkFailures()
        switch outcomes.first {
        case .done: return envelope()
        case .tooMany: throw .size("custom_tag")
        case .tooOften:
            throw GetuiFault(code: .tagCallsPerDay, message: "the tags of this cid were set too often today")
        default: throw .targetUser
        }
    }

    private func tagBatch() throws(GetuiFault) -> APIResponse {
        try checkFailures()
        var tooMany: [String] = []
        for (device, outcome) in zip(request.devices, outcomes) where outcome == .tooMany {
            tooMany.append(device.description)
        }
        let unknown = self.unknown
        guard outcomes.contains(.done) else {
            throw GetuiFault(
                code: .tagFailed,
                message: tooMany.isEmpty
                    ? "tag operation failed, target user is invalid"
                    : "tag operation failed, a cid has as many tags as it may")
        }
        let done = zip(request.devices, outcomes).map { ($0.description, $1 == .done ? "true" : "false") }
        return envelope(
            JSONObject(done + request.notCIDs.map { ($0, "false") }),
            longwire: ["unknown": unknown.unlessEmpty, "tooManyTags": tooMany.unlessEmpty])
    }

    private func checkFailures() throws(GetuiFault) {
        let failed = outcomes.count { $0 == .failed }
        guard failed > 0 else { return }
        let share = outcomes.count == 1 ? "nothing was done" : "\(failed) of \(outcomes.count) were not done"
        throw GetuiFault(code: .busy, message: "the gateway is busy, \(share), retry")
    }

    // MARK: Questions

    private func onlyDevice() throws(GetuiFault) -> DeviceDetail {
        try checkFailures()
        guard case .device(let detail)? = outcomes.first else { throw .targetUser }
        return detail
    }

    /// The field names of the calls that describe devices; Getui uses different names in each call.
    private struct DetailNames {
        var model: String
        var notifications: String
        var created: String
        var logins: String
        var hasBrand: Bool
        static let detail = DetailNames(
            model: "phoneModel", notifications: "notificationSwitch", created: "createTime", logins: "loginFreq",
            hasBrand: false)
        static let info = DetailNames(
            model: "phone_model", notifications: "notification_switch", created: "create_time", logins: "login_freq",
            hasBrand: true)
    }

    /// Returns whether the device shows notifications; without a report of the system's permission, a usable token counts.
    private static func showsNotifications(_ detail: DeviceDetail) -> Bool {
        guard !detail.pushModeOff else { return false }
        return switch detail.attributes?.notificationPermission ?? .unknown {
        case .allowed: true
        case .denied: false
        case .unknown: !detail.token.isEmpty
        }
    }

    private static func brand(_ detail: DeviceDetail) -> String? {
        // Getui answers `apple` for every Apple device, whatever brand the client reports.
        if UserAnswer.phoneType(detail) == 2 { return "apple" }
        return detail.attributes.flatMap { $0.brand.isEmpty ? nil : $0.brand }
    }

    private func details(_ names: DetailNames) -> APIResponse {
        let valid = described.map { device, detail -> (String, JSONObject) in
            let members: JSONObject = [
                "client_app_id": request.appID, "package_name": detail.topic, "device_token": detail.token,
                "phone_type": UserAnswer.phoneType(detail), names.model: detail.attributes?.model ?? "",
                names.notifications: Self.showsNotifications(detail),
                names.created: dateTime(detail.registeredAt), names.logins: Int64(clamping: detail.sessionCount),
                "brand": names.hasBrand ? Self.brand(detail) : nil,
            ]
            return (device, members)
        }
        let blacklisted = described.filter(\.detail.isBlacklisted).map(\.device)
        let attributes = described.compactMap { device, detail in
            detail.attributes.map { (device, DeviceAttributesAnswer.members($0)) }
        }
        return envelope(
            ["invalidCids": unknown, "validCids": JSONObject(valid)],
            longwire: [
                "blacklisted": blacklisted.unlessEmpty,
                "attributes": attributes.isEmpty ? nil : JSONObject(attributes),
            ])
    }

    private func deviceStatus() -> APIResponse {
        let statuses = described.map { device, detail -> (String, JSONObject) in
            let members: JSONObject = [
                "cid_status": detail.isReachable ? "online" : "offline",
                "device_status": detail.isConnected ? "online" : "offline",
            ]
            return (device, members)
        }
        return envelope(JSONObject(statuses), longwire: ["unknown": unknown.unlessEmpty])
    }

    private func count() -> APIResponse { envelope(["user_count": operation.count]) }

    // MARK: Parts

    /// Names in the request that are no device of this app.
    private var unknown: [String] {
        var names: [String] = []
        for (device, outcome) in zip(request.devices, outcomes) where outcome == .unknown {
            names.append(device.description)
        }
        return names + request.notCIDs
    }

    private var described: [(device: String, detail: DeviceDetail)] {
        zip(request.devices, outcomes).compactMap { device, outcome in
            guard case .device(let detail) = outcome else { return nil }
            return (device.description, detail)
        }
    }

    private func envelope(_ data: JSONObject? = nil, longwire: JSONObject = [:]) -> APIResponse {
        .success(data, longwire: longwire + request.notes.members)
    }
}
