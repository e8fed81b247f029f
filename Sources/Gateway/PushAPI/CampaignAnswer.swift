// Answers about tasks: Getui's envelope and shapes, and beside them what Longwire knows more.

package import Delivery
internal import Quotas
internal import JSON
package import Wire

package enum CampaignAnswer {
    // MARK: Making and moving tasks

    /// The answer to `push/list/message`.
    package static func created(
        _ answer: TaskAnswer, _ task: NewTask, durability: Durability
    ) -> APIResponse {
        switch answer {
        case .created(let id, let isRepeat):
            return .success(capacity: 256) { writer in
                writer.object("data") { $0.member("taskid", id.text) }
                writer.object("longwire") { writer in
                    writer.member("durability", durability.name)
                    writer.member("ttl", task.record.content.timeToLive)
                    writer.member("validUntil", task.record.validUntil)
                    if task.record.scheduleAt > 0 { writer.member("scheduledFor", task.record.scheduleAt) }
                    writer.member("fallback", task.fallback == .applies ? "perDevice" : "none")
                    if task.fallback != .applies { writer.member("fallbackReason", task.fallback.name) }
                    if isRepeat { writer.member("repeat", true) }
                    task.notes.write(to: &writer)
                }
            }
        case .full:
            return APIResponse.getui(
                .tooManyBroadcasts,
                "the app has as many live broadcasts as it may: stop one, or wait until one has expired")
        case .conflict:
            return GetuiFault.parameter("request_id cannot be repeat.", "it was used with another body").response
        case .tooLarge:
            return GetuiFault.size("push_message", "with its audience it does not fit a row of the store").response
        default: return .busy
        }
    }

    /// Why a stored task takes no targets now; `nil`: it does.
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

    /// The answer to a task's stop: how many of its messages were still to be delivered.
    package static func stopped(_ count: Int) -> APIResponse {
        .success(capacity: 96) { writer in
            writer.object("longwire") { $0.member("revoked", count) }
        }
    }

    /// The answer to the deletion of a schedule.
    package static func cancelled(_ answer: TaskAnswer) -> APIResponse {
        switch answer {
        case .record: .getui(.ok)
        case .refused(let state):
            state == .scheduled || state == .running || state == .open
                ? .getui(.alreadyRan, "the timed task has run, or runs within a minute")
                : .getui(.badSchedule, "the task has no schedule any more")
        case .unknown: .getui(.badSchedule, "no such task")
        default: .busy
        }
    }

    /// The answer to `task/schedule`.
    package static func schedule(_ answer: TaskAnswer) -> APIResponse {
        guard case .record(let record) = answer else {
            if case .unknown = answer { return .getui(.badSchedule, "no such task") }
            return .busy
        }
        guard record.scheduleAt > 0 else { return .getui(.badSchedule, "the task is not a timed one") }
        let words = ScheduleRules.words(record)
        return .success(capacity: 256) { writer in
            writer.object("data") { writer in
                writer.object(text: record.id.text) { writer in
                    writer.member("create_time", String(record.createdAt))
                    writer.member("push_time", String(record.scheduleAt))
                    writer.key("transmission_content")
                    record.content.payload.withUnsafeBytes { writer.string(bytes: $0) }
                    if let status = words.status { writer.member("status", status) }
                    writer.member("send_result", words.sendResult)
                }
            }
        }
    }

    // MARK: Lists

    /// A list call's devices are kept until the task's time: `cids` exist and wait, `unknown` do not exist.
    ///
    /// Getui has no word for waiting; `successed_offline` is what its SDKs can read of "taken, not sent yet".
    package static func parked(
        _ call: ListCall, _ record: TaskRecord, cids: [DeviceID], unknown: [DeviceID], aliases: [ResolvedAlias]?
    ) -> APIResponse {
        .success(capacity: 192 + 64 * cids.count) { writer in
            if !call.isAsync {
                writer.object("data") { writer in
                    writer.object(text: record.id.text) { writer in
                        if let aliases {
                            let waiting = Set(cids)
                            for alias in aliases where alias.devices.contains(where: waiting.contains) {
                                writer.object(text: alias.alias) { writer in
                                    for cid in alias.devices where waiting.contains(cid) {
                                        waitingEntry(cid, to: &writer)
                                    }
                                }
                            }
                        } else {
                            for cid in cids { waitingEntry(cid, to: &writer) }
                        }
                    }
                }
            }
            writer.object("longwire") { writer in
                writer.member("scheduledFor", record.scheduleAt)
                writer.member("targets", cids.count)
                write(call.unknown + unknown.map(\.description), as: "unknown", to: &writer)
                write(call.refused, [], to: &writer)
                call.notes.write(to: &writer)
            }
        }
    }

    /// The answer to a list call, whose devices have all been decided on.
    ///
    /// `aliases` is given when the caller wants to know which alias stands for which device.
    package static func list(
        _ outcomes: [PublishOutcome], _ call: ListCall, record: TaskRecord, aliases: [ResolvedAlias]?,
        durability: Durability
    ) -> APIResponse {
        let reached = outcomes.filter { PushAnswer.fault(of: $0) == nil }
        // Nothing was taken, and waiting could help: the caller must get that answer rather than an empty success.
        if reached.isEmpty, let busy = outcomes.first(where: { $0.code.isRetryable }) {
            return PushAnswer.fault(of: busy)?.response ?? .busy
        }
        if reached.isEmpty, outcomes.contains(where: { $0.code == .stopped }) {
            return GetuiFault.invalid("taskid", "the task was stopped").response
        }
        var writer = JSONWriter(capacity: 384 + 64 * outcomes.count)
        writer.beginObject()
        writer.envelope(.ok, "success")
        if !call.isAsync {
            writer.object("data") { writer in
                writer.object(text: record.id.text) { writer in
                    if let aliases {
                        let byDevice = Dictionary(reached.map { ($0.cid, $0) }, uniquingKeysWith: { first, _ in first })
                        for alias in aliases {
                            let found = alias.devices.compactMap { byDevice[$0] }
                            guard !found.isEmpty else { continue }
                            writer.object(text: alias.alias) { writer in
                                for outcome in found { statusEntry(outcome, to: &writer) }
                            }
                        }
                    } else {
                        for outcome in reached { statusEntry(outcome, to: &writer) }
                    }
                }
            }
        }
        return concluded(
            outcomes, unknown: call.unknown, refused: call.refused, notes: call.notes, durability, &writer)
    }

    /// The answer to `push/single/cid_by_tag`: those whose tags were as asked.
    package static func byTag(
        _ task: TaskID, _ outcomes: [PublishOutcome], refused: [RefusedTarget] = [],
        notes: RequestNotes = RequestNotes(), durability: Durability
    ) -> APIResponse {
        let reached = outcomes.filter { PushAnswer.fault(of: $0) == nil }
        if reached.isEmpty, let first = outcomes.first, let fault = PushAnswer.fault(of: first) {
            return fault.response
        }
        var writer = JSONWriter(capacity: 256 + 64 * outcomes.count)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.object("data") { writer in
            writer.object(text: task.text) { writer in
                for outcome in reached { statusEntry(outcome, to: &writer) }
            }
        }
        return concluded(outcomes, unknown: [], refused: refused, notes: notes, durability, &writer)
    }

    /// Ends an answer with what Longwire says of all of it.
    private static func concluded(
        _ outcomes: [PublishOutcome], unknown: [String], refused: [RefusedTarget], notes: RequestNotes,
        _ durability: Durability, _ writer: inout JSONWriter
    ) -> APIResponse {
        writer.object("longwire") { writer in
            writer.member("durability", durability.name)
            summarize(outcomes, unknown: unknown, refused: refused, to: &writer)
            notes.write(to: &writer)
        }
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    private static func waitingEntry(_ cid: DeviceID, to writer: inout JSONWriter) {
        writer.key(hex: cid.high, cid.low)
        writer.string("successed_offline")
    }

    private static func statusEntry(_ outcome: PublishOutcome, to writer: inout JSONWriter) {
        writer.key(hex: outcome.cid.high, outcome.cid.low)
        writer.string(PushAnswer.statusWord(outcome))
    }

    /// A list's devices by what happened: numbers, and by name only where something is missing.
    private static func summarize(
        _ outcomes: [PublishOutcome], unknown: [String], refused targets: [RefusedTarget], to writer: inout JSONWriter
    ) {
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
        writer.member("live", live)
        writer.member("queued", queued)
        if ended > 0 { writer.member("ended", ended) }
        if ignored > 0 { writer.member("ignoredDevices", ignored) }
        if repeated > 0 { writer.member("repeated", repeated) }
        if !noFallback.isEmpty {
            writer.object("noFallback") { writer in
                for (reason, cids) in noFallback.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
                    writer.key(reason.name)
                    // The same reason for everybody is in the message, not in the devices.
                    if cids.count == live + queued + ended, cids.count > 16 {
                        writer.string("all")
                        continue
                    }
                    writer.array { writer in
                        for cid in cids { writer.string(cid.description) }
                    }
                }
            }
        }
        write(unknown, as: "unknown", to: &writer)
        write(targets, refused, to: &writer)
    }

    /// Writes the members of an audience that do not get the message: unreadable ones by their places, and devices.
    private static func write(
        _ targets: [RefusedTarget], _ devices: [(cid: DeviceID, fault: GetuiFault)], to writer: inout JSONWriter
    ) {
        guard !targets.isEmpty || !devices.isEmpty else { return }
        writer.array("refused") { writer in
            for target in targets {
                writer.object { writer in
                    writer.member("index", target.index)
                    if !target.name.isEmpty { writer.member(text: target.kind.rawValue, target.name) }
                    writer.envelope(target.fault.code, target.fault.message)
                }
            }
            for (cid, fault) in devices {
                writer.object { writer in
                    writer.member("cid", cid.description)
                    writer.envelope(fault.code, fault.message)
                }
            }
        }
    }

    private static func write(_ texts: [String], as name: StaticString, to writer: inout JSONWriter) {
        guard !texts.isEmpty else { return }
        writer.strings(name, texts)
    }

    // MARK: Aliases

    /// What became of one item of an alias push.
    package enum AliasResult: Sendable {
        case reached(TaskID, [PublishOutcome])
        case refused(code: GetuiCode, message: String)
    }

    /// The answer to `push/single/alias` and to its batch.
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
                    // Other devices of the alias have it; the caller must know those that have not.
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
        return .success(capacity: 512) { writer in
            if form.kind != .batch(isAsync: true) {
                writer.object("data") { writer in
                    for (task, found) in outcomes {
                        writer.object(text: task.text) { writer in
                            for outcome in found { statusEntry(outcome, to: &writer) }
                        }
                    }
                }
            }
            writer.object("longwire") { writer in
                writer.member("durability", durability.name)
                writer.array("messages") { writer in
                    for (_, found) in outcomes {
                        for outcome in found { PushAnswer.describe(outcome, to: &writer) }
                    }
                }
                if !refused.isEmpty { PushAnswer.write(refused, to: &writer) }
                form.notes.write(to: &writer)
            }
        }
    }

    package static func unknownAlias(_ alias: String) -> AliasResult {
        .refused(code: .parameter, message: GetuiFault.targetUser.message)
    }
    package static let conflictResult = AliasResult.refused(
        code: .parameter, message: "request_id cannot be repeat., it was used with another body")
    package static let busyResult = AliasResult.refused(
        code: .busy, message: "the gateway is busy, nothing was accepted, retry")

    // MARK: One message

    /// The answer to `task/detail`: the steps of a message's trace, oldest first.
    package static func detail(_ trace: MessageTrace?, _ query: DetailQuery) -> APIResponse {
        guard let trace, trace.app == query.device.app else {
            return .getui(.noDetail, "the message's life is not known (it is kept for a day)")
        }
        return .success(capacity: 512) { writer in
            writer.object("data") { writer in
                // The first is how Getui spells it.
                for name in ["deatil", "detail"] as [StaticString] {
                    writer.objects(name, trace.steps) { writer, step in
                        writer.member("time", dateTime(step.time))
                        writer.member("event", step.detail.isEmpty ? "\(step.event)" : "\(step.event): \(step.detail)")
                    }
                }
            }
            writer.object("longwire") { writer in
                writer.member("msgId", trace.message.description)
                writer.member("state", trace.finalState.map { "\($0)" } ?? "pending")
                if !trace.finalReason.isEmpty { writer.member("reason", trace.finalReason) }
                writer.member("offline", trace.isOffline)
            }
        }
    }
}

extension PublishOutcome.Code {
    /// Nothing was accepted, and saying it again may help.
    package var isRetryable: Bool { self == .busy || self == .storeFailed || self == .requestPending }
}
