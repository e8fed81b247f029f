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

    private func ask(_ bucket: Bucket, _ inspection: Inspection, told: @escaping (TaskAnswer) -> Void) {
        coordinator.ask(bucket.loop(of: owner.partitionCount), .inspect(inspection), told: told)
    }

    /// Asks all loops; passes on their answers only if all of them could answer.
    private func askAll(
        _ inspection: (LoopShare) -> Inspection, _ respond: @escaping Respond,
        told: @escaping ([InspectionAnswer]) -> Void
    ) {
        coordinator.askAll({ .inspect(inspection($0)) }) { answers in
            let known = answers.compactMap { answer in
                if case .inspected(let inspected) = answer { inspected } else { nil }
            }
            guard known.count == answers.count else { return respond(InspectionAnswers.unreadable) }
            told(known)
        }
    }

    // MARK: Devices

    private func recent(_ address: DeviceAddress, _ limit: Int, _ respond: @escaping Respond) {
        ask(address.bucket, .recent(address, limit: limit)) { [self] answer in
            switch answer {
            case .inspected(.recent(let recent)):
                respond(InspectionAnswers.recent(recent, of: address, registry: registry))
            case .unknown: respond(InspectionAnswers.unknownDevice)
            default: respond(InspectionAnswers.unreadable)
            }
        }
    }

    private func devices(_ app: AppKey, _ start: DeviceCursor?, _ limit: Int, _ respond: @escaping Respond) {
        // One more than requested shows whether there is a next page.
        let asked = min(limit + 1, Inspection.answerLimit)
        askAll({ .devices(app, after: start, limit: asked, $0) }, respond) { answers in
            var found: [DeviceAddress] = []
            for case .devices(let some) in answers { found += some }
            found.sort { DeviceCursor($0) < DeviceCursor($1) }
            respond(InspectionAnswers.devices(Array(found.prefix(limit)), isLast: found.count < asked))
        }
    }

    private func change(
        _ address: DeviceAddress, _ change: DeviceChange, by name: String, _ respond: @escaping Respond
    ) {
        ask(address.bucket, .change(address, change)) { [self] answer in
            switch answer {
            case .inspected(.changed(let result)):
                owner.log.write(
                    .info, .operatorChange,
                    [
                        .name: .text(name), .app: .text(registry.appID(of: address.app)),
                        .cid: LogValue(address.cid), .detail: .text("\(change)"), .count: LogValue(result.count),
                    ])
                respond(InspectionAnswers.changed(change, result))
            case .unknown: respond(InspectionAnswers.unknownDevice)
            default: respond(InspectionAnswers.unreadable)
            }
        }
    }

    // MARK: Tasks

    private func task(_ task: TaskID, _ app: AppKey, _ respond: @escaping Respond) {
        guard task.kind != .single else { return single(task, app, respond) }
        coordinator.ask(home: task, .load(task, app)) { [self] answer in
            var record: TaskRecord?
            switch answer {
            case .record(let found): record = found
            case .unknown: break
            default: return respond(InspectionAnswers.unreadable)
            }
            coordinator.askAll({ .totals(task, app, $0) }) { [self] answers in
                var totals = TaskTotals()
                for answer in answers {
                    guard case .totals(let part) = answer else { return respond(InspectionAnswers.unreadable) }
                    totals.add(part)
                }
                respond(InspectionAnswers.task(task, record, totals, of: app, registry: registry))
            }
        }
    }

    private func single(_ task: TaskID, _ app: AppKey, _ respond: @escaping Respond) {
        ask(task.home, .single(task, app)) { [self] answer in
            guard case .inspected(.single(_, let cid)) = answer, let device = registry.known(app) else {
                if case .unknown = answer { return respond(InspectionAnswers.unknownTask) }
                return respond(InspectionAnswers.unreadable)
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

    /// Finds the tasks of the request's calls first, because refusals for devices name the task.
    private func findCalls(_ name: RequestName, _ respond: @escaping Respond) {
        let gathering = Gathering<TaskAnswer>(count: name.calls.count) { [self] answers in
            var tasks: [(name: String, task: TaskID)] = []
            for (call, answer) in zip(name.calls, answers) {
                switch answer {
                case .inspected(.call(let task)): tasks.append((call.name, task))
                case .unknown: break
                default: return respond(InspectionAnswers.unreadable)
                }
            }
            findSingles(name, tasks, respond)
        }
        for (place, call) in name.calls.enumerated() {
            ask(call.key.bucket, .call(call.key)) { gathering.take($0, at: place) }
        }
    }

    private func findSingles(
        _ name: RequestName, _ tasks: [(name: String, task: TaskID)], _ respond: @escaping Respond
    ) {
        askAll({ .requests(name.app, name.singles, tasks: tasks.map(\.task), $0) }, respond) { answers in
            var (outcomes, refusals): ([PublishOutcome], [RefusedPublish]) = ([], [])
            for case .requests(let found, let refused) in answers {
                outcomes += found
                refusals += refused
            }
            refusals.sort { $1.time < $0.time }
            respond(InspectionAnswers.request(name, singles: outcomes, tasks: tasks, refusals: refusals))
        }
    }

    // MARK: Jobs

    private func jobs(_ apps: Set<AppKey>?, _ limit: Int, _ respond: @escaping Respond) {
        askAll({ _ in .jobs(apps: apps, limit: limit) }, respond) { [self] answers in
            var overview = JobOverview()
            for case .jobs(let part) in answers { overview.add(part, limit: limit) }
            respond(InspectionAnswers.jobs(overview, registry: registry))
        }
    }
}
