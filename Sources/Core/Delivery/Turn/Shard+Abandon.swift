// The end of a shard whose partition has another owner: each caller gets an answer immediately.
//
// The shard can no longer find out whether pending writes became durable. Each pending request is answered with "retry", and no
// pending effect is performed.

internal import Structures
internal import Wire

extension Shard {
    /// Answers all requests that wait for a commit, a read or a later turn.
    ///
    /// The shard must not be used afterwards.
    ///
    /// Each request gets exactly one answer. The gateway performs the effects as usual.
    package mutating func abandon(now: GatewayTime) {
        begin(now)
        core.isAbandoned = true
        while let effect = outbox.popWaiting() { refuse(effect) }
        for reply in tasks.dropCalls() { outbox.send(.answered(reply.origin, nil)) }
        for reply in feeds.dropWaiters() { outbox.send(.answered(reply.origin, nil)) }
        refuseWaitingCommands()
        // Most steps end when their read fails. If a step starts another read, the next round fails that read.
        while !core.continuations.isEmpty || !core.slices.isEmpty || searches.hasMemorySearches {
            while let search = searches.popMemorySearch() {
                outbox.send(.messageTrace(search.origin, .unreadable))
            }
            var reads: [ReadToken: Continuation] = [:]
            swap(&reads, &core.continuations)
            for (token, continuation) in reads.sorted(by: { $0.key < $1.key }) {
                continuation(&self, StoreReply(token: token, results: [], failure: "the part is given up"))
            }
            var due: [Slice] = []
            swap(&due, &core.slices)
            for slice in due { slice(&self) }
            while let effect = outbox.popWaiting() { refuse(effect) }
        }
        hasSlicesAtHand = false
    }

    /// Ends the commands that wait for a device.
    ///
    /// Commands of a device that is being loaded end with its read.
    private mutating func refuseWaitingCommands() {
        for slot in devices.slots() where devices.isOccupied(slot) {
            let device = devices.at(slot)
            guard device.value.waiting != .none, !device.value.flags.contains(.loading) else { continue }
            drainWaiting(slot, .failed)
        }
    }

    /// Answers the effect's caller with "retry"; an effect without a caller is dropped.
    private mutating func refuse(_ effect: PendingEffect) {
        if case .leased(let origin, _) = effect.kind { return outbox.send(.leased(origin, [])) }
        // Other effects need no answer: devices reconnect, and the next owner finds tasks and first acks in the rows.
        if let excused = Self.excused(effect.kind) { outbox.send(excused.busy) }
    }

    /// Answers "retry" to all callers that wait for a commit, because the store is stalled.
    ///
    /// Their requests continue and may still become durable. A caller that repeats its request under the same id then gets the
    /// result. A lease is not answered: its jobs are returned when the lease is durable, or become due again if its caller has
    /// disconnected.
    package mutating func excuseWaiting(now: GatewayTime) {
        begin(now)
        for place in 0..<outbox.waitingCount {
            guard let excused = Self.excused(outbox.kind(at: place)), excused.caller != .none else { continue }
            outbox.send(excused.busy)
            outbox.replace(at: place, excused.rest)
        }
    }

    /// Returns the "retry" answer, its caller, and the effect without the caller; `nil` if the effect has no caller.
    private static func excused(
        _ kind: PendingEffect.Kind
    ) -> (busy: Effect, caller: Origin, rest: PendingEffect.Kind)? {
        switch kind {
        case .publish(let origin, let outcome, let slot, let cid):
            let busy = PublishOutcome(code: .busy, cid: outcome.cid, task: outcome.task)
            return (.publishAnswered(origin, busy), origin, .publish(.none, outcome, device: slot, cid: cid))
        case .settled(let origin, let verdicts):
            let busy = verdicts.map { ResultVerdict(job: $0.job, verdict: .storeFailed) }
            return (.settled(origin, busy), origin, .settled(.none, verdicts))
        case .answer(let origin, let answer): return (.answered(origin, nil), origin, .answer(.none, answer))
        case .directoryReply(let origin, let reply):
            return (.directoryAnswered(origin, .failed), origin, .directoryReply(.none, reply))
        case .told(.deviceStatus(let origin, let cid, let answer)):
            return (.deviceStatus(origin, cid, .unreadable), origin, .told(.deviceStatus(.none, cid, answer)))
        case .told(.messageTrace(let origin, let answer)):
            return (.messageTrace(origin, .unreadable), origin, .told(.messageTrace(.none, answer)))
        case .told(.receiptAnswered(let origin, let answer)):
            return (.receiptAnswered(origin, .busy), origin, .told(.receiptAnswered(.none, answer)))
        case .told, .reported, .welcome, .updated, .leased, .taskDue, .launched, .firstAck, .resume: return nil
        }
    }
}
