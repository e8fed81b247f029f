// Answers about tasks: Getui's envelope and formats, with additional Longwire members.

package import Delivery
package import Quotas
internal import JSON
package import Wire

package enum CampaignAnswer {
    // MARK: Making and moving tasks

    /// Returns the answer to `push/list/message`.
    package static func created(
        _ answer: CreateTask.Answer, _ task: NewTask, durability: Durability
    ) -> APIResponse {
        switch answer {
        case .created(let id, let isRepeat):
            let longwire: JSONObject = [
                "durability": durability.name, "ttl": task.record.content.timeToLive,
                "validUntil": task.record.validUntil,
                "scheduledFor": task.record.scheduleAt > 0 ? task.record.scheduleAt : nil,
                "fallback": task.fallback == .applies ? "perDevice" : "none",
                "fallbackReason": task.fallback != .applies ? task.fallback.name : nil,
                "repeat": isRepeat.unlessFalse,
            ]
            return .success(["taskid": id.text] as JSONObject, longwire: longwire + task.notes.members)
        case .full:
            return APIResponse.getui(
                .tooManyBroadcasts,
                "the app has as many live broadcasts as it may: stop one, or wait until one has expired")
        case .conflict:
            return GetuiFault.parameter("request_id cannot be repeat.", "it was used with another body").response
        case .tooLarge:
            return GetuiFault.size("push_message", "with its audience it does not fit a row of the store").response
        case .busy: return .busy
        }
    }

    /// Returns the reason why a stored task accepts no targets; `nil` if it accepts targets.
    package static func refusal(_ record: TaskRecord, now: GatewayTime) -> APIResponse? {
        switch record.state {
        case .stopping, .stopped, .ending, .ended: return GetuiFault.invalid("taskid", "the task was stopped").response
        case .cancelled: return GetuiFault.invalid("taskid", "its schedule was deleted").response
        case .open, .scheduled, .running: break
        }
        return now <= record.validUntil ? nil : GetuiFault.invalid("taskid", "it has expired").response
    }

    package static let unknownTask = GetuiFault.invalid("taskid", "no such task").response
    package static let unknownTarget = GetuiFault.targetUser.response
    package static let requestConflict =
        GetuiFault.parameter("request_id cannot be repeat.", "it was used with another body").response

    /// Returns the answer to a stop, with the number of undelivered messages.
    package static func stopped(_ count: Int) -> APIResponse {
        .success(longwire: ["revoked": count])
    }

    /// Returns the answer to the deletion of a schedule.
    package static func cancelled(_ answer: TaskTransition) -> APIResponse {
        switch answer {
        case .changed: .getui(.ok)
        case .refused(let state):
            state == .scheduled || state == .running || state == .open
                ? .getui(.alreadyRan, "the timed task has run, or runs within a minute")
                : .getui(.badSchedule, "the task has no schedule any more")
        case .unknown: .getui(.badSchedule, "no such task")
        case .busy: .busy
        }
    }

    /// Returns the answer to `task/schedule`.
    package static func schedule(_ answer: Found<TaskRecord>) -> APIResponse {
        guard let record = answer.value else {
            return answer.isAbsent ? .getui(.badSchedule, "no such task") : .busy
        }
        guard record.scheduleAt > 0 else { return .getui(.badSchedule, "the task is not a timed one") }
        let words = ScheduleRules.words(record)
        let task: JSONObject = [
            "create_time": String(record.createdAt), "push_time": String(record.scheduleAt),
            "transmission_content": String(decoding: record.content.payload, as: UTF8.self),
            "status": words.status, "send_result": words.sendResult,
        ]
        return .success([record.id.text: task] as JSONObject)
    }

    // MARK: Lists

    /// Returns the answer to a list call whose devices were stored until the task's time.
    ///
    /// Getui has no status for a device that waits for a schedule. `successed_offline` is the closest one that its SDKs can
    /// parse.
    private static func parked(
        _ outcomes: [PublishOutcome], _ call: ListCall, _ record: TaskRecord, aliases: [ResolvedAlias]?
    ) -> APIResponse {
        let cids = outcomes.lazy.filter(\.isParked).map(\.cid)
        let unknown = outcomes.filter { $0.code == .unknownDevice }.map(\.cid.description)
        let waiting = Set(cids)
        func entries(_ cids: some Sequence<DeviceID>) -> JSONObject {
            JSONObject(cids.lazy.filter(waiting.contains).map { ($0.description, "successed_offline") })
        }
        let entered =
            aliases.map { aliases in
                aliases.reduce(into: JSONObject()) { $0.add($1.alias, entries($1.devices).unlessEmpty) }
            } ?? entries(cids)
        let data: JSONObject = [record.id.text: entered]
        let longwire: JSONObject = [
            "scheduledFor": record.scheduleAt, "targets": waiting.count,
            "unknown": (call.unknown + unknown).unlessEmpty,
            "refused": refusals(call.refused, []).unlessEmpty,
        ]
        return .success(call.isAsync ? nil : data, longwire: longwire + call.notes.members)
    }

    /// Returns the answer to a list call after all outcomes are known; `aliases` is set if the caller requested the device of
    /// each alias.
    package static func list(
        _ outcomes: [PublishOutcome], _ call: ListCall, record: TaskRecord, aliases: [ResolvedAlias]?,
        durability: Durability
    ) -> APIResponse {
        if outcomes.contains(where: \.isParked)
            || record.state == .scheduled && outcomes.allSatisfy({ $0.code == .unknownDevice })
        {
            return parked(outcomes, call, record, aliases: aliases)
        }
        let reached = outcomes.filter { PushAnswer.fault(of: $0) == nil }
        // No device was accepted and a retry could help, so the caller must receive an error instead of an empty success.
        if reached.isEmpty, let busy = outcomes.first(where: { $0.code.isRetryable }) {
            return PushAnswer.fault(of: busy)?.response ?? .busy
        }
        if reached.isEmpty, outcomes.contains(where: { $0.code == .stopped }) {
            return GetuiFault.invalid("taskid", "the task was stopped").response
        }
        let data: JSONObject
        if let aliases {
            let byDevice = Dictionary(reached.map { ($0.cid, $0) }, uniquingKeysWith: { first, _ in first })
            data = aliases.reduce(into: JSONObject()) { data, alias in
                data.add(alias.alias, statuses(alias.devices.compactMap { byDevice[$0] }).unlessEmpty)
            }
        } else {
            data = statuses(reached)
        }
        return .success(
            call.isAsync ? nil : [record.id.text: data] as JSONObject,
            longwire: summary(outcomes, durability, unknown: call.unknown, refused: call.refused) + call.notes.members)
    }

    /// Returns the answer to `push/single/cid_by_tag`, for the devices whose tags matched.
    package static func byTag(
        _ task: TaskID, _ outcomes: [PublishOutcome], refused: [RefusedTarget] = [],
        notes: RequestNotes = RequestNotes(), durability: Durability
    ) -> APIResponse {
        let reached = outcomes.filter { PushAnswer.fault(of: $0) == nil }
        if reached.isEmpty, let first = outcomes.first, let fault = PushAnswer.fault(of: first) {
            return fault.response
        }
        return .success(
            [task.text: statuses(reached)] as JSONObject,
            longwire: summary(outcomes, durability, unknown: [], refused: refused) + notes.members)
    }

    private static func statuses(_ outcomes: [PublishOutcome]) -> JSONObject {
        JSONObject(outcomes.map { ($0.cid.description, PushAnswer.statusWord($0)) })
    }

    /// Summarizes a list's outcomes: counts, and names only for devices with a problem.
    private static func summary(
        _ outcomes: [PublishOutcome], _ durability: Durability, unknown: [String], refused targets: [RefusedTarget]
    ) -> JSONObject {
        var live = 0, queued = 0, ignored = 0, repeated = 0, ended = 0
        var unknown = unknown
        var noFallback: [PublishOutcome.FallbackReason: [DeviceID]] = [:]
        var refused: [(cid: DeviceID, fault: GetuiFault)] = []
        for outcome in outcomes {
            if outcome.isRepeat { repeated += 1 }
            switch outcome.code {
            case .accepted:
                if outcome.endedAs != nil { ended += 1 } else if outcome.isLive { live += 1 } else { queued += 1 }
                if outcome.fallback == .none { noFallback[outcome.fallbackReason, default: []].append(outcome.cid) }
            case .ignored: ignored += 1
            case .unknownDevice: unknown.append(outcome.cid.description)
            default: if let fault = PushAnswer.fault(of: outcome) { refused.append((outcome.cid, fault)) }
            }
        }
        let reasons = noFallback.sorted { $0.key.rawValue < $1.key.rawValue }.map { reason, cids in
            // If all devices have the same reason and are more than 16, they are not listed.
            let isAll = cids.count == live + queued + ended && cids.count > 16
            let named: any JSONWritable = isAll ? "all" : cids.map(\.description)
            return ("\(reason.name)", named)
        }
        return [
            "durability": durability.name, "live": live, "queued": queued, "ended": ended.unlessZero,
            "ignoredDevices": ignored.unlessZero, "repeated": repeated.unlessZero,
            "noFallback": JSONObject(reasons).unlessEmpty, "unknown": unknown.unlessEmpty,
            "refused": refusals(targets, refused).unlessEmpty,
        ]
    }

    private static func refusals(
        _ targets: [RefusedTarget], _ devices: [(cid: DeviceID, fault: GetuiFault)]
    ) -> [JSONObject] {
        targets.map { target in
            ["index": target.index, target.kind.rawValue: target.name.unlessEmpty]
                + .envelope(target.fault.code, target.fault.message)
        } + devices.map { ["cid": $0.cid.description] + .envelope($0.fault.code, $0.fault.message) }
    }

    // MARK: Aliases

    package enum AliasResult: Sendable {
        case reached(TaskID, [PublishOutcome])
        case refused(code: GetuiCode, message: String)
    }

    /// Returns the answer to `push/single/alias` and its batch.
    package static func aliases(
        _ results: [(itemIndex: Int, result: AliasResult)], form: PushForm, durability: Durability
    ) -> APIResponse {
        var outcomes: [(task: TaskID, found: [PublishOutcome])] = []
        var refused = form.refused
        for (index, result) in results {
            switch result {
            case .reached(let task, let all):
                let taken = all.filter { PushAnswer.fault(of: $0) == nil }
                if taken.isEmpty, let fault = all.lazy.compactMap({ PushAnswer.fault(of: $0) }).first {
                    refused.append(PushForm.Refused(itemIndex: index, code: fault.code, message: fault.message))
                } else {
                    outcomes.append((task, taken))
                    // Other devices of the alias accepted the message, so the failed ones are reported.
                    for outcome in all {
                        guard let fault = PushAnswer.fault(of: outcome) else { continue }
                        refused.append(
                            PushForm.Refused(
                                itemIndex: index, code: fault.code, message: fault.message, cid: outcome.cid))
                    }
                }
            case .refused(let code, let message):
                refused.append(PushForm.Refused(itemIndex: index, code: code, message: message))
            }
        }
        refused.sort { $0.itemIndex < $1.itemIndex }
        guard !outcomes.isEmpty else {
            if form.kind == .single, let only = refused.first { return .getui(only.code, only.message) }
            return PushAnswer.nothingAccepted(refused)
        }
        let data = outcomes.map { ($0.task.text, statuses($0.found)) }
        let longwire: JSONObject = [
            "durability": durability.name, "messages": outcomes.flatMap { $0.found.map(PushAnswer.Described.init) },
        ]
        return .success(
            form.kind == .batch(isAsync: true) ? nil : JSONObject(data),
            longwire: longwire + PushAnswer.members(refused) + form.notes.members)
    }

    package static func unknownAlias(_ alias: String) -> AliasResult {
        .refused(code: .parameter, message: GetuiFault.targetUser.message)
    }
    package static let conflictResult = AliasResult.refused(
        code: .parameter, message: "request_id cannot be repeat., it was used with another body")
    package static func overQuotaResult(_ refusal: QuotaRefusal) -> AliasResult {
        .refused(code: .appQuota, message: "\(refusal.reason); nothing was accepted")
    }
    package static let busyResult = AliasResult.refused(
        code: .busy, message: "the gateway is busy, nothing was accepted, retry")

    // MARK: One message

    /// Returns the answer to `task/detail`: the steps of a message's trace, oldest first.
    package static func detail(_ trace: MessageTrace?, _ query: DetailQuery) -> APIResponse {
        guard let trace, trace.app == query.device.app else {
            return .getui(.noDetail, "the message's life is not known (it is kept for a day)")
        }
        let steps = trace.steps.map { step -> JSONObject in
            let event = step.detail.isEmpty ? "\(step.event)" : "\(step.event): \(step.detail)"
            return ["time": dateTime(step.time), "event": event]
        }
        let longwire: JSONObject = [
            "msgId": trace.message.description, "state": trace.finalState.map { "\($0)" } ?? "pending",
            "reason": trace.finalReason.unlessEmpty, "offline": trace.isOffline,
            "customCallback": trace.customCallback.unlessEmpty,
        ]
        // The first key is Getui's misspelling.
        return .success(["deatil": steps, "detail": steps] as JSONObject, longwire: longwire)
    }
}

extension PublishOutcome {
    /// Whether the device was stored until the task's time, so that there is no message yet.
    fileprivate var isParked: Bool { code == .accepted && message.isNone }
}

extension PublishOutcome.Code {
    /// Whether nothing was accepted and a retry may succeed.
    package var isRetryable: Bool { self == .busy || self == .storeFailed || self == .requestPending }
}
