internal import Campaigns
internal import Delivery
internal import PushAPI
internal import Wire

extension LoopMessage {
    /// True when the part's shard, or the loop that has it, is to take it; false for what any loop of the number takes.
    var isForShard: Bool {
        switch self {
        case .publishes, .lease, .settle, .extend, .deviceStatus, .trace, .receipt, .directory, .task, .list, .launched,
            .question:
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
        case .adopt, .launched, .answers, .news: break
        }
    }
}
