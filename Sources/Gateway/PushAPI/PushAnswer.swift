// The push listener's answers: Getui's envelope, with additional Longwire members.

package import Delivery
internal import JSON
package import Wire

/// The durability of an accepted message, which every answer contains.
package enum Durability: Sendable {
    /// Synced to disk before the answer.
    case fsync
    /// Written to the operating system before the answer: survives a crash of the process, but not of the machine.
    case os

    var name: StaticString {
        switch self {
        case .fsync: "fsync"
        case .os: "os"
        }
    }
}

package enum PushAnswer {
    /// Returns the answer to a push after all outcomes are known; `outcomes` has one entry for each message of the action, in
    /// order.
    package static func render(outcomes: [PublishOutcome], form: PushForm, durability: Durability) -> APIResponse {
        if form.kind == .single, let outcome = outcomes.first, let fault = fault(of: outcome) { return fault.response }
        // If the request id was used with another body, the push fails, even if the alias has got a new device since.
        if form.kind == .alias, let clash = outcomes.first(where: { $0.code == .requestConflict }),
            let fault = fault(of: clash)
        {
            return fault.response
        }
        var reached = outcomes.filter { fault(of: $0) == nil }
        if form.kind == .alias { reached.sort { $0.task < $1.task } }
        var refused = form.refused
        if reached.count < outcomes.count || !refused.isEmpty {
            refused += refusals(outcomes, parsedOutside: form.refused)
            refused.sort { $0.itemIndex < $1.itemIndex }
        }
        guard !reached.isEmpty else { return nothingAccepted(refused) }

        var writer = JSONWriter(capacity: 192 + 384 * outcomes.count)
        writer.beginObject()
        writer.member("code", GetuiCode.ok.rawValue)
        writer.member("msg", "success" as StaticString)
        if form.kind != .batch(isAsync: true) {
            writer.key("data")
            writer.beginObject()
            // Devices of an alias share a task, so the next outcome may belong to the open object.
            for (place, outcome) in reached.enumerated() {
                if place == 0 || reached[place - 1].task != outcome.task {
                    writer.key(text: outcome.task.text)
                    writer.beginObject()
                }
                writer.member(text: outcome.cid.description, statusWord(outcome))
                if place + 1 == reached.count || reached[place + 1].task != outcome.task { writer.endObject() }
            }
            writer.endObject()
        }
        writer.key("longwire")
        writer.beginObject()
        writer.member("durability", durability.name)
        writer.array("messages") { writer in
            for outcome in reached { Described(outcome).json(into: &writer) }
        }
        if !refused.isEmpty { writer.members(members(refused)) }
        if form.notes != RequestNotes() { writer.members(form.notes.members) }
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// Returns the answer to a batch without accepted items: the first refusal, or a retryable one if there is any.
    static func nothingAccepted(_ refused: [PushForm.Refused]) -> APIResponse { refusal(refused) }

    /// Returns the refusal of a call, with its refused items.
    static func refusal(_ refused: [PushForm.Refused], notes: RequestNotes = RequestNotes()) -> APIResponse {
        let speaker = refused.first { $0.code == .busy } ?? refused.first
        let code = speaker?.code ?? .parameter
        let longwire: JSONObject = ["refused": items(refused)] + notes.members
        return .object(
            status: code.httpStatus,
            .envelope(code, speaker?.message ?? "msg_list can not be empty") + ["longwire": longwire])
    }

    /// Returns the outcomes that are refusals, with the indices of their items.
    private static func refusals(
        _ outcomes: [PublishOutcome], parsedOutside: [PushForm.Refused]
    ) -> [PushForm.Refused] {
        // The outcomes are in the order of the items that were parsed without a refusal, so each belongs to the next such item.
        let taken = Set(parsedOutside.map(\.itemIndex))
        var itemIndex = 0
        var refused: [PushForm.Refused] = []
        for outcome in outcomes {
            while taken.contains(itemIndex) { itemIndex += 1 }
            if let fault = fault(of: outcome) {
                refused.append(PushForm.Refused(itemIndex: itemIndex, code: fault.code, message: fault.message))
            }
            itemIndex += 1
        }
        return refused
    }

    static func members(_ refused: [PushForm.Refused]) -> JSONObject {
        ["refused": items(refused).unlessEmpty]
    }

    private static func items(_ refused: [PushForm.Refused]) -> [JSONObject] {
        refused.map { item in
            ["index": item.itemIndex, "cid": item.cid?.description] + .envelope(item.code, item.message)
        }
    }

    /// One message's part of an answer, written without an allocation for each member.
    struct Described: JSONWritable {
        private let outcome: PublishOutcome

        init(_ outcome: PublishOutcome) { self.outcome = outcome }

        func json(into writer: inout JSONWriter) {
            writer.beginObject()
            writer.member("cid", outcome.cid.description)
            writer.member("taskId", outcome.task.text)
            if outcome.code == .ignored {
                writer.member("channel", "ignored" as StaticString)
            } else {
                writer.member("msgId", outcome.message.description)
                writer.member("ttl", outcome.timeToLive)
                let channel: StaticString = outcome.endedAs != nil ? "none" : outcome.isLive ? "live" : "queued"
                writer.member("channel", channel)
                if let state = outcome.endedAs { writer.member("state", state.name) }
                writer.member("fallback", outcome.fallback.name)
                if let vendor = outcome.vendor { writer.member("vendor", vendor.name) }
                if outcome.fallback == .none { writer.member("fallbackReason", outcome.fallbackReason.name) }
                if outcome.isRepeat { writer.member("repeat", true) }
            }
            writer.endObject()
        }
    }

    static func statusWord(_ outcome: PublishOutcome) -> StaticString {
        // A message that has already ended is not queued.
        if outcome.code == .ignored || outcome.endedAs != nil { return "successed_ignore" }
        return outcome.isLive ? "successed_online" : "successed_offline"
    }

    /// Returns the fault of a failed publish; `nil` if it was accepted or deliberately ignored.
    static func fault(of outcome: PublishOutcome) -> GetuiFault? {
        switch outcome.code {
        case .accepted, .ignored: nil
        case .unknownDevice: .targetUser
        case .queueFull: GetuiFault(code: .queueFull, message: "the queue of cid \(outcome.cid) is full")
        case .noToken where outcome.fallbackReason == .noContent:
            .invalid("strategy", "2 and 4 need something in push_channel to send")
        case .noToken:
            .invalid(
                "strategy",
                "2 and 4 need a usable device token of the content's platform, and cid \(outcome.cid) has none")
        case .stopped: .invalid("taskid", "the task was stopped")
        case .tooLarge: .size("push_message", "with push_channel it does not fit a row of the store")
        case .requestConflict: .parameter("request_id cannot be repeat.", "it was used with another body")
        case .requestPending:
            GetuiFault(code: .busy, message: "the same request is under way, repeat it to get its answer")
        case .busy: GetuiFault(code: .busy, message: "the gateway is busy, nothing was accepted, retry")
        case .storeFailed: GetuiFault(code: .busy, message: "the store cannot be read now, nothing was accepted, retry")
        }
    }
}

extension PublishOutcome.Fallback {
    var name: StaticString {
        switch self {
        case .none: "none"
        case .armed: "armed"
        case .due: "due"
        }
    }
}

extension PublishOutcome.FallbackReason {
    /// The reason for the missing fallback; empty if there is a fallback.
    package var name: StaticString {
        switch self {
        case .applies: ""
        case .noToken: "noToken"
        case .noContent: "noContent"
        case .strategy: "strategy"
        case .timeToLive: "ttl"
        case .pushModeOff: "pushModeOff"
        }
    }
}

package enum StatusAnswer {
    /// Returns the answer to `user/status`; unknown devices are not in `data` but listed beside it.
    package static func render(_ query: StatusQuery, statuses: [DeviceID: DeviceStatus]) -> APIResponse {
        var unknown = query.unknown
        var data: JSONObject = [:]
        for device in query.devices {
            guard let status = statuses[device.cid], status.app == device.app else {
                unknown.append(device.cid.description)
                continue
            }
            let members: JSONObject = [
                "last_login_time": String(status.lastLoginAt), "status": status.isReachable ? "online" : "offline",
            ]
            data.add(device.cid.description, members)
        }
        return .success(data, longwire: ["unknown": unknown.unlessEmpty])
    }
}
