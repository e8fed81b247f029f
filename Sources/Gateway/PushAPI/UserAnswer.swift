// What calls about users are answered. `data` has the shapes that Getui's SDKs read; what they have no place for stands
// beside it, under `longwire`.

package import Quotas
internal import Delivery
package import Directory
internal import JSON
internal import Wire

package enum UserAnswer {
    /// The quota refused the call before anything was done.
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

    /// Nobody has the alias that a push named.
    package static let nobodyHasAlias = GetuiFault.targetUser.response
    /// Who has an alias could not be read.
    package static let unreadable = APIResponse.getui(
        .busy, "the directory cannot be read now, nothing was done, retry")
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
            return envelope(nil)
        case .devicesOfAlias:
            try checkFailures()
            return envelope { writer in
                writer.object { writer in
                    writer.strings("cid", (operation.members.first ?? []).map { $0.cid.description })
                }
            }
        case .aliasOfDevice(let type):
            let detail = try onlyDevice()
            return envelope { writer in
                writer.object { $0.member("alias", detail.alias(ofType: type)?.text ?? "") }
            }
        case .tagsOfDevice:
            let detail = try onlyDevice()
            return envelope { writer in
                writer.object { writer in
                    writer.key(text: request.devices[0].description)
                    writer.array { writer in
                        // One element, all tags joined by spaces: Getui's form.
                        if !detail.tags.isEmpty { writer.string(detail.tags.map(\.text).joined(separator: " ")) }
                    }
                }
            }
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

    /// What does not exist is passed over and named; what should have worked and did not is an error.
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
        // The others are done; the caller must know that this one is not.
        if !request.refused.isEmpty { return PushAnswer.refusal(request.refused, notes: request.notes) }
        guard unknown.count < request.devices.count + request.notCIDs.count else { throw .targetUser }
        var notBound: [String] = []
        for (device, outcome) in zip(request.devices, outcomes) where outcome == .notHeld {
            notBound.append(device.description)
        }
        return envelope(nil) { writer in
            list("unknown", unknown, &writer)
            list("notBound", notBound, &writer)
        }
    }

    private func tagsReplaced() throws(GetuiFault) -> APIResponse {
        try checkFailures()
        switch outcomes.first {
        case .done: return envelope(nil)
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
        return envelope { writer in
            writer.object { writer in
                for (device, outcome) in zip(request.devices, outcomes) {
                    writer.member(text: device.description, outcome == .done ? "true" : "false")
                }
                for text in request.notCIDs { writer.member(text: text, "false") }
            }
        } beside: { writer in
            list("unknown", unknown, &writer)
            list("tooManyTags", tooMany, &writer)
        }
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

    /// What the calls that describe devices name their fields: Getui spells some of them differently in each.
    private struct DetailNames {
        var model: StaticString
        var notifications: StaticString
        var created: StaticString
        var logins: StaticString
        var hasBrand: Bool
        static let detail = DetailNames(
            model: "phoneModel", notifications: "notificationSwitch", created: "createTime", logins: "loginFreq",
            hasBrand: false)
        static let info = DetailNames(
            model: "phone_model", notifications: "notification_switch", created: "create_time", logins: "login_freq",
            hasBrand: true)
    }

    private func details(_ names: DetailNames) -> APIResponse {
        envelope { writer in
            writer.object { writer in
                writer.strings("invalidCids", unknown)
                writer.object("validCids") { writer in
                    for (device, outcome) in zip(request.devices, outcomes) {
                        guard case .device(let detail) = outcome else { continue }
                        writer.object(text: device.description) { writer in
                            writer.member("client_app_id", request.appID)
                            writer.member("package_name", detail.topic)
                            writer.member("device_token", detail.token)
                            writer.member("phone_type", 2)
                            writer.member(names.model, "")
                            writer.member(names.notifications, !detail.token.isEmpty && !detail.pushModeOff)
                            writer.member(names.created, dateTime(detail.registeredAt))
                            writer.member(names.logins, Int64(clamping: detail.sessionCount))
                            if names.hasBrand { writer.member("brand", "apple") }
                        }
                    }
                }
            }
        } beside: { writer in
            var blacklisted: [String] = []
            for (device, outcome) in zip(request.devices, outcomes) {
                if case .device(let detail) = outcome, detail.isBlacklisted { blacklisted.append(device.description) }
            }
            list("blacklisted", blacklisted, &writer)
        }
    }

    private func deviceStatus() -> APIResponse {
        envelope { writer in
            writer.object { writer in
                for (device, outcome) in zip(request.devices, outcomes) {
                    guard case .device(let detail) = outcome else { continue }
                    writer.object(text: device.description) { writer in
                        writer.member("cid_status", detail.isReachable ? "online" : "offline")
                        writer.member("device_status", detail.isConnected ? "online" : "offline")
                    }
                }
            }
        } beside: { writer in
            list("unknown", unknown, &writer)
        }
    }

    private func count() -> APIResponse {
        envelope { writer in
            writer.object { $0.member("user_count", operation.count) }
        }
    }

    // MARK: Parts

    /// What was named and is no device of this app.
    private var unknown: [String] {
        var names: [String] = []
        for (device, outcome) in zip(request.devices, outcomes) where outcome == .unknown {
            names.append(device.description)
        }
        return names + request.notCIDs
    }

    private func list(_ name: StaticString, _ texts: [String], _ writer: inout JSONWriter) {
        guard !texts.isEmpty else { return }
        writer.strings(name, texts)
    }

    private func envelope(
        _ data: ((inout JSONWriter) -> Void)?, beside: (inout JSONWriter) -> Void = { _ in }
    ) -> APIResponse {
        APIResponse.getui(
            capacity: 256 + 96 * outcomes.count, data: data,
            beside: { writer in
                beside(&writer)
                request.notes.write(to: &writer)
            })
    }
}
