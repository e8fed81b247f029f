internal import Quotas
internal import Delivery
internal import Directory
internal import EventLoops
internal import PushAPI
internal import Wire

/// Operators' requests for troubleshooting; the loop that received a request asks the shards that have the data.
final class InspectionHandler {
    typealias Respond = (APIResponse) -> Void

    private unowned let owner: EventLoopHost
    private var coordinator: TaskCoordinator { owner.campaigns.coordinator }
    private var registry: AppRegistry { owner.registry }

    init(_ owner: EventLoopHost) { self.owner = owner }

    func handle(_ request: InspectionRequest, respond: @escaping Respond) {
        switch request {
        case .recent(let address, let limit): recent(address, limit, respond)
        case .devices(let app, let start, let limit): devices(app, start, limit, respond)
        case .alias(let name, let app):
            let isTaken = owner.directoryHandler.run(.resolve([name]), app: app) { operation in
                guard operation.outcomes == [.done], let members = operation.members.first else {
                    return respond(InspectionAnswers.unreadable)
                }
                respond(InspectionAnswers.alias(name, members.map(\.cid)))
            }
            if !isTaken { respond(AdminHandler.busy) }
        case .task(let task, let app): self.task(task, app, respond)
        case .taskMessage(let task, let address): taskMessage(task, address, respond)
        case .request(let name): findCalls(name, respond)
        case .jobs(let apps, let limit): jobs(apps, limit, respond)
        case .change(let address, let change, let name): self.change(address, change, by: name, respond)
        }
    }

    /// Asks all partitions; responds with a failure if one of them did not answer.
    private func collect<Request: PartitionRequest, Part>(
        _ request: (LoopShare) -> Request, _ respond: @escaping Respond, completion: @escaping ([Part]) -> Void
    ) where Request.Answer == Part? {
        coordinator.collect(request) { parts in
            if let parts { completion(parts) } else { respond(InspectionAnswers.unreadable) }
        }
    }

    // MARK: Devices

    private func recent(_ address: DeviceAddress, _ limit: Int, _ respond: @escaping Respond) {
        owner.ask(RecentQuery(address, limit: limit), of: address.bucket) { [self] answer in
            switch answer {
            case .found(let recent): respond(InspectionAnswers.recent(recent, of: address, registry: registry))
            case .absent: respond(InspectionAnswers.unknownDevice)
            case .unreadable: respond(InspectionAnswers.unreadable)
            }
        }
    }

    private func devices(_ app: AppKey, _ start: DeviceCursor?, _ limit: Int, _ respond: @escaping Respond) {
        // One more than requested shows whether there is a next page.
        let asked = min(limit + 1, InspectionBounds.answerLimit)
        collect({ DeviceListQuery(app, after: start, limit: asked, $0) }, respond) { parts in
            let found = parts.flatMap { $0 }.sorted { DeviceCursor($0) < DeviceCursor($1) }
            respond(InspectionAnswers.devices(Array(found.prefix(limit)), isLast: found.count < asked))
        }
    }

    private func change(
        _ address: DeviceAddress, _ change: DeviceChange, by name: String, _ respond: @escaping Respond
    ) {
        owner.ask(ChangeDevice(address, change), of: address.bucket) { [self] answer in
            switch answer {
            case .found(let result):
                owner.log.write(
                    .info, .operatorChange,
                    [
                        .name: .text(name), .app: .text(registry.appID(of: address.app)),
                        .cid: LogValue(address.cid), .detail: .text("\(change)"), .count: LogValue(result.count),
                    ])
                respond(InspectionAnswers.changed(change, result))
            case .absent: respond(InspectionAnswers.unknownDevice)
            case .unreadable: respond(InspectionAnswers.unreadable)
            }
        }
    }

    // MARK: Tasks

    private func task(_ task: TaskID, _ app: AppKey, _ respond: @escaping Respond) {
        guard task.kind != .single else { return single(task, app, respond) }
        coordinator.ask(home: task, LoadTask(task, app)) { [self] answer in
            if case .unreadable = answer { return respond(InspectionAnswers.unreadable) }
            coordinator.totals(of: task, app) { [self] totals in
                guard let totals else { return respond(InspectionAnswers.unreadable) }
                respond(InspectionAnswers.task(task, answer.value, totals, of: app, registry: registry))
            }
        }
    }

    private func single(_ task: TaskID, _ app: AppKey, _ respond: @escaping Respond) {
        coordinator.ask(home: task, SingleQuery(task, app)) { [self] answer in
            guard let cid = answer.value, let device = registry.known(app) else {
                return respond(answer.isAbsent ? InspectionAnswers.unknownTask : InspectionAnswers.unreadable)
            }
            taskMessage(task, device.address(cid), respond)
        }
    }

    private func taskMessage(_ task: TaskID, _ address: DeviceAddress, _ respond: @escaping Respond) {
        guard let app = registry.known(address.app) else { return respond(InspectionAnswers.unknownTask) }
        let target = app.target(address.cid, of: task)
        let request = TaskMessageRequest(
            task: task, app: address.app, cid: address.cid, bucket: target.bucket, digest: target.digest)
        owner.ask(request, of: target.bucket) { [self] answer in
            switch answer {
            case .unreadable: respond(InspectionAnswers.unreadable)
            case .unknownTask: respond(InspectionAnswers.unknownTask)
            case .known, .unknown: respond(AdminAnswer.trace(answer.trace, scope: [address.app], registry: registry))
            }
        }
    }

    // MARK: Requests

    /// Finds the tasks of the request's calls first, because the refusals of a call's devices are found by its task.
    private func findCalls(_ name: RequestName, _ respond: @escaping Respond) {
        let gathering = Gathering<Found<TaskID>>(count: name.calls.count) { [self] answers in
            var tasks: [(name: String, task: TaskID)] = []
            for (call, answer) in zip(name.calls, answers) {
                switch answer {
                case .found(let task): tasks.append((call.name, task))
                case .absent: break
                case .unreadable: return respond(InspectionAnswers.unreadable)
                }
            }
            findSingles(name, tasks, respond)
        }
        for (place, call) in name.calls.enumerated() {
            owner.ask(CallQuery(call.key), of: call.key.bucket) { gathering.take($0, at: place) }
        }
    }

    private func findSingles(
        _ name: RequestName, _ tasks: [(name: String, task: TaskID)], _ respond: @escaping Respond
    ) {
        collect({ RequestQuery(name.app, name.singles, tasks: tasks.map(\.task), $0) }, respond) { parts in
            let refusals = parts.flatMap(\.refusals).sorted { $1.time < $0.time }
            respond(
                InspectionAnswers.request(
                    name, singles: parts.flatMap(\.outcomes), tasks: tasks, refusals: refusals))
        }
    }

    // MARK: Jobs

    private func jobs(_ apps: Set<AppKey>?, _ limit: Int, _ respond: @escaping Respond) {
        collect({ _ in JobsQuery(apps: apps, limit: limit) }, respond) { [self] parts in
            var overview = JobOverview()
            for part in parts { overview.add(part, limit: limit) }
            respond(InspectionAnswers.jobs(overview, registry: registry))
        }
    }
}
