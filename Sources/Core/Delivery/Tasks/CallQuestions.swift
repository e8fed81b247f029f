internal import Structures
package import Wire

/// The answer to `BeginCall`.
package enum CallStart: Sendable, Codable {
    /// The caller runs the call with this id and these devices, which are those of the first attempt.
    case begun(TaskID, [DeviceID])
    /// The call was already answered.
    case ended(TaskID, [PublishOutcome])
    /// The request id was used with another body.
    case conflict
    /// The row would exceed the store's limit.
    case tooLarge
    case busy
}

/// Begins a call to several devices, durably and once; repetitions get the same ids.
///
/// Without a task (`.none`) the question begins nothing: it only repeats a known call, and an unknown one is answered busy.
package struct BeginCall: ShardQuestion {
    package var key: CallKey
    package var digest: UInt64
    package var task: TaskID
    package var devices: [DeviceID]
    package init(_ key: CallKey, digest: UInt64, _ task: TaskID, _ devices: [DeviceID]) {
        (self.key, self.digest, self.task, self.devices) = (key, digest, task, devices)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<CallStart>) {
        guard devices.count <= TaskBounds.callTargets else { return shard.answer(reply, .tooLarge) }
        if let running = shard.tasks.calls[key] {
            guard running.digest == digest else { return shard.answer(reply, .conflict) }
            return shard.tasks.wait(for: key, reply)
        }
        guard shard.store.acceptsWrites, shard.tasks.calls.count < shard.limits.callsUnderWay else {
            return shard.answerBusy(reply)
        }
        shard.tasks.begin(key, RunningCall(digest: digest, task: task, since: shard.now))
        shard.run(key, digest, task, task.isNone ? nil : devices, reply)
    }
}

/// Ends a call with its outcomes, or as unfinished (`nil`); repetitions get the answer.
///
/// `true` if the call has ended or is not known any more; `false` if its outcomes are not stored.
package struct EndCall: ShardQuestion {
    package var key: CallKey
    package var outcomes: [PublishOutcome]?
    package init(_ key: CallKey, _ outcomes: [PublishOutcome]?) { (self.key, self.outcomes) = (key, outcomes) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Bool>) {
        guard let call = shard.tasks.calls[key] else { return shard.answer(reply, true) }
        guard let outcomes, outcomes.count <= TaskBounds.callTargets else {
            let waiting = shard.tasks.end(key)?.waiting ?? []
            shard.answerBusy(reply)
            for other in waiting { shard.answerBusy(other) }
            return
        }
        shard.inBatch(in: key.bucket) { shard in
            shard.store.putRow(
                CallRow.answerKey(key), wakeAt: 0, prior: .maybe(wakeAt: 0),
                byteCount: outcomes.count * RequestRow.byteCount
            ) { CallRow.writeAnswer(outcomes, digest: call.digest, into: $0) }
        }
        shard.tasks.end(key)
        shard.answer(reply, true)
        let repeated = outcomes.map { outcome in
            var outcome = outcome
            outcome.isRepeat = true
            return outcome
        }
        for other in call.waiting { shard.answer(other, .ended(call.task, repeated)) }
    }
}

extension Shard {
    /// Restarts calls whose runner is silent, with a waiting repetition as the new runner.
    ///
    /// A runner may be on another gateway and be lost with its link or process. Two runners do no harm because a device accepts a
    /// task's message once.
    mutating func takeOverCalls() {
        while let call = tasks.popOverdue(now) {
            guard let task = tasks.calls[call.key]?.task else { continue }
            run(call.key, call.digest, task, nil, call.runner)
        }
    }

    /// Lets the caller run the call; the answer contains the targets of the first attempt, if any.
    fileprivate mutating func run(
        _ key: CallKey, _ digest: UInt64, _ task: TaskID, _ targets: [DeviceID]?, _ reply: ShardReply<CallStart>
    ) {
        let begunKey = StoreKey(key.bucket, .request, ownerHigh: key.high, ownerLow: key.low)
        lookUp(begunKey) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.dropCall(key, reply, nil)
            case .found(let row): stored = row
            case .absent:
                guard let targets else { return shard.dropCall(key, reply, nil) }
                shard.inBatch(in: key.bucket) { shard in
                    shard.store.putRow(
                        begunKey, wakeAt: 0, prior: .none, byteCount: CallRow.byteCount(targets: targets)
                    ) {
                        CallRow.write(digest: digest, task: task, targets: targets, into: $0)
                    }
                }
                return shard.answer(reply, .begun(task, targets))
            }
            guard let begun = CallRow.read(stored.bytes), begun.digest == digest else {
                return shard.dropCall(key, reply, .conflict)
            }
            shard.tasks.rename(key, begun.task)
            shard.lookUp(CallRow.answerKey(key)) { shard, answered in
                if case .unreadable = answered { return shard.dropCall(key, reply, nil) }
                if case .found(let stored) = answered, let outcomes = CallRow.readAnswer(stored.bytes) {
                    shard.numbers.repeatedRequests &+= 1
                    return shard.dropCall(key, reply, .ended(begun.task, outcomes))
                }
                // The call began before the restart, or its caller did not finish it. It runs again with the same ids.
                shard.answer(reply, .begun(begun.task, begun.targets))
            }
        }
    }

    /// Ends a call that could not begin, and gives all waiting repetitions the same answer (`nil`: busy).
    private mutating func dropCall(_ key: CallKey, _ reply: ShardReply<CallStart>, _ start: CallStart?) {
        let waiting = tasks.end(key)?.waiting ?? []
        for caller in [reply] + waiting {
            if let start { answer(caller, start) } else { answerBusy(caller) }
        }
    }
}
