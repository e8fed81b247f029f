internal import Structures
internal import Wire

extension Shard {
    mutating func release(_ effect: PendingEffect) {
        switch effect.kind {
        case .publish(let origin, let outcome, let slot, let cid):
            outbox.send(.publishAnswered(origin, outcome))
            if slot != .none, isDevice(slot, cid) { pump(slot) }
        case .welcome(let session, let welcome):
            guard let slot = device(of: session) else { return outbox.send(.leftBeforeWelcome(welcome.cid)) }
            outbox.send(.welcome(session, welcome))
            openGate(slot)
        case .updated(let session, let result):
            guard let slot = device(of: session) else { return }
            outbox.send(.updated(session, result))
            openGate(slot)
        case .leased(let origin, let leased):
            // While the lease became durable, an ack may have cancelled a job, or a job may have expired. Such jobs are not
            // returned to the sender.
            let still = leased.filter { job in
                if isPlanted(.overtakenLeaseShown) { return true }
                guard let slot = jobs.find(job.message) else { return false }
                let row = jobs.at(slot)
                return row.value.row.state == .leased && row.value.row.lease == job.leaseID
                    && !isOver(row.value.row.facts.expiresAt)
            }
            for job in still { numbers[job.channel].leasesGiven &+= 1 }
            outbox.send(.leased(origin, still))
        case .settled(let origin, let verdicts): outbox.send(.settled(origin, verdicts))
        case .answer(let origin, let answer): outbox.send(.answered(origin, answer))
        case .told(let effect): outbox.send(effect)
        case .reported(let session, let sign): reportsDurable(session, sign)
        case .taskDue(let record): outbox.send(.taskDue(record))
        case .launched(let record): outbox.send(.launched(record))
        case .firstAck(let first): outbox.send(.firstAck(first))
        case .resume(let slot, let cid): if isDevice(slot, cid) { pump(slot) }
        case .directoryReply(let origin, let reply): outbox.send(.directoryAnswered(origin, reply))
        }
    }

    /// Counts a sent Welcome or UpdateResult; the last pending one opens the device's stream.
    ///
    /// The stream waits because a client discards all messages before the result of its latest update.
    private mutating func openGate(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.gates > 0 else { return }
        device.value.gates -= 1
        guard device.value.gates == 0 else { return }
        device.value.openGate()
        pump(slot)
    }
}
