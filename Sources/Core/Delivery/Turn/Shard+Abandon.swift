// The end of a shard whose part another gateway serves: each caller gets an answer at once.
//
// What an answer would have told may be durable or not; the shard does not know any more. So each question that waits is
// answered in the form that says "ask again". Nothing that waits is carried out on the way.

internal import Structures
internal import Wire

extension Shard {
    /// Answers everything that waits for a commit, a reader or its turn; nothing may be asked of the shard afterwards.
    ///
    /// Each question gets one answer, as it would have. The gateway performs the effects as those of any call.
    package mutating func abandon(now: GatewayTime) {
        begin(now)
        core.isAbandoned = true
        while let effect = outbox.popWaiting() { refuse(effect) }
        for origin in tasks.dropCalls() { outbox.send(.task(origin, .busy)) }
        for origin in feeds.dropWaiters() { outbox.send(.task(origin, .busy)) }
        refuseWaitingCommands()
        // An unread row ends most steps. A step may want to read another row first: that read fails, too.
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

    /// Ends the commands that wait for a device; those of a device that is being loaded end with its read.
    private mutating func refuseWaitingCommands() {
        for slot in devices.slots() where devices.isOccupied(slot) {
            let device = devices.at(slot)
            guard device.value.waiting != .none, !device.value.flags.contains(.loading) else { continue }
            drainWaiting(slot, .failed)
        }
    }

    /// Answers in the form that says "ask again"; what asks nothing is dropped.
    private mutating func refuse(_ effect: PendingEffect) {
        if case .leased(let origin, _) = effect.kind { return outbox.send(.leased(origin, [])) }
        // A device and its session come again; the part's next owner finds tasks and first acks in its rows.
        if let excused = Self.excused(effect.kind) { outbox.send(excused.busy) }
    }

    /// Answers the callers of all that waits for a commit while the log stands still; what they asked for goes on.
    ///
    /// It may become durable later, as after a lost answer: a caller that repeats its request under the same id learns which.
    /// A lease is not answered: its jobs go out when they are leased, and come back when their caller has left.
    package mutating func excuseWaiting(now: GatewayTime) {
        begin(now)
        for place in 0..<outbox.waitingCount {
            guard let excused = Self.excused(outbox.kind(at: place)), excused.caller != .none else { continue }
            outbox.send(excused.busy)
            outbox.replace(at: place, excused.rest)
        }
    }

    /// The answer that says "ask again", its caller, and the effect without the caller; `nil` where no caller waits.
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
        case .taskAnswer(let origin, let answer):
            return (.task(origin, .busy), origin, .taskAnswer(.none, answer))
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
