// Reports in Getui's formats, with all final states as additional members.

package import Quotas
package import Delivery
internal import JSON
package import Wire

package enum ReportAnswer {
    /// Returns the answer to `report/push/task`; unknown tasks are not in `data` but listed beside it.
    ///
    /// A task without totals is unknown.
    package static func tasks(_ found: [(TaskID, TaskTotals?)], _ query: TaskReportQuery) -> APIResponse {
        let known = found.compactMap { task, totals in totals.map { (task.text, $0) } }
        let unknown = query.unknown + found.filter { $0.1 == nil }.map(\.0.text)
        let data = known.map { task, totals -> (String, JSONObject) in
            guard !query.isDetailed else {
                return (task, channels(totals, apple: "apn") + ["failed_detail": failures(totals)])
            }
            let actions = totals.actions.sorted { $0.key < $1.key }.filter { query.asks(for: $0.key) }
            let counts = JSONObject(actions.map { (String($0.key), $0.value) })
            return (task, channels(totals, apple: "ios") + ["actionCntMap": counts])
        }
        return .success(
            JSONObject(data),
            longwire: [
                "tasks": JSONObject(known.map { ($0, states($1)) }), "unknown": unknown.unlessEmpty,
                "unknownActions": query.unknownActions.unlessEmpty,
            ] + query.notes.members)
    }

    /// Returns the answer to `report/push/task_group`.
    package static func group(_ totals: TaskTotals, tasks: Int, _ query: GroupReportQuery) -> APIResponse {
        one(query.group, totals, tasks: tasks, notes: query.notes)
    }

    /// Returns the answers to `report/push/date` and `report/user/date`.
    package static func day(_ totals: DayTotals, online: Int, _ query: DayReportQuery) -> APIResponse {
        // As for an unknown task, the day is listed beside `data` instead of being reported as zeros.
        guard query.isKept else { return .success(JSONObject(), longwire: ["unknown": [query.date]]) }
        guard query.isAboutUsers else { return one(query.date, totals.messages, tasks: nil) }
        let counts: JSONObject = [
            "accumulative_num": totals.accumulated, "register_num": totals.registered, "active_num": totals.active,
            "online_num": online,
        ]
        return .success([query.date: counts] as JSONObject)
    }

    /// Returns the answer to `report/online_user`.
    package static func online(_ points: [(time: GatewayTime, count: Int)]) -> APIResponse {
        .success(["online_statics": JSONObject(points.map { (String($0.time), $0.count) })] as JSONObject)
    }

    package static let quotaKinds: [RateKind] = [.broadcast, .tagBroadcast, .list]

    /// Returns the answer to `report/push/count`: the remaining quotas of the day.
    package static func quota(_ limits: RateLimits, used: (RateKind) -> Int) -> APIResponse {
        func members(_ kind: RateKind) -> JSONObject {
            let total = limits.perDay(kind)
            // All broadcasts share one quota.
            let spent = used(kind == .tagBroadcast ? .broadcast : kind)
            let own = kind == .broadcast ? spent - used(.tagBroadcast) : used(kind)
            return ["total_num": total, "remain_num": max(0, total - spent), "limit": total > 0, "push_num": own]
        }
        let all: JSONObject = [
            "app": members(.broadcast), "app_with_tag": members(.tagBroadcast), "list": members(.list),
        ]
        return .success(["gt": all] as JSONObject)
    }

    private static func one(
        _ name: String, _ totals: TaskTotals, tasks: Int?, notes: RequestNotes = RequestNotes()
    ) -> APIResponse {
        .success(
            [name: channels(totals, apple: "ios")] as JSONObject,
            longwire: ["tasks": tasks, "states": states(totals)] + notes.members)
    }

    private static func channels(_ totals: TaskTotals, apple: String) -> JSONObject {
        func members(_ channel: TaskTotals.Channel) -> JSONObject {
            [
                "target_num": channel.sent, "receive_num": channel.received, "display_num": channel.shown,
                "click_num": channel.clicked,
            ]
        }
        let named: JSONObject = [
            "total": ["msg_num": totals.accepted] + members(totals.all), "gt": members(totals.live),
        ]
        var android = TaskTotals.Channel()
        for (vendor, figures) in totals.byVendor where vendor.platform == .android { android.add(figures) }
        let others = totals.byVendor.filter { $0.key != .apns }.sorted { $0.key.rawValue < $1.key.rawValue }
        return named + JSONObject([(apple, members(totals.byVendor[.apns] ?? TaskTotals.Channel()))])
            + ["android": android == TaskTotals.Channel() ? nil : members(android)]
            + JSONObject(others.map { ("\($0.key.getuiName)", members($0.value)) })
    }

    /// Returns the failures by stage, then channel, then Getui's class.
    private static func failures(_ totals: TaskTotals) -> JSONObject {
        let sorted = FailureClass.sort(totals)
        func members(_ stage: FailureClass.Stage, isVendor: Bool) -> JSONObject? {
            let found = sorted.filter { $0.key.stage == stage && $0.key.isVendor == isVendor }
            guard !found.isEmpty else { return nil }
            let classes = found.sorted { $0.key < $1.key }.map { (String($0.key.code), $0.value) }
            return JSONObject(classes) + ["total": found.values.reduce(0, +)]
        }
        var stages: JSONObject = [:]
        for stage in FailureClass.Stage.allCases {
            let channels: JSONObject = [
                "gt": members(stage, isVendor: false), "apn": members(stage, isVendor: true),
            ]
            stages.add(stage.rawValue, channels.unlessEmpty)
        }
        return stages
    }

    private static func states(_ totals: TaskTotals) -> JSONObject {
        let failures = totals.failures.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return ["accepted": totals.accepted, "pending": totals.pending]
            + JSONObject(FinalState.allCases.map { ("\($0)", totals[$0]) })
            + ["failures": JSONObject(failures).unlessEmpty]
    }
}
