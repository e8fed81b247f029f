package import Delivery
internal import JSON
package import Wire

package enum InspectionAnswers {
    package static let unknownDevice = AdminFault(.notFound, "no such device in this app").response
    package static let unknownTask = AdminFault(
        .notFound, "no such task in this app, or it is older than the gateway keeps it"
    ).response
    package static let unreadable = APIResponse.adminUnavailable("the rows for this cannot be read now, retry")

    /// Returns a device's messages, newest first.
    package static func recent(
        _ recent: RecentMessages, of address: DeviceAddress, registry: AppRegistry
    ) -> APIResponse {
        .object([
            "appId": registry.appID(of: address.app), "cid": address.cid.description,
            "messages": recent.traces.map { AdminAnswer.members($0, registry) },
            "refusals": recent.refusals.map(members), "more": recent.isCut,
        ])
    }

    /// Returns the messages, tasks and refusals of a request id.
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
        let messages = singles.map { outcome -> JSONObject in
            [
                "msgId": outcome.message.description, "taskId": outcome.task.text, "cid": outcome.cid.description,
            ]
        }
        return .object([
            "requestId": name.text, "messages": messages,
            "tasks": tasks.map { ["taskId": $0.task.text, "call": $0.name] as JSONObject },
            "refusals": refusals.map(members),
        ])
    }

    private static func members(_ refusal: RefusedPublish) -> JSONObject {
        [
            "time": refusal.time, "reason": refusal.reason.name, "cid": refusal.cid.description,
            "taskId": refusal.task.text,
        ]
    }

    /// Returns a task's number of messages in each state.
    package static func task(
        _ task: TaskID, _ record: TaskRecord?, _ totals: TaskTotals, of app: AppKey, registry: AppRegistry
    ) -> APIResponse {
        guard record != nil || totals.accepted > 0 else { return unknownTask }
        var answer: JSONObject = ["taskId": task.text, "appId": registry.appID(of: app)]
        if let record {
            answer =
                answer + [
                    "task": record.state.name, "createdAt": record.createdAt,
                    "scheduledAt": record.scheduleAt > 0 ? record.scheduleAt : nil,
                    "broadcast": record.broadcast != nil, "group": record.group.unlessEmpty,
                ]
        }
        let states = FinalState.allCases.filter { totals[$0] > 0 }.map { ("\($0.name)", totals[$0]) }
        let failures = totals.failures.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return .object(
            answer + [
                "accepted": totals.accepted, "pending": totals.pending, "states": JSONObject(states),
                "failures": JSONObject(failures),
            ])
    }

    package static func alias(_ name: AliasName, _ devices: [DeviceID]) -> APIResponse {
        guard !devices.isEmpty else { return AdminFault(.notFound, "no device of this app has the alias").response }
        let sorted = devices.sorted { ($0.high, $0.low) < ($1.high, $1.low) }
        return .object(["alias": name.text, "devices": sorted.map(\.description)])
    }

    /// Returns a page of an app's devices, with the cursor of the next page.
    package static func devices(_ devices: [DeviceAddress], isLast: Bool) -> APIResponse {
        .object([
            "devices": devices.map(\.cid.description), "next": isLast ? nil : devices.last?.cid.description,
        ])
    }

    /// Returns the due jobs, longest due first, and their number.
    package static func jobs(_ overview: JobOverview, registry: AppRegistry) -> APIResponse {
        let queues = overview.queues.map { queue -> JSONObject in
            [
                "appId": registry.appID(of: queue.app), "channel": queue.channel.name, "due": queue.dueCount,
                "held": queue.heldCount,
            ]
        }
        let jobs = overview.jobs.map { job -> JSONObject in
            [
                "jobId": job.message.description, "appId": registry.appID(of: job.app), "cid": job.cid.description,
                "channel": job.channel.name, "acceptedAt": job.acceptedAt, "dueAt": job.dueAt,
                "expiresAt": job.expiresAt, "attempts": job.attempts, "reason": job.reason.unlessEmpty,
            ]
        }
        return .object(["queues": queues, "jobs": jobs])
    }

    package static func changed(_ change: DeviceChange, _ result: DeviceChangeResult) -> APIResponse {
        switch change {
        case .purge: .object(["purged": result.count, "left": result.leftCount])
        case .replay: .object(["due": result.count])
        case .disconnect: .object(["disconnected": result.count > 0])
        case .unblacklist: .object(["removed": result.count > 0])
        }
    }
}

extension RefusedPublish.Reason {
    /// The name in the admin API (docs/use/Errors.md, "Refused publishes").
    package var name: String { "\(self)" }
}

extension TaskState {
    package var name: String { "\(self)" }
}
