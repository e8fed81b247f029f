internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

// What a caller is told when its question found no owner: the form of each answer that says "come back later".

extension PublishOutcome {
    /// The owner took nothing; the caller retries later.
    static func busy(_ command: borrowing PublishCommand) -> PublishOutcome {
        PublishOutcome(code: .busy, cid: command.cid, task: command.task)
    }
}

extension LoopMessage {
    /// The answers that say busy to each question of the message; none for what asks nothing.
    var busyAnswers: [LoopAnswer] {
        var answers: [LoopAnswer] = []
        forEachBusyAnswer { answers.append($0) }
        return answers
    }
}

extension LoopAnswer {
    /// The same answer in its busy form; `nil` for one that has nothing to leave out.
    var busyForm: LoopAnswer? {
        switch self {
        case .leased(let origin, let jobs): jobs.isEmpty ? nil : .leased(origin, [])
        case .settled: nil
        case .published(let origin, let outcome):
            .published(origin, PublishOutcome(code: .busy, cid: outcome.cid, task: outcome.task))
        case .deviceStatus(let origin, let cid, _): .deviceStatus(origin, cid, .unreadable)
        case .trace(let origin, _): .trace(origin, .unreadable)
        case .directory(let origin, _): .directory(origin, .failed)
        case .task(let origin, _): .task(origin, .busy)
        case .receipt(let origin, _): .receipt(origin, .busy)
        case .gateway(let origin, _): .gateway(origin, .busy)
        }
    }
}
