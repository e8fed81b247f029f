internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

extension LoopMessage {
    /// True when the part's shard, or the loop that has it, is to take it; false for what any loop of the number takes.
    var isForShard: Bool {
        switch self {
        case .publishes, .lease, .settle, .extend, .deviceStatus, .trace, .receipt, .directory, .task, .list, .launched,
            .broadcasts, .broadcastNews, .question:
            true
        case .answers, .news, .adopt: false
        }
    }

    /// Every question in the message, answered so that the one who asked asks again.
    func forEachBusyAnswer(_ body: (LoopAnswer) -> Void) {
        switch self {
        case .publishes(let batch):
            batch.forEach { command in
                body(.published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task)))
            }
        case .list(let fanout):
            fanout.forEach { command in
                body(.published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task)))
            }
        case .lease(let command): body(.leased(command.origin, []))
        case .settle(let results, _, let origin):
            body(.settled(origin, results.map { ResultVerdict(job: $0.job, verdict: .storeFailed) }))
        case .extend(let items, _, _, let origin):
            body(.settled(origin, items.map { ResultVerdict(job: $0.job, verdict: .storeFailed) }))
        case .deviceStatus(let device, let origin): body(.deviceStatus(origin, device.cid, .unreadable))
        case .trace(_, let origin): body(.trace(origin, .unreadable))
        case .receipt(let command): body(.receipt(command.origin, .busy))
        case .directory(let command): body(.directory(command.origin, .failed))
        case .task(_, let origin): body(.task(origin, .busy))
        case .question(_, let origin): body(.gateway(origin, .busy))
        // A device comes back by itself; a broadcast's home tells of it again when the part is taken over.
        case .adopt, .launched, .broadcasts, .broadcastNews, .answers, .news: break
        }
    }

    /// Writes into every question of the message which other gateway asked it.
    mutating func setAsker(_ node: Int) {
        switch self {
        case .publishes(let batch): batch.setAsker(node)
        case .list(let fanout): self = .list(fanout.asked(by: node))
        case .lease(var command):
            command.origin = command.origin.asked(by: node)
            self = .lease(command)
        case .settle(let results, let apps, let origin):
            self = .settle(results, apps: apps, origin.asked(by: node))
        case .extend(let items, let milliseconds, let apps, let origin):
            self = .extend(items, milliseconds: milliseconds, apps: apps, origin.asked(by: node))
        case .deviceStatus(let device, let origin): self = .deviceStatus(device, origin.asked(by: node))
        case .trace(let message, let origin): self = .trace(message, origin.asked(by: node))
        case .receipt(var command):
            command.origin = command.origin.asked(by: node)
            self = .receipt(command)
        case .directory(var command):
            command.origin = command.origin.asked(by: node)
            self = .directory(command)
        case .task(let command, let origin): self = .task(command, origin.asked(by: node))
        case .question(let question, let origin): self = .question(question, origin.asked(by: node))
        case .answers, .adopt, .launched, .broadcasts, .broadcastNews, .news: break
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
