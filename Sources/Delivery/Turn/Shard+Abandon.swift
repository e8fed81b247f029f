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
        isAbandoned = true
        while let effect = outbox.popWaiting() { refuse(effect) }
        refuseWaitingCommands()
        // An unread row ends most steps. A step may want to read another row first: that read fails, too.
        while !continuations.isEmpty || !slices.isEmpty || searches.hasMemorySearches {
            while let search = searches.popMemorySearch() {
                outbox.send(.messageTrace(search.origin, .unreadable))
            }
            var reads: [ReadToken: Continuation] = [:]
            swap(&reads, &continuations)
            for (token, continuation) in reads.sorted(by: { $0.key < $1.key }) {
                continuation(&self, StoreReply(token: token, results: [], failure: "the part is given up"))
            }
            var due: [Slice] = []
            swap(&due, &slices)
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
        switch effect.kind {
        case .publish(let origin, let outcome, _, _):
            outbox.send(
                .publishAnswered(origin, PublishOutcome(code: .busy, cid: outcome.cid, task: outcome.task)))
        case .leased(let origin, _): outbox.send(.leased(origin, []))
        case .settled(let origin, let verdicts):
            outbox.send(.settled(origin, verdicts.map { ResultVerdict(job: $0.job, verdict: .storeFailed) }))
        case .task(let origin, _): outbox.send(.task(origin, .busy))
        case .directory(let origin, _): outbox.send(.directoryAnswered(origin, .failed))
        case .told(.deviceStatus(let origin, let cid, _)): outbox.send(.deviceStatus(origin, cid, .unreadable))
        case .told(.messageTrace(let origin, _)): outbox.send(.messageTrace(origin, .unreadable))
        case .told(.receiptAnswered(let origin, _)): outbox.send(.receiptAnswered(origin, .busy))
        // A device and its session come again; the part's next owner finds tasks and first acks in its rows.
        case .told, .welcome, .updated, .taskDue, .launched, .firstAck, .resume: break
        }
    }
}
