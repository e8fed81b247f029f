internal import Delivery
internal import Wire

struct ReportModel {
    private var totals: [Int: TaskTotals] = [:]

    mutating func add(_ part: TaskTotals, of task: Int) { totals[task, default: TaskTotals()].add(part) }

    subscript(task: Int) -> TaskTotals? { totals[task] }
}

extension Oracle {
    /// Checks after an answered stop that no message of the task is pending.
    func stopped(_ task: SimulatedTask) {
        for record in task.records where record.durableTable != nil {
            fail(.finalState, "message \(record.index) is pending though its task was stopped")
        }
    }

    /// Checks after an answered revoke that the revoked message has ended.
    func revoked(_ record: Record, _ old: Record) {
        if !old.isOnce, requests.areForgotten { return }
        // A list that is still being sent may reach the device after a revoke of its task.
        if old.everDurable, old.durableTable != nil, old.durableSince < record.askedAt {
            fail(.finalState, "message \(old.index) is pending though message \(record.index) revoked it")
        }
    }

    func total(_ task: SimulatedTask, _ totals: TaskTotals) {
        reports.add(totals, of: task.index)
    }

    /// Checks that every task's report is the sum of its messages' final states.
    func checkTaskTotals() {
        world.askTotals()
        for task in world.tasks {
            let accepted = task.records.filter { $0.everDurable && $0.durableFinal != nil }
            guard let totals = reports[task.index] else {
                return fail(.progress, "task \(task.index) was not reported")
            }
            if totals.accepted != accepted.count || totals.pending != 0 {
                let ends = accepted.map { "\($0.index) \($0.durableFinal.map { "\($0)" } ?? "")" }
                return fail(
                    .books,
                    "task \(task.index): \(totals.accepted) reported, \(totals.pending) of them pending, \(ends) were accepted"
                )
            }
            for state in FinalState.allCases {
                let count = accepted.count { $0.durableFinal == state }
                if totals[state] != count {
                    return fail(
                        .books, "task \(task.index): \(totals[state]) reported as \(state), there were \(count)")
                }
            }
        }
    }
}
