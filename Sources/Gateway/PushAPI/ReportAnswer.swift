// Reports in Getui's shapes; beside them every final state by its name.

package import Quotas
package import Delivery
internal import JSON
package import Wire

package enum ReportAnswer {
    /// The answer to `report/push/task`: tasks that are not known are absent from `data` and named beside it.
    ///
    /// Without totals a task is not known.
    package static func tasks(_ found: [(TaskID, TaskTotals?)], _ query: TaskReportQuery) -> APIResponse {
        var unknown = query.unknown
        return .success(capacity: 256 + 768 * found.count) { writer in
            writer.object("data") { writer in
                for (task, totals) in found {
                    guard let totals else {
                        unknown.append(task.text)
                        continue
                    }
                    writer.object(text: task.text) { writer in
                        if query.isDetailed {
                            writeChannels(totals, vendorName: "apn", to: &writer)
                            writeFailures(totals, to: &writer)
                        } else {
                            writeChannels(totals, vendorName: "ios", to: &writer)
                            writer.object("actionCntMap") { writer in
                                for (action, count) in totals.actions.sorted(by: { $0.key < $1.key })
                                where query.asks(for: action) {
                                    writer.member(text: String(action), count)
                                }
                            }
                        }
                    }
                }
            }
            writer.object("longwire") { writer in
                writer.object("tasks") { writer in
                    for (task, totals) in found {
                        guard let totals else { continue }
                        writer.key(text: task.text)
                        writeStates(totals, to: &writer)
                    }
                }
                if !unknown.isEmpty { writer.strings("unknown", unknown) }
                if !query.unknownActions.isEmpty { writer.strings("unknownActions", query.unknownActions) }
                query.notes.write(to: &writer)
            }
        }
    }

    /// The answer to `report/push/task_group`.
    package static func group(_ totals: TaskTotals, tasks: Int, _ query: GroupReportQuery) -> APIResponse {
        one(query.group, totals, tasks: tasks, notes: query.notes)
    }

    /// The answers to `report/push/date` and `report/user/date`.
    package static func day(_ totals: DayTotals, online: Int, _ query: DayReportQuery) -> APIResponse {
        guard query.isKept else { return unknownDay(query.date) }
        guard query.isAboutUsers else { return one(query.date, totals.messages, tasks: nil) }
        return .success(capacity: 192) { writer in
            writer.object("data") { writer in
                writer.object(text: query.date) { writer in
                    for (name, count) in [
                        ("accumulative_num", totals.accumulated), ("register_num", totals.registered),
                        ("active_num", totals.active), ("online_num", online),
                    ] as [(StaticString, Int)] {
                        writer.member(name, count)
                    }
                }
            }
        }
    }

    /// The answer to `report/online_user`.
    package static func online(_ points: [(time: GatewayTime, count: Int)]) -> APIResponse {
        .success(capacity: 64 + 32 * points.count) { writer in
            writer.object("data") { writer in
                writer.object("online_statics") { writer in
                    for point in points { writer.member(text: String(point.time), point.count) }
                }
            }
        }
    }

    /// What `quota` asks for.
    package static let quotaKinds: [RateKind] = [.broadcast, .tagBroadcast, .list]

    /// The answer to `report/push/count`: what is left of today's quotas.
    package static func quota(_ limits: RateLimits, used: (RateKind) -> Int) -> APIResponse {
        .success(capacity: 256) { writer in
            writer.object("data") { writer in
                writer.object("gt") { writer in
                    for (name, kind) in [("app", .broadcast), ("app_with_tag", .tagBroadcast), ("list", .list)]
                        as [(StaticString, RateKind)]
                    {
                        let total = limits.perDay(kind)
                        // All broadcasts share one quota.
                        let spent = used(kind == .tagBroadcast ? .broadcast : kind)
                        writer.object(name) { writer in
                            writer.member("total_num", total)
                            writer.member("remain_num", max(0, total - spent))
                            writer.member("limit", total > 0)
                            writer.member(
                                "push_num", Int64(kind == .broadcast ? spent - used(.tagBroadcast) : used(kind)))
                        }
                    }
                }
            }
        }
    }

    /// As for a task that nobody knows: no numbers rather than zeros, and the name beside them.
    private static func unknownDay(_ date: String) -> APIResponse {
        .success(capacity: 96) { writer in
            writer.object("data") { writer in
            }
            writer.object("longwire") { writer in
                writer.array("unknown") { $0.string(date) }
            }
        }
    }

    private static func one(
        _ name: String, _ totals: TaskTotals, tasks: Int?, notes: RequestNotes = RequestNotes()
    ) -> APIResponse {
        .success(capacity: 768) { writer in
            writer.object("data") { writer in
                writer.object(text: name) { writer in
                    writeChannels(totals, vendorName: "ios", to: &writer)
                }
            }
            writer.object("longwire") { writer in
                if let tasks { writer.member("tasks", tasks) }
                writer.key("states")
                writeStates(totals, to: &writer)
                notes.write(to: &writer)
            }
        }
    }

    private static func writeChannels(
        _ totals: TaskTotals, vendorName: StaticString, to writer: inout JSONWriter
    ) {
        for (name, channel, count) in [
            ("total", totals.all, totals.accepted), ("gt", totals.live, nil), (vendorName, totals.vendor, nil),
        ] as [(StaticString, TaskTotals.Channel, Int?)] {
            writer.object(name) { writer in
                if let count { writer.member("msg_num", count) }
                writer.member("target_num", channel.sent)
                writer.member("receive_num", channel.received)
                writer.member("display_num", channel.shown)
                writer.member("click_num", channel.clicked)
            }
        }
    }

    /// Stage, then channel, then Getui's class with its numbers.
    private static func writeFailures(_ totals: TaskTotals, to writer: inout JSONWriter) {
        let sorted = FailureClass.sort(totals)
        writer.object("failed_detail") { writer in
            for stage in FailureClass.Stage.allCases {
                let ofStage = sorted.filter { $0.key.stage == stage }
                guard !ofStage.isEmpty else { continue }
                writer.object(text: stage.rawValue) { writer in
                    for isVendor in [false, true] {
                        let ofChannel = ofStage.filter { $0.key.isVendor == isVendor }
                        guard !ofChannel.isEmpty else { continue }
                        writer.object(isVendor ? "apn" as StaticString : "gt") { writer in
                            for (failure, count) in ofChannel.sorted(by: { $0.key < $1.key }) {
                                writer.member(text: String(failure.code), count)
                            }
                            writer.member("total", ofChannel.values.reduce(0, +))
                        }
                    }
                }
            }
        }
    }

    private static func writeStates(_ totals: TaskTotals, to writer: inout JSONWriter) {
        writer.object { writer in
            writer.member("accepted", totals.accepted)
            writer.member("pending", totals.pending)
            for state in FinalState.allCases { writer.member(text: "\(state)", totals[state]) }
            if !totals.failures.isEmpty {
                writer.object("failures") { writer in
                    for (reason, count) in totals.failures.sorted(by: { $0.key < $1.key }) {
                        writer.member(text: reason, count)
                    }
                }
            }
        }
    }
}
