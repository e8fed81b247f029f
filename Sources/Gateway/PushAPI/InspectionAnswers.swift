// The admin listener's answers to what begins from a complaint.

package import Delivery
internal import JSON
package import Wire

package enum InspectionAnswers {
    package static let unknownDevice = AdminFault(.notFound, "no such device in this app").response
    package static let unknownTask = AdminFault(
        .notFound, "no such task in this app, or it is older than the gateway keeps it"
    ).response
    package static let unreadable = APIResponse.adminUnavailable("the rows for this cannot be read now, retry")

    /// A device's newest messages, newest first.
    package static func recent(
        _ recent: RecentMessages, of address: DeviceAddress, registry: AppRegistry
    ) -> APIResponse {
        .object(capacity: 256 + 1_024 * recent.traces.count) { writer in
            writer.member("appId", registry.appID(of: address.app))
            writer.member("cid", address.cid.description)
            writer.array("messages") { writer in
                for trace in recent.traces { AdminAnswer.write(trace, registry, to: &writer) }
            }
            write(recent.refusals, to: &writer)
            writer.member("more", recent.isCut)
        }
    }

    /// What a request id led to.
    package static func request(
        _ name: RequestName, singles: [PublishOutcome], tasks: [(name: String, task: TaskID)],
        refusals: [RefusedPublish]
    ) -> APIResponse {
        guard !singles.isEmpty || !tasks.isEmpty || !refusals.isEmpty else {
            let text =
                "no publish of the last day had this request id; one that was refused for its form, or before a restart, "
                + "is not kept"
            return AdminFault(.notFound, text).response
        }
        return .object(capacity: 512) { writer in
            writer.member("requestId", name.text)
            writer.objects("messages", singles) { writer, outcome in
                writer.member("msgId", outcome.message.description)
                writer.member("taskId", outcome.task.text)
                writer.member("cid", outcome.cid.description)
            }
            writer.objects("tasks", tasks) { writer, task in
                writer.member("taskId", task.task.text)
                writer.member("call", task.name)
            }
            write(refusals, to: &writer)
        }
    }

    private static func write(_ refusals: [RefusedPublish], to writer: inout JSONWriter) {
        writer.objects("refusals", refusals) { writer, refusal in
            writer.member("time", refusal.time)
            writer.member("reason", refusal.reason.name)
            writer.member("cid", refusal.cid.description)
            writer.member("taskId", refusal.task.text)
        }
    }

    /// A task of several messages: how many stand where.
    package static func task(
        _ task: TaskID, _ record: TaskRecord?, _ totals: TaskTotals, of app: AppKey, registry: AppRegistry
    ) -> APIResponse {
        guard record != nil || totals.accepted > 0 else { return unknownTask }
        return .object(capacity: 512) { writer in
            writer.member("taskId", task.text)
            writer.member("appId", registry.appID(of: app))
            if let record {
                writer.member("task", record.state.name)
                writer.member("createdAt", record.createdAt)
                if record.scheduleAt > 0 { writer.member("scheduledAt", record.scheduleAt) }
                writer.member("broadcast", record.broadcast != nil)
                if !record.group.isEmpty { writer.member("group", record.group) }
            }
            writer.member("accepted", totals.accepted)
            writer.member("pending", totals.pending)
            writer.object("states") { writer in
                for state in FinalState.allCases where totals[state] > 0 {
                    writer.member(state.name, totals[state])
                }
            }
            writer.object("failures") { writer in
                for (reason, count) in totals.failures.sorted(by: { $0.key < $1.key }) {
                    writer.member(text: reason, count)
                }
            }
        }
    }

    /// The devices of an alias.
    package static func alias(_ name: AliasName, _ devices: [DeviceID]) -> APIResponse {
        guard !devices.isEmpty else { return AdminFault(.notFound, "no device of this app has the alias").response }
        return .object(capacity: 64 + 40 * devices.count) { writer in
            writer.member("alias", name.text)
            write(devices.sorted { ($0.high, $0.low) < ($1.high, $1.low) }, to: &writer)
        }
    }

    /// A page of an app's devices, and where the next one begins.
    package static func devices(_ devices: [DeviceAddress], isLast: Bool) -> APIResponse {
        .object(capacity: 64 + 40 * devices.count) { writer in
            write(devices.map(\.cid), to: &writer)
            if !isLast, let last = devices.last { writer.member("next", last.cid.description) }
        }
    }

    private static func write(_ devices: [DeviceID], to writer: inout JSONWriter) {
        writer.strings("devices", devices.map { $0.description })
    }

    /// The due jobs, the longest due first, and how many there are.
    package static func jobs(_ overview: JobOverview, registry: AppRegistry) -> APIResponse {
        .object(capacity: 256 + 320 * overview.jobs.count) { writer in
            writer.objects("queues", overview.queues) { writer, queue in
                writer.member("appId", registry.appID(of: queue.app))
                writer.member("channel", queue.channel.name)
                writer.member("due", queue.dueCount)
                writer.member("held", queue.heldCount)
            }
            writer.objects("jobs", overview.jobs) { writer, job in
                writer.member("jobId", job.message.description)
                writer.member("appId", registry.appID(of: job.app))
                writer.member("cid", job.cid.description)
                writer.member("channel", job.channel.name)
                writer.member("acceptedAt", job.acceptedAt)
                writer.member("dueAt", job.dueAt)
                writer.member("expiresAt", job.expiresAt)
                writer.member("attempts", job.attempts)
                if !job.reason.isEmpty { writer.member("reason", job.reason) }
            }
        }
    }

    /// What was done to a device.
    package static func changed(_ change: DeviceChange, _ result: DeviceChangeResult) -> APIResponse {
        .object(capacity: 64) { writer in
            switch change {
            case .purge:
                writer.member("purged", result.count)
                writer.member("left", result.leftCount)
            case .replay:
                writer.member("due", result.count)
            case .disconnect:
                writer.member("disconnected", result.count > 0)
            }
        }
    }
}

extension RefusedPublish.Reason {
    /// The name in the admin API (docs/Errors.md, "Refused publishes").
    package var name: StaticString {
        switch self {
        case .queueFull: "queueFull"
        case .blacklisted: "blacklisted"
        case .inactive: "inactive"
        case .noToken: "noToken"
        case .noContent: "noContent"
        case .unknownDevice: "unknownDevice"
        case .requestConflict: "requestConflict"
        case .stopped: "stopped"
        case .tooLarge: "tooLarge"
        }
    }
}

extension TaskState {
    /// The name in the admin API.
    package var name: StaticString {
        switch self {
        case .open: "open"
        case .scheduled: "scheduled"
        case .running: "running"
        case .stopping: "stopping"
        case .stopped: "stopped"
        case .cancelled: "cancelled"
        case .ending: "ending"
        case .ended: "ended"
        }
    }
}
