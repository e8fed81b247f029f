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

    /// Carries out the action; `byteCount` is the size of the request's body.
    ///
    /// A call with a known request id gets its first answer, before any limit and any choice of devices.
    func perform(_ action: CampaignAction, byteCount: Int, respond: @escaping Respond) {
        // A request refused because of a start or stop uses no quota.
        guard owner.context.isReady, !owner.context.isStopping else { return respond(.starting) }
        switch action {
        case .create(let task): create(task, byteCount, respond)
        case .list(let call): list(call, byteCount, respond)
        case .aliases(let pushes, let form): push(pushes, form, byteCount, respond)
        case .byTag(let push): self.push(push, byteCount, respond)
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

    // MARK: Request ids

    /// Looks up the task of an earlier call with the same request id.
    private func find(_ key: CallKey, completion: @escaping (Found<TaskID>) -> Void) {
        guard key != .none else { return completion(.absent) }
        owner.ask(CallQuery(key), of: key.bucket, completion: completion)
    }

    /// Counts a new call against its app's limits; if one is used up, answers the call and returns `nil`.
    private func permit(_ action: CampaignAction, _ byteCount: Int, _ respond: Respond) -> PublishPermit? {
        let permit: PublishPermit
        do throws(QuotaRefusal) {
            permit = try owner.permit(action, byteCount: byteCount)
        } catch {
            respond(.overQuota(error))
            return nil
        }
        if let refusal = owner.publicHandler.api.refusal(of: action, now: owner.now) {
            respond(refusal)
            return nil
        }
        return permit
    }

    // MARK: Lists

    /// Creates a task; the permit also covers the messages of a broadcast, because no other call sends them.
    private func create(_ task: NewTask, _ byteCount: Int, _ respond: @escaping Respond) {
        find(task.requestKey) { [self] found in
            switch found {
            case .unreadable: respond(.busy)
            case .found: write(task, respond)
            case .absent:
                guard permit(.create(task), byteCount, respond) != nil else { return }
                write(task, respond)
            }
        }
    }

    /// Writes a task, unless its request id is known.
    private func write(_ task: NewTask, _ respond: @escaping Respond) {
        let question = CreateTask(task.record, key: task.requestKey, digest: task.requestDigest)
        coordinator.ask(home: task.record.id, question) { [self] answer in
            guard case .created(let id, _) = answer, let group = task.group else {
                return created(answer, task, respond)
            }
            // A repeated call writes the row again, because the first call may have failed before this step.
            owner.ask(JoinGroup(id, group), of: group.bucket) { [self] isJoined in
                guard isJoined else { return respond(.busy) }
                created(answer, task, respond)
            }
        }
    }

    /// Answers the creation of a task; a repeated call gets the times of the stored task.
    private func created(_ answer: CreateTask.Answer, _ task: NewTask, _ respond: @escaping Respond) {
        guard case .created(let id, isRepeat: true) = answer else {
            return respond(CampaignAnswer.created(answer, task, durability: durability))
        }
        coordinator.record(id, task.record.app) { [self] found in
            if case .unreadable = found { return respond(.busy) }
            var task = task
            task.record = found.value ?? task.record
            respond(CampaignAnswer.created(answer, task, durability: durability))
        }
    }

    private func list(_ call: ListCall, _ byteCount: Int, _ respond: @escaping Respond) {
        coordinator.record(call.task, call.app.key) { [self] answer in
            guard let record = answer.value else {
                return respond(answer.isAbsent ? CampaignAnswer.unknownTask : .busy)
            }
            find(call.key) { [self] found in
                switch found {
                case .unreadable: respond(.busy)
                case .found: repeated(call, record, respond)
                case .absent:
                    if let refusal = CampaignAnswer.refusal(record, now: owner.now) { return respond(refusal) }
                    guard let permit = permit(.list(call), byteCount, respond) else { return }
                    choose(call, record, permit, respond)
                }
            }
        }
    }

    /// Answers a known call; its devices are those of the first attempt.
    private func repeated(_ call: ListCall, _ record: TaskRecord, _ respond: @escaping Respond) {
        guard call.needsAliasDetail, case .aliases(let names) = call.audience else {
            return send(nil, nil, call, record, owner.permitOfKeptTask, respond)
        }
        aliases.resolve(names, of: call.app.key) { [self] found in
            guard let found else { return respond(.busy) }
            send(nil, found, call, record, owner.permitOfKeptTask, respond)
        }
    }

    /// Chooses the devices of a new call, then sends.
    private func choose(
        _ call: ListCall, _ record: TaskRecord, _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        switch call.audience {
        case .devices(let targets): send(targets, nil, call, record, permit, respond)
        case .conditions(let candidates):
            matching(candidates, of: call.app) { [self] found in
                guard let found else { return respond(.busy) }
                send(found.map { call.app.target($0, of: call.task) }, nil, call, record, permit, respond)
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

    /// Sends to devices, or stores them until the task's time; without targets, the call is known.
    private func send(
        _ targets: [ListTarget]?, _ aliases: [ResolvedAlias]?, _ call: ListCall, _ record: TaskRecord,
        _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        let sending = TaskCoordinator.Sending(
            task: record.id, app: record.app, createdAt: record.createdAt, content: record.content, isBulk: true,
            permit: permit)
        let run: Run = { [self] sending, targets, completion in
            // Only an unfinished call comes here after its task's end.
            if !targets.isEmpty, let refusal = CampaignAnswer.refusal(record, now: owner.now) {
                return completion(.refused(refusal))
            }
            guard record.state == .scheduled else { return sendOnce(sending, targets, completion: completion) }
            park(targets, sending, call, record, completion: completion)
        }
        carry(sending, targets, key: call.key, digest: call.digest, app: call.app, run: run) { [self] result in
            switch result {
            case .outcomes(_, let outcomes):
                respond(
                    CampaignAnswer.list(outcomes, call, record: record, aliases: aliases, durability: durability))
            case .refused(let response): respond(response)
            case .conflict: respond(CampaignAnswer.requestConflict)
            case .busy: respond(.busy)
            }
        }
    }

    /// Stores the devices of a call until the task's time, after checking which of them exist.
    private func park(
        _ targets: [ListTarget], _ sending: TaskCoordinator.Sending, _ call: ListCall, _ record: TaskRecord,
        completion: @escaping (Carried) -> Void
    ) {
        let places = targets.map { DevicePlace(cid: $0.cid, bucket: $0.bucket) }
        describe(places, of: call.app) { [self] details in
            guard let details else { return completion(.busy) }
            let known = zip(targets, details).compactMap { $1 == nil ? nil : $0.cid }
            park(known, record, from: 0) { [self] answer in
                switch answer {
                case .parked:
                    let outcomes = zip(targets, details).map { target, detail in
                        PublishOutcome(
                            code: detail == nil ? .unknownDevice : .accepted, cid: target.cid, task: record.id)
                    }
                    completion(.outcomes(record.id, outcomes))
                case .refused(let state):
                    // The task became due or was stopped after its record was read.
                    var record = record
                    record.state = state
                    if let refusal = CampaignAnswer.refusal(record, now: owner.now) {
                        return completion(.refused(refusal))
                    }
                    sendOnce(sending, targets, completion: completion)
                case .unknown: completion(.refused(CampaignAnswer.unknownTask))
                case .tooLarge, .busy: completion(.busy)
                }
            }
        }
    }

    private func park(
        _ cids: [DeviceID], _ record: TaskRecord, from start: Int, completion: @escaping (ParkTargets.Answer) -> Void
    ) {
        let part = cids[start...].prefix(TaskBounds.targetsOfARow)
        guard !part.isEmpty else { return completion(.parked) }
        coordinator.ask(home: record.id, ParkTargets(record.id, record.app, Array(part))) { [self] answer in
            guard case .parked = answer else { return completion(answer) }
            park(cids, record, from: start + part.count, completion: completion)
        }
    }

    // MARK: Calls

    private enum Carried {
        case outcomes(TaskID, [PublishOutcome])
        case refused(APIResponse)
        case conflict, busy
    }

    /// Sends a message to devices, once the call has begun.
    private typealias Run = (TaskCoordinator.Sending, [ListTarget], @escaping (Carried) -> Void) -> Void

    /// Carries out a call to several devices: `BeginCall`, `run` (by default a fan-out), `EndCall`.
    ///
    /// Without targets, the call is known and uses the devices of its first attempt. A call without a request id only runs,
    /// because the devices' shards deduplicate by the task.
    private func carry(
        _ sending: TaskCoordinator.Sending, _ targets: [ListTarget]?, key: CallKey, digest: UInt64, app: App,
        run: Run? = nil, completion: @escaping (Carried) -> Void
    ) {
        let run = run ?? { [self] in sendOnce($0, $1, completion: $2) }
        if let targets, key == .none || targets.count > TaskBounds.callTargets {
            return run(sending, targets, completion)
        }
        let question = BeginCall(
            key, digest: digest, targets == nil ? .none : sending.task, targets?.map(\.cid) ?? [])
        owner.ask(question, of: key.bucket) { [self] answer in
            switch answer {
            case .begun(let task, let cids):
                var (sending, targets) = (sending, targets ?? [])
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
                run(sending, targets) { [self] result in
                    var whole: [PublishOutcome]?
                    // Without devices there is nothing to keep: the call's row has the id.
                    if case .outcomes(_, let outcomes) = result, !outcomes.isEmpty,
                        !outcomes.contains(where: \.code.isRetryable)
                    {
                        whole = outcomes
                    }
                    owner.ask(EndCall(key, whole), of: key.bucket) { [whole] isEnded in
                        completion(isEnded || whole == nil ? result : .busy)
                    }
                }
            case .ended(let task, let outcomes): completion(.outcomes(task, outcomes))
            case .conflict: completion(.conflict)
            case .tooLarge, .busy: completion(.busy)
            }
        }
    }

    /// Fans out a message; busy if the task's devices could not be stored.
    ///
    /// The devices are stored first if the first ack is to end the task's other messages.
    private func sendOnce(
        _ given: TaskCoordinator.Sending, _ targets: [ListTarget], completion: @escaping (Carried) -> Void
    ) {
        var sending = given
        // With a single device there are no other messages that the first ack could end.
        sending.content.firstAckWins = given.content.firstAckWins && targets.count > 1
        let fanOut = { [self, sending] in
            coordinator.fanOut(sending, targets) { completion(.outcomes(sending.task, $0)) }
        }
        guard sending.content.firstAckWins else { return fanOut() }
        coordinator.ask(home: sending.task, KeepSiblings(sending.task, targets.map(\.cid))) { areKept in
            guard areKept else { return completion(.busy) }
            fanOut()
        }
    }

    // MARK: Aliases

    private func push(_ pushes: [AliasPush], _ form: PushForm, _ byteCount: Int, _ respond: @escaping Respond) {
        let gathering = Gathering<Found<CallKey>>(count: pushes.count) { [self] keys in
            let new = zip(pushes, keys).compactMap { $1.isAbsent ? $0 : nil }
            var permit = owner.permitOfKeptTask
            var refusal: QuotaRefusal?
            if !new.isEmpty {
                do throws(QuotaRefusal) {
                    permit = try owner.permit(.aliases(new, form), byteCount: byteCount)
                } catch {
                    guard new.count < pushes.count else { return respond(.overQuota(error)) }
                    refusal = error
                }
            }
            push(pushes, keys, form, permit, refusal, respond)
        }
        for (place, push) in pushes.enumerated() { find(push) { gathering.take($0, at: place) } }
    }

    /// Carries out pushes to aliases, of which some are known by these keys; a refusal refuses the others.
    private func push(
        _ pushes: [AliasPush], _ keys: [Found<CallKey>], _ form: PushForm, _ permit: PublishPermit,
        _ refusal: QuotaRefusal?, _ respond: @escaping Respond
    ) {
        let gathering = Gathering<CampaignAnswer.AliasResult>(count: pushes.count) { [self] results in
            let numbered = zip(pushes, results).map { (itemIndex: $0.itemIndex, result: $1) }
            let ordered = numbered.sorted { $0.itemIndex < $1.itemIndex }
            respond(CampaignAnswer.aliases(ordered, form: form, durability: durability))
        }
        for (place, (push, key)) in zip(pushes, keys).enumerated() {
            switch (key, refusal) {
            case (.unreadable, _): gathering.take(CampaignAnswer.busyResult, at: place)
            case (.found(let key), _):
                carry(push, to: nil, key: key, permit) { gathering.take(Self.result($0), at: place) }
            case (.absent, let refusal?): gathering.take(CampaignAnswer.overQuotaResult(refusal), at: place)
            case (.absent, nil): carry(push, permit) { gathering.take($0, at: place) }
            }
        }
    }

    /// Looks up the key of an earlier push with the same request id to the same alias.
    private func find(_ push: AliasPush, completion: @escaping (Found<CallKey>) -> Void) {
        find(push.key) { [self] found in
            switch found {
            case .unreadable: completion(.unreadable)
            case .absent: completion(.absent)
            case .found(let task):
                // The request id may have been used for a push to another alias, which is a different request.
                guard push.isApart(from: task) else { return completion(.found(push.key)) }
                find(push.ownKey) { own in
                    switch own {
                    case .unreadable: completion(.unreadable)
                    case .absent: completion(.absent)
                    case .found: completion(.found(push.ownKey))
                    }
                }
            }
        }
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
                find(push.key) { [self] answer in
                    guard let task = answer.value else { return completion(CampaignAnswer.busyResult) }
                    guard push.isApart(from: task) else { return completion(CampaignAnswer.conflictResult) }
                    carry(push, to: cids, key: push.ownKey, permit) { completion(Self.result($0)) }
                }
            }
        }
    }

    private func carry(
        _ push: AliasPush, to cids: [DeviceID]?, key: CallKey, _ permit: PublishPermit,
        completion: @escaping (Carried) -> Void
    ) {
        let sending = TaskCoordinator.Sending(
            task: push.task, app: push.app.key, createdAt: owner.now, content: push.content, isBulk: false,
            permit: permit)
        let targets = cids?.map { push.app.target($0, of: push.task) }
        carry(sending, targets, key: key, digest: push.digest, app: push.app, completion: completion)
    }

    private static func result(_ carried: Carried) -> CampaignAnswer.AliasResult {
        switch carried {
        case .outcomes(let task, let outcomes): .reached(task, outcomes)
        case .conflict: CampaignAnswer.conflictResult
        case .busy, .refused: CampaignAnswer.busyResult
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

    private func push(_ push: TagPush, _ byteCount: Int, _ respond: @escaping Respond) {
        find(push.key) { [self] found in
            switch found {
            case .unreadable: respond(.busy)
            case .found: send(push, to: nil, owner.permitOfKeptTask, respond)
            case .absent:
                guard let permit = permit(.byTag(push), byteCount, respond) else { return }
                matching(push.candidates, of: push.app) { [self] found in
                    guard let found else { return respond(.busy) }
                    send(push, to: found, permit, respond)
                }
            }
        }
    }

    private func send(
        _ push: TagPush, to cids: [DeviceID]?, _ permit: PublishPermit, _ respond: @escaping Respond
    ) {
        let sending = TaskCoordinator.Sending(
            task: push.task, app: push.app.key, createdAt: owner.now, content: push.content, isBulk: false,
            permit: permit)
        let targets = cids?.map { push.app.target($0, of: push.task) }
        carry(sending, targets, key: push.key, digest: push.digest, app: push.app) { [self] result in
            switch result {
            case .outcomes(let task, let outcomes):
                respond(
                    CampaignAnswer.byTag(
                        task, outcomes, refused: push.refused, notes: push.notes, durability: durability))
            case .conflict: respond(CampaignAnswer.requestConflict)
            case .busy, .refused: respond(.busy)
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
