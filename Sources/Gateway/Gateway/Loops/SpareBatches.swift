internal import Platform

/// A pool of empty batches; it avoids allocations, at the cost of one or two lock operations a turn.
///
/// The pool is shared by all loops because traffic may flow in one direction only. Each loop's own pool would then either
/// overflow or stay empty.
final class SpareBatches: Sendable {
    private let commands = Lock<[CommandBatch]>([])
    private let answers = Lock<[AnswerBatch]>([])

    /// The most batches kept of each kind; a pair of loops has only a few in flight.
    private static let limit = 32

    func takeCommands() -> CommandBatch { commands.withLock { $0.popLast() } ?? CommandBatch() }
    func takeAnswers() -> AnswerBatch { answers.withLock { $0.popLast() } ?? AnswerBatch() }

    func keep(_ batch: CommandBatch) {
        guard batch.empty() else { return }
        commands.withLock { if $0.count < Self.limit { $0.append(batch) } }
    }

    func keep(_ batch: AnswerBatch) {
        guard batch.empty() else { return }
        answers.withLock { if $0.count < Self.limit { $0.append(batch) } }
    }
}
