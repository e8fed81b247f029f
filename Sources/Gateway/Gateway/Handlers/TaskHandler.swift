internal import Quotas
internal import Delivery
internal import Directory
internal import EventLoops
internal import PushAPI
internal import Wire

/// The push listener's requests about tasks; the coordinator carries them out, and this handler renders the answers.
final class TaskHandler {
    private unowned let owner: EventLoopHost
    let coordinator: TaskCoordinator
    private lazy var aliases: any AliasResolver = DirectoryAliases(owner)

    init(_ owner: EventLoopHost) {
        self.owner = owner
        coordinator = TaskCoordinator(owner)
    }

    typealias Respond = (APIResponse) -> Void

    private var durability: Durability { owner.context.isFsync ? .fsync : .os }

    /// Checks the app's quotas, then carries out the action; `byteCount` is the size of the request's body.
    func perform(_ action: CampaignAction, byteCount: Int, respond: @escaping Respond) {
        // A request refused because of a start or stop uses no quota.
        guard owner.context.isReady, !owner.context.isStopping else { return respond(.starting) }
        let permit: PublishPermit
        do throws(QuotaRefusal) {
            permit = try owner.permit(action, byteCount: byteCount)
        } catch {
            return respond(.overQuota(error))
        }
        switch action {
        case .create(let task): create(task, permit, respond)
        case .list(let call): list(call, permit, respond)
        case .aliases(let pushes, let form): push(pushes, form, permit, respond)
        case .byTag(let push): self.push(push, permit, respond)
        case .stop(let task, let app):
            coordinator.stop(task, app) { answer in
                switch answer {
                case .found(let count): respond(CampaignAnswer.stopped(count))
                case .absent: respond(CampaignAnswer.unknownTask)
                case .unreadable: respond(.busy)
                }
            }
        case .schedule(let task, let app):
            coordinator.ask(home: task, LoadTask(task, app)) { respond(CampaignAnswer.schedule($0)) }
        case .cancel(let task, let app):
            coordinator.ask(home: task, ChangeTask(task, app, .cancel)) { respond(CampaignAnswer.cancelled($0)) }
        case .detail(let query): detail(query, respond)
        case .taskReport(let query): report(query, found: [], respond)
        case .groupReport(let query): report(query, respond)
        case .dayReport(let query): report(query, respond)
        case .onlineReport(let app):
            owner.ask(OnlinePointsRequest(app: app), of: Bucket(0)) { points in
                guard let points else { return respond(.busy) }
                respond(ReportAnswer.online(points.map { (time: $0.time, count: $0.count) }))
            }
        case .quotaReport(let key): quota(key, respond)
        }
    }

    // MARK: Lists

    /// Creates a task; the permit also covers the messages of a broadcast, because no other call sends them.
    private func create(_ task: NewTask, _ permit: PublishPermit, _ respond: @escaping Respond) {
        let question = CreateTask(task.record, key: task.requestKey, digest: task.requestDigest)
        coordinator.ask(home: task.record.id, question) { [self] answer in
            guard case .created(let id, _) = answer, let group = task.group else {
                return respond(CampaignAnswer.created(answer, task, durability: durability))
            }
            // A repeated call writes the row again, because the first call may have failed before this step.
            owner.ask(JoinGroup(id, group), of: group.bucket) { [self] isJoined in
                guard isJoined else { return respond(.busy) }
                respond(CampaignAnswer.created(answer, task, durability: durability))
            }
        }
    }

    private func list(_ call: ListCall, _ permit: PublishPermit, _ respond: @escaping Respond) {
        coordinator.record(call.task, call.app.key) { [self] answer in
            guard let record = answer.value else {
                return respond(answer.isAbsent ? CampaignAnswer.unknownTask : .busy)
            }
            if let refusal = CampaignAnswer.refusal(record, now: owner.now) { return respond(refusal) }
            switch call.audience {
            case .devices(let targets): send(targets, nil, call, record, permit, respond)
            case .conditions(let candidates):
                matching(candidates, of: call.app) { [self] found in
                    guard let found else { return respond(.busy) }
                    let targets = found.map { call.app.target($0, of: call.task) }
                    guard !targets.isEmpty else {
                        return respond(
                            CampaignAnswer.list([], call, record: record, aliases: nil, durability: durability))
                    }
                    send(targets, nil, call, record, permit, respond)
                }
            case .aliases(let names):
                aliases.resolve(names, of: call.app.key) { [self] found in
                    guard let found else { return respond(.busy) }
                    var call = call
                    call.unknown += found.lazy.filter(\.devices.isEmpty).map(\.alias)
                    var seen = Set<DeviceID>()
                    var targets: [ListTarget] = []
                    for cid in found.lazy.flatMap(\.devices) where seen.insert(cid).inserted {
                        targets.append(call.app.target(cid, of: call.task))
                    }
                    guard !targets.isEmpty else { return respond(CampaignAnswer.unknownTarget) }
                    send(targets, call.needsAliasDetail ? found : nil, call, record, permit, respond)
                }
            }
        }
    }

    private func send(
        _ targets: [ListTarget], _ aliases: [ResolvedAlias]?, _ call: ListCall, _ record: TaskRecord,
        _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        if record.state == .scheduled { return park(targets, aliases, call, record, permit, respond) }
        sendNow(targets, aliases, call, record, permit, respond)
    }

    private func sendNow(
        _ targets: [ListTarget], _ aliases: [ResolvedAlias]?, _ call: ListCall, _ record: TaskRecord,
        _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        let sending = TaskCoordinator.Sending(
            task: record.id, app: record.app, createdAt: record.createdAt, content: record.content, isBulk: true,
            permit: permit)
        carry(sending, targets, key: call.key, digest: call.digest, app: call.app) { [self] result in
            switch result {
            case .outcomes(_, let outcomes):
                respond(
                    CampaignAnswer.list(outcomes, call, record: record, aliases: aliases, durability: durability))
            case .conflict: respond(CampaignAnswer.requestConflict)
            case .busy: respond(.busy)
            }
        }
    }

    /// Stores the devices of a call until the task's time, after checking which of them exist.
    private func park(
        _ targets: [ListTarget], _ aliases: [ResolvedAlias]?, _ call: ListCall, _ record: TaskRecord,
        _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        let places = targets.map { DevicePlace(cid: $0.cid, bucket: $0.bucket) }
        describe(places, of: call.app) { [self] details in
            guard let details else { return respond(.busy) }
            var (known, unknown): ([ListTarget], [DeviceID]) = ([], [])
            for (target, detail) in zip(targets, details) {
                if detail == nil { unknown.append(target.cid) } else { known.append(target) }
            }
            let render: (TaskRecord) -> APIResponse = { record in
                CampaignAnswer.parked(call, record, cids: known.map(\.cid), unknown: unknown, aliases: aliases)
            }
            guard !known.isEmpty else { return respond(render(record)) }
            park(known, all: targets, aliases, call, record, permit, from: 0, render: render, respond)
        }
    }

    private func park(
        _ targets: [ListTarget], all: [ListTarget], _ aliases: [ResolvedAlias]?, _ call: ListCall,
        _ record: TaskRecord, _ permit: PublishPermit, from start: Int, render: @escaping (TaskRecord) -> APIResponse,
        _ respond: @escaping Respond
    ) {
        let part = targets[start...].prefix(TaskBounds.targetsOfARow)
        coordinator.ask(home: record.id, ParkTargets(record.id, record.app, part.map(\.cid))) { [self] answer in
            switch answer {
            case .parked where start + part.count < targets.count:
                park(
                    targets, all: all, aliases, call, record, permit, from: start + part.count, render: render,
                    respond)
            case .parked: respond(render(record))
            case .refused(let state):
                // The task became due or was stopped after its record was read.
                var record = record
                record.state = state
                if let refusal = CampaignAnswer.refusal(record, now: owner.now) { return respond(refusal) }
                sendNow(all, aliases, call, record, permit, respond)
            case .unknown: respond(CampaignAnswer.unknownTask)
            case .tooLarge, .busy: respond(.busy)
            }
        }
    }

    // MARK: Calls

    private enum Carried {
        case outcomes(TaskID, [PublishOutcome])
        case conflict, busy
    }

    /// Carries out a call to several devices: `BeginCall`, fan-out, `EndCall`.
    ///
    /// A call without a request id only fans out, because the devices' shards deduplicate by the task.
    private func carry(
        _ sending: TaskCoordinator.Sending, _ targets: [ListTarget], key: CallKey, digest: UInt64, app: App,
        completion: @escaping (Carried) -> Void
    ) {
        guard key != .none, targets.count <= TaskBounds.callTargets else {
            return coordinator.fanOut(sending, targets) { completion(.outcomes(sending.task, $0)) }
        }
        let question = BeginCall(key, digest: digest, sending.task, targets.map(\.cid))
        owner.ask(question, of: key.bucket) { [self] answer in
            switch answer {
            case .begun(let task, let cids):
                var (sending, targets) = (sending, targets)
                if task != sending.task {
                    // An earlier attempt began this call under another task id. The vendors' contents contain the id, so they are
                    // changed.
                    sending.content = sending.content.renamed(from: sending.task, to: task)
                    (sending.task, sending.createdAt) = (task, 0)
                }
                // Repeats use the devices of the first call, even if the alias has changed since.
                if sending.createdAt == 0 || cids != targets.map(\.cid) {
                    targets = cids.map { app.target($0, of: task) }
                }
                sendOnce(sending, targets) { [self] outcomes in
                    let isWhole = outcomes?.contains { $0.code.isRetryable } == false
                    owner.ask(EndCall(key, isWhole ? outcomes : nil), of: key.bucket) { isEnded in
                        guard let outcomes, isEnded || !isWhole else { return completion(.busy) }
                        completion(.outcomes(task, outcomes))
                    }
                }
            case .ended(let task, let outcomes): completion(.outcomes(task, outcomes))
            case .conflict: completion(.conflict)
            case .tooLarge, .busy: completion(.busy)
            }
        }
    }

    /// Fans out a message; `completion` receives `nil` if the task's devices could not be stored.
    ///
    /// The devices are stored first if the first ack is to end the task's other messages.
    private func sendOnce(
        _ given: TaskCoordinator.Sending, _ targets: [ListTarget],
        completion: @escaping ([PublishOutcome]?) -> Void
    ) {
        var sending = given
        // With a single device there are no other messages that the first ack could end.
        sending.content.firstAckWins = given.content.firstAckWins && targets.count > 1
        guard sending.content.firstAckWins else { return coordinator.fanOut(sending, targets) { completion($0) } }
        coordinator.ask(home: sending.task, KeepSiblings(sending.task, targets.map(\.cid))) {
            [self, sending] areKept in
            guard areKept else { return completion(nil) }
            coordinator.fanOut(sending, targets) { completion($0) }
        }
    }

    // MARK: Aliases

    private func push(
        _ pushes: [AliasPush], _ form: PushForm, _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        let gathering = Gathering<CampaignAnswer.AliasResult>(count: pushes.count) { [self] results in
            let numbered = zip(pushes, results).map { (itemIndex: $0.itemIndex, result: $1) }
            let ordered = numbered.sorted { $0.itemIndex < $1.itemIndex }
            respond(CampaignAnswer.aliases(ordered, form: form, durability: durability))
        }
        for (place, push) in pushes.enumerated() { carry(push, permit) { gathering.take($0, at: place) } }
    }

    private func carry(
        _ push: AliasPush, _ permit: PublishPermit, completion: @escaping (CampaignAnswer.AliasResult) -> Void
    ) {
        aliases.resolve([push.alias], of: push.app.key) { [self] found in
            guard let found else { return completion(CampaignAnswer.busyResult) }
            let cids = found.first?.devices ?? []
            guard !cids.isEmpty else { return completion(CampaignAnswer.unknownAlias(push.alias.text)) }
            carry(push, to: cids, key: push.key, permit) { [self] result in
                guard case .conflict = result else { return completion(Self.result(result)) }
                // The request id may have been used for a push to another alias, which is a different request.
                owner.ask(CallQuery(push.key), of: push.key.bucket) { [self] answer in
                    guard let task = answer.value else { return completion(CampaignAnswer.busyResult) }
                    guard push.isApart(from: task) else { return completion(CampaignAnswer.conflictResult) }
                    carry(push, to: cids, key: push.ownKey, permit) { completion(Self.result($0)) }
                }
            }
        }
    }

    private func carry(
        _ push: AliasPush, to cids: [DeviceID], key: CallKey, _ permit: PublishPermit,
        completion: @escaping (Carried) -> Void
    ) {
        let sending = TaskCoordinator.Sending(
            task: push.task, app: push.app.key, createdAt: owner.now, content: push.content, isBulk: false,
            permit: permit)
        let targets = cids.map { push.app.target($0, of: push.task) }
        carry(sending, targets, key: key, digest: push.digest, app: push.app, completion: completion)
    }

    private static func result(_ carried: Carried) -> CampaignAnswer.AliasResult {
        switch carried {
        case .outcomes(let task, let outcomes): .reached(task, outcomes)
        case .conflict: CampaignAnswer.conflictResult
        case .busy: CampaignAnswer.busyResult
        }
    }

    // MARK: Conditions on tags

    /// Looks up the details of each device, in order.
    ///
    /// A missing device has `nil` in the list. If a record cannot be read, `completion` receives `nil` instead of the list.
    private func describe(_ places: [DevicePlace], of app: App, completion: @escaping ([DeviceDetail?]?) -> Void) {
        let isTaken = owner.directoryHandler.run(.each(places, .describe), app: app.key) { operation in
            guard !operation.outcomes.contains(.failed) else { return completion(nil) }
            completion(
                operation.outcomes.map { outcome in
                    if case .device(let detail) = outcome { detail } else { nil }
                })
        }
        if !isTaken { completion(nil) }
    }

    /// Returns the devices whose tags match their condition; `nil` if a record cannot be read.
    private func matching(_ candidates: [TagCandidate], of app: App, completion: @escaping ([DeviceID]?) -> Void) {
        let places = candidates.map { DevicePlace(cid: $0.target.cid, bucket: $0.target.bucket) }
        describe(places, of: app) { details in
            guard let details else { return completion(nil) }
            completion(
                zip(candidates, details).compactMap { candidate, detail in
                    guard let detail, candidate.expression.isTrue(ofTags: detail.conditionTags) else { return nil }
                    return candidate.target.cid
                })
        }
    }

    private func push(_ push: TagPush, _ permit: PublishPermit, _ respond: @escaping Respond) {
        matching(push.candidates, of: push.app) { [self] found in
            guard let found else { return respond(.busy) }
            guard !found.isEmpty else {
                return respond(
                    CampaignAnswer.byTag(
                        push.task, [], refused: push.refused, notes: push.notes, durability: durability))
            }
            let sending = TaskCoordinator.Sending(
                task: push.task, app: push.app.key, createdAt: owner.now, content: push.content, isBulk: false,
                permit: permit)
            carry(
                sending, found.map { push.app.target($0, of: push.task) }, key: push.key, digest: push.digest,
                app: push.app
            ) { [self] result in
                switch result {
                case .outcomes(let task, let outcomes):
                    respond(
                        CampaignAnswer.byTag(
                            task, outcomes, refused: push.refused, notes: push.notes, durability: durability))
                case .conflict: respond(CampaignAnswer.requestConflict)
                case .busy: respond(.busy)
                }
            }
        }
    }

    // MARK: One message

    private func detail(_ query: DetailQuery, _ respond: @escaping Respond) {
        let device = query.device
        let request = TaskMessageRequest(
            task: query.task, app: device.app, cid: device.cid, bucket: device.bucket, digest: query.digest)
        owner.ask(request, of: device.bucket) { answer in
            if case .unreadable = answer { return respond(.busy) }
            respond(CampaignAnswer.detail(answer.trace, query))
        }
    }

    // MARK: Reports

    /// Collects the totals of one task at a time, so that a report of many tasks does not crowd out pushes.
    private func report(_ query: TaskReportQuery, found: [(TaskID, TaskTotals?)], _ respond: @escaping Respond) {
        guard found.count < query.tasks.count else { return respond(ReportAnswer.tasks(found, query)) }
        let task = query.tasks[found.count]
        totals(of: task, query.app) { [self] totals in
            switch totals {
            case .found(let totals): report(query, found: found + [(task, totals)], respond)
            case .absent: report(query, found: found + [(task, nil)], respond)
            case .unreadable: respond(.busy)
            }
        }
    }

    /// Sums a task's totals over all partitions.
    ///
    /// Without accepted messages, the task's row shows whether the task exists. Examples are a list without devices, and a task
    /// that was stopped or expired before it was sent.
    private func totals(of task: TaskID, _ app: AppKey, completion: @escaping (Found<TaskTotals>) -> Void) {
        if task.kind == .single {
            let share = LoopShare(index: task.home.loop(of: owner.partitionCount), count: owner.partitionCount)
            return coordinator.ask(home: task, TaskTotalsQuery(task, app, share), completion: completion)
        }
        coordinator.totals(of: task, app) { [self] sum in
            guard let sum else { return completion(.unreadable) }
            guard sum.accepted == 0 else { return completion(.found(sum)) }
            coordinator.ask(home: task, LoadTask(task, app)) { answer in
                switch answer {
                case .found: completion(.found(sum))
                case .absent: completion(.absent)
                case .unreadable: completion(.unreadable)
                }
            }
        }
    }

    private func report(_ query: GroupReportQuery, _ respond: @escaping Respond) {
        owner.ask(ReadGroup(query.place), of: query.place.bucket) { [self] all in
            guard let tasks = all?.filter({ query.asks(for: $0) }) else { return respond(.busy) }
            sum(tasks[...], TaskTotals(), query.app) { totals in
                guard let totals else { return respond(.busy) }
                respond(ReportAnswer.group(totals, tasks: tasks.count, query))
            }
        }
    }

    private func sum(
        _ tasks: ArraySlice<TaskID>, _ sum: TaskTotals, _ app: AppKey, completion: @escaping (TaskTotals?) -> Void
    ) {
        guard let task = tasks.first else { return completion(sum) }
        totals(of: task, app) { [self] part in
            var next = sum
            switch part {
            case .found(let part): next.add(part)
            case .absent: break
            case .unreadable: return completion(nil)
            }
            self.sum(tasks.dropFirst(), next, app, completion: completion)
        }
    }

    private func report(_ query: DayReportQuery, _ respond: @escaping Respond) {
        guard query.isKept else { return respond(ReportAnswer.day(DayTotals(), online: 0, query)) }
        coordinator.collect({ _ in DayQuery(query.app, day: query.day) }) { [self] parts in
            guard let parts else { return respond(.busy) }
            let sum = parts.reduce(into: DayTotals()) { $0.add($1) }
            owner.ask(OnlinePeakRequest(app: query.app, day: query.day), of: Bucket(0)) { online in
                guard let online else { return respond(.busy) }
                respond(ReportAnswer.day(sum, online: online, query))
            }
        }
    }

    private func quota(_ key: AppKey, _ respond: @escaping Respond) {
        guard let app = owner.registry[key] else { return respond(.busy) }
        let rates = owner.context.usage.rates
        let question = rates.question(ReportAnswer.quotaKinds, app: key, now: owner.now)
        owner.ask(CountRates(reports: question), of: Bucket(0)) { [self] totals in
            // If part 0's owner, which counts for all gateways, does not answer, the report has this gateway's own count.
            if let totals { rates.hear(totals, now: owner.now) }
            respond(ReportAnswer.quota(app.rates) { rates.usedToday($0, app: key, now: owner.now) })
        }
    }
}
