internal import Delivery
internal import Wire

/// A report requested during the run, from one loop.
struct SimulatedReport {
    let name: String
    /// The records; more may be added before the answer.
    let records: () -> [Record]
    let life: Int
    /// The number of durable messages at the request.
    let accepted: Int
    let ends: [Int]

    init(_ name: String, life: Int, _ records: @escaping () -> [Record]) {
        (self.name, self.records, self.life) = (name, records, life)
        let records = records()
        accepted = records.count(where: \.everDurable)
        ends = FinalState.allCases.map { state in records.count { $0.durableFinal == state } }
    }

    /// Returns an error if the totals omit a message that was durable at the request, or include one that has no row yet.
    func fault(of totals: TaskTotals) -> String? {
        let records = records()
        let shown = records.count { $0.everDurable || $0.table != nil || $0.final != nil }
        guard accepted...shown ~= Int(totals.accepted) else {
            return "\(name): \(totals.accepted) reported, of \(accepted) before and \(shown) now"
        }
        for (state, before) in zip(FinalState.allCases, ends) {
            let now = records.count { $0.final == state || $0.durableFinal == state }
            guard before...now ~= Int(totals[state]) else {
                return "\(name): \(totals[state]) reported as \(state), of \(before) before and \(now) now"
            }
        }
        return nil
    }
}

// Reports during the run. Uses the generator of rare events.
extension World {
    static let reportRoute: UInt64 = 41

    func askSomeReport() {
        guard isUp else { return }
        eventCount += 1
        if rare.chance.perMille(500), !tasks.isEmpty {
            let task = rare.chance.one(of: Array(tasks.suffix(12)))
            ask("task \(task.index)", task.id, plan.apps[task.app].key) { task.records }
        } else if !broadcasting.all.isEmpty {
            let broadcast = rare.chance.one(of: Array(broadcasting.all.suffix(12)))
            ask("broadcast \(broadcast.index)", broadcast.task.id, broadcast.task.app) {
                Array(broadcast.records.values)
            }
        }
    }

    private func ask(_ name: String, _ task: TaskID, _ app: AppKey, _ records: @escaping () -> [Record]) {
        for (index, loop) in loops.enumerated() {
            let count = loops.count
            let report = SimulatedReport(name, life: life) {
                records().filter { $0.identity.bucket.loop(of: count) == index }
            }
            rare.reports.append(report)
            loop.shard.ask(
                TaskTotalsQuery(task, app, share(of: loop)),
                origin: Origin(route: Self.reportRoute, request: UInt64(rare.reports.count - 1)), now: gatewayNow)
            loop.perform()
        }
    }

    func reportAnswered(_ origin: Origin, _ answer: Answer?) {
        let report = rare.reports[Int(origin.request)]
        guard let totals = (answer as? Found<TaskTotals>)?.value, report.life == life else { return }
        if let text = report.fault(of: totals) { fail(.books, text) }
    }
}
