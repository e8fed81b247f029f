internal import Platform

/// Emptied batches for whichever loop sends next: a turn takes the lock once or twice, and allocates nothing.
///
/// Shared by all loops, because traffic may go one way: then one loop would only ever give and another only take.
final class SpareBatches: Sendable {
    private let commands = Lock<[CommandBatch]>([])
    private let answers = Lock<[AnswerBatch]>([])

    /// Kept of each kind; a pair of loops has a few under way.
    private static let limit = 32

    func takeCommands() -> CommandBatch { commands.withLock { $0.popLast() } ?? CommandBatch() }
    func takeAnswers() -> AnswerBatch { answers.withLock { $0.popLast() } ?? AnswerBatch() }

    /// Takes back what was read to its end.
    func keep(_ batch: CommandBatch) {
        guard batch.empty() else { return }
        commands.withLock { if $0.count < Self.limit { $0.append(batch) } }
    }

    func keep(_ batch: AnswerBatch) {
        guard batch.empty() else { return }
        answers.withLock { if $0.count < Self.limit { $0.append(batch) } }
    }
}
