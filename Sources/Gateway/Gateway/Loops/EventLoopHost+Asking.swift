internal import EventLoops

// Questions between the hosts of one process, such as for metrics. No other file submits work to a loop and waits for its result.
// A closure cannot be sent to another gateway; use a `PartitionRequest` for that.
extension EventLoopHost {
    /// Runs `work` on a loop, then `completion` with its result on this loop; each runs in a separate turn.
    func ask<Answer: Sendable>(
        _ target: Int, _ work: @escaping @Sendable (EventLoopHost) -> Answer, completion: @escaping (Answer) -> Void
    ) {
        ask(target, waiting: { member, reply in reply(work(member)) }, completion: completion)
    }

    /// Runs `work` on a loop for a result that comes later; `work` keeps `reply` and calls it once.
    func ask<Answer: Sendable>(
        _ target: Int,
        waiting work: @escaping @Sendable (EventLoopHost, _ reply: @escaping @Sendable (Answer) -> Void) -> Void,
        completion: @escaping (Answer) -> Void
    ) {
        let (asker, bound) = (loop, LoopBound(completion, on: loop))
        context.hosts[target].submit { member in
            work(member) { answer in asker.submit { bound.wrapped(answer) } }
        }
    }

    /// Runs `work` on every host, this one included; `completion` receives all results in the order of the hosts.
    func askAll<Answer: Sendable>(
        _ work: @escaping @Sendable (EventLoopHost) -> Answer, completion: @escaping ([Answer]) -> Void
    ) {
        let gathering = Gathering(count: context.hostCount, completion: completion)
        for target in 0..<context.hostCount { ask(target, work) { gathering.take($0, at: target) } }
    }

    /// Runs `work` on this loop in its next turn, after the caller has returned.
    func inNextTurn(_ work: @escaping (EventLoopHost) -> Void) {
        let bound = LoopBound((member: self, work: work), on: loop)
        loop.submit { bound.wrapped.work(bound.wrapped.member) }
    }
}

extension GatewayContext {
    /// Submits `work` to every loop.
    ///
    /// Safe from any thread; does not wait.
    func tellAll(_ work: @escaping @Sendable (EventLoopHost) -> Void) {
        for member in hosts { member.submit(work) }
    }
}
