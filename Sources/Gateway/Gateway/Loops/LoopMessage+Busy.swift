internal import Delivery
internal import Quotas
internal import Wire

extension LoopMessage {
    /// True when the part's shard, or the loop that has it, is to take it; false for what any loop of the number takes.
    var isForShard: Bool {
        switch self {
        case .publishes, .request, .list: true
        case .answers, .news, .adopt: false
        }
    }

    /// Whether the message has no answer, and its sender sends it again.
    var isNotice: Bool {
        if case .request(let request, _) = self { type(of: request).isNotice } else { false }
    }

    /// Visits the busy answer of each question in the message.
    func forEachBusyAnswer(_ body: (LoopAnswer) -> Void) {
        switch self {
        case .publishes(let batch): batch.forEach { body(.busy($0)) }
        case .list(let fanout): fanout.forEach { body(.busy($0)) }
        case .request(_, let origin): if origin != .none { body(.answered(origin, nil)) }
        // The device reconnects after its own backoff.
        case .adopt, .answers, .news: break
        }
    }

    /// The same, gathered.
    var busyAnswers: [LoopAnswer] {
        var answers: [LoopAnswer] = []
        forEachBusyAnswer { answers.append($0) }
        return answers
    }

    /// Writes into every question of the message which other gateway asked it.
    mutating func setAsker(_ node: Int) {
        switch self {
        case .publishes(let batch): batch.setAsker(node)
        case .list(let fanout): self = .list(fanout.asked(by: node))
        case .request(let request, let origin): self = .request(request, origin.asked(by: node))
        case .answers, .adopt, .news: break
        }
    }
}

extension Fanout {
    fileprivate func asked(by node: Int) -> Fanout {
        Fanout(
            task: task, app: app, createdAt: createdAt, content: content, isBulk: isBulk,
            route: Origin(route: route, request: 0).asked(by: node).route, targets: targets)
    }
}
