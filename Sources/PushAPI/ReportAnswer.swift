// Reports in Getui's shapes; beside them every final state by its name.

package import Campaigns
package import Delivery
internal import JSON
package import Wire

package enum ReportAnswer {
    /// The answer to `report/push/task`: tasks that are not known are absent from `data` and named beside it.
    ///
    /// Without totals a task is not known.
    package static func tasks(_ found: [(TaskID, TaskTotals?)], _ query: TaskReportQuery) -> APIResponse {
        var unknown = query.unknown
        var writer = JSONWriter(capacity: 256 + 768 * found.count)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        for (task, totals) in found {
            guard let totals else {
                unknown.append(task.text)
                continue
            }
            writer.key(task.text)
            writer.beginObject()
            if query.isDetailed {
                writeChannels(totals, vendorName: "apn", to: &writer)
                writeFailures(totals, to: &writer)
            } else {
                writeChannels(totals, vendorName: "ios", to: &writer)
                writer.key("actionCntMap")
                writer.beginObject()
                for (action, count) in totals.actions.sorted(by: { $0.key < $1.key })
                where query.asks(for: action) {
                    writer.key(String(action))
                    writer.integer(Int64(count))
                }
                writer.endObject()
            }
            writer.endObject()
        }
        writer.endObject()
        writer.key("longwire")
        writer.beginObject()
        writer.key("tasks")
        writer.beginObject()
        for (task, totals) in found {
            guard let totals else { continue }
            writer.key(task.text)
            writeStates(totals, to: &writer)
        }
        writer.endObject()
        if !unknown.isEmpty {
            writer.key("unknown")
            writer.beginArray()
            for text in unknown { writer.string(text) }
            writer.endArray()
        }
        if !query.unknownActions.isEmpty {
            writer.key("unknownActions")
            writer.beginArray()
            for text in query.unknownActions { writer.string(text) }
            writer.endArray()
        }
        query.notes.write(to: &writer)
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// The answer to `report/push/task_group`.
    package static func group(_ totals: TaskTotals, tasks: Int, _ query: GroupReportQuery) -> APIResponse {
        one(query.group, totals, tasks: tasks, notes: query.notes)
    }

    /// The answers to `report/push/date` and `report/user/date`.
    package static func day(_ totals: DayTotals, online: Int, _ query: DayReportQuery) -> APIResponse {
        guard query.isKept else { return unknownDay(query.date) }
        guard query.isAboutUsers else { return one(query.date, totals.messages, tasks: nil) }
        var writer = JSONWriter(capacity: 192)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        writer.key(query.date)
        writer.beginObject()
        for (name, count) in [
            ("accumulative_num", totals.accumulated), ("register_num", totals.registered),
            ("active_num", totals.active), ("online_num", online),
        ] as [(StaticString, Int)] {
            writer.key(name)
            writer.integer(Int64(count))
        }
        writer.endObject()
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// The answer to `report/online_user`.
    package static func online(_ points: [(time: GatewayTime, count: Int)]) -> APIResponse {
        var writer = JSONWriter(capacity: 64 + 32 * points.count)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        writer.key("online_statics")
        writer.beginObject()
        for point in points {
            writer.key(String(point.time))
            writer.integer(Int64(point.count))
        }
        writer.endObject()
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// What `quota` asks for.
    package static let quotaKinds: [RateKind] = [.broadcast, .tagBroadcast, .list]

    /// The answer to `report/push/count`: what is left of today's quotas.
    package static func quota(_ limits: RateLimits, used: (RateKind) -> Int) -> APIResponse {
        var writer = JSONWriter(capacity: 256)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        writer.key("gt")
        writer.beginObject()
        for (name, kind) in [("app", .broadcast), ("app_with_tag", .tagBroadcast), ("list", .list)]
            as [(StaticString, RateKind)]
        {
            let total = limits.perDay(kind)
            // All broadcasts share one quota.
            let spent = used(kind == .tagBroadcast ? .broadcast : kind)
            writer.key(name)
            writer.beginObject()
            writer.key("total_num")
            writer.integer(Int64(total))
            writer.key("remain_num")
            writer.integer(Int64(max(0, total - spent)))
            writer.key("limit")
            writer.bool(total > 0)
            writer.key("push_num")
            writer.integer(Int64(kind == .broadcast ? spent - used(.tagBroadcast) : used(kind)))
            writer.endObject()
        }
        writer.endObject()
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    /// As for a task that nobody knows: no numbers rather than zeros, and the name beside them.
    private static func unknownDay(_ date: String) -> APIResponse {
        var writer = JSONWriter(capacity: 96)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        writer.endObject()
        writer.key("longwire")
        writer.beginObject()
        writer.key("unknown")
        writer.beginArray()
        writer.string(date)
        writer.endArray()
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    private static func one(
        _ name: String, _ totals: TaskTotals, tasks: Int?, notes: RequestNotes = RequestNotes()
    ) -> APIResponse {
        var writer = JSONWriter(capacity: 768)
        writer.beginObject()
        writer.envelope(.ok, "success")
        writer.key("data")
        writer.beginObject()
        writer.key(name)
        writer.beginObject()
        writeChannels(totals, vendorName: "ios", to: &writer)
        writer.endObject()
        writer.endObject()
        writer.key("longwire")
        writer.beginObject()
        if let tasks {
            writer.key("tasks")
            writer.integer(Int64(tasks))
        }
        writer.key("states")
        writeStates(totals, to: &writer)
        notes.write(to: &writer)
        writer.endObject()
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    private static func writeChannels(
        _ totals: TaskTotals, vendorName: StaticString, to writer: inout JSONWriter
    ) {
        for (name, channel, count) in [
            ("total", totals.all, totals.accepted), ("gt", totals.live, nil), (vendorName, totals.vendor, nil),
        ] as [(StaticString, TaskTotals.Channel, Int?)] {
            writer.key(name)
            writer.beginObject()
            if let count {
                writer.key("msg_num")
                writer.integer(Int64(count))
            }
            writer.key("target_num")
            writer.integer(Int64(channel.sent))
            writer.key("receive_num")
            writer.integer(Int64(channel.received))
            writer.key("display_num")
            writer.integer(Int64(channel.shown))
            writer.key("click_num")
            writer.integer(Int64(channel.clicked))
            writer.endObject()
        }
    }

    /// Stage, then channel, then Getui's class with its numbers.
    private static func writeFailures(_ totals: TaskTotals, to writer: inout JSONWriter) {
        let sorted = FailureClass.sort(totals)
        writer.key("failed_detail")
        writer.beginObject()
        for stage in FailureClass.Stage.allCases {
            let ofStage = sorted.filter { $0.key.stage == stage }
            guard !ofStage.isEmpty else { continue }
            writer.key(stage.rawValue)
            writer.beginObject()
            for isVendor in [false, true] {
                let ofChannel = ofStage.filter { $0.key.isVendor == isVendor }
                guard !ofChannel.isEmpty else { continue }
                writer.key(isVendor ? "apn" as StaticString : "gt")
                writer.beginObject()
                for (failure, count) in ofChannel.sorted(by: { $0.key < $1.key }) {
                    writer.key(String(failure.code))
                    writer.integer(Int64(count))
                }
                writer.key("total")
                writer.integer(Int64(ofChannel.values.reduce(0, +)))
                writer.endObject()
            }
            writer.endObject()
        }
        writer.endObject()
    }

    private static func writeStates(_ totals: TaskTotals, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("accepted")
        writer.integer(Int64(totals.accepted))
        writer.key("pending")
        writer.integer(Int64(totals.pending))
        for state in FinalState.allCases {
            writer.key("\(state)" as String)
            writer.integer(Int64(totals[state]))
        }
        if !totals.failures.isEmpty {
            writer.key("failures")
            writer.beginObject()
            for (reason, count) in totals.failures.sorted(by: { $0.key < $1.key }) {
                writer.key(reason)
                writer.integer(Int64(count))
            }
            writer.endObject()
        }
        writer.endObject()
    }
}
