internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import Quotas
internal import Wire

// Execution of a shard's effects. A new effect needs changes only in this file.
extension Partition {
    /// Runs the work that may call the shard, after the effects of a call were performed.
    func performed() {
        host.answerDeferred()
        if core.pointee.shard.hasSlicesAtHand { continueWork() }
        if !launches.isEmpty { passLaunches() }
        if !tokenNews.isEmpty {
            let news = tokenNews
            tokenNews.removeAll()
            for item in news { host.directoryHandler.follow(item) }
        }
        guard !dueTasks.isEmpty || !firstAcks.isEmpty else { return }
        let (due, first) = (dueTasks, firstAcks)
        dueTasks.removeAll()
        firstAcks.removeAll()
        for record in due { coordinator.taskDue(record, of: self) }
        for ack in first { coordinator.endSiblings(of: ack) }
    }

    /// Announces new broadcasts to every partition; this partition is last because it starts to deliver at once.
    private func passLaunches() {
        let records = launches
        launches.removeAll()
        for record in records {
            for target in 0..<context.partitionCount where target != number {
                host.tell(LaunchBroadcast(record: record), to: target)
            }
            launch(record)
        }
    }

    func perform(_ effect: Effect) {
        switch effect {
        case .deliver(let session, let deliver):
            sessions.send(session, deliver)
        case .broadcast(let session, let broadcast):
            sessions.send(session, broadcast)
        case .publishAnswered(let origin, let outcome):
            if let counter = LoopCounter.refused(outcome.code) { metrics.count(counter) }
            host.answer(.published(origin, outcome))
        case .welcome(let session, let welcome):
            sessions.welcome(session, welcome)
        case .leftBeforeWelcome(let cid):
            sessions.noteWelcome(cid)
        case .ping(let session), .keepAlive(let session):
            sessions.ping(session)
        case .pong(let session, let nonce):
            sessions.pong(session, nonce: nonce)
        case .finished(let session):
            sessions.settled(session)
        case .updated(let session, let result):
            sessions.send(session, result)
        case .close(let session, let code, let reason):
            sessions.close(session, code, reason: reason, isForgotten: true)
        case .leased(let origin, let jobs):
            // During a release all channels are reported as due, so that callers ask the next owner for the remaining jobs.
            let due = isServing ? core.pointee.shard.dueChannels : .all
            host.answer(.answered(origin, Optional(LeaseAnswer(jobs: jobs, due: due))))
        case .settled(let origin, let verdicts):
            host.answer(.answered(origin, verdicts))
        case .jobsAvailable(let channel):
            core.pointee.jobNews.insert(ChannelSet(channel))
            let news = GatewayNews.jobsAvailable(channel, part: number)
            for other in 0..<context.hostCount where other != host.index { host.send(.news(news), toHost: other) }
            context.cluster?.links.tell(news)
        case .deviceStatus(let origin, let cid, let status):
            host.answer(.answered(origin, noting(status, of: cid)))
        case .messageTrace(let origin, let trace):
            host.answer(.answered(origin, trace))
        case .directoryAnswered(let origin, let reply):
            host.answer(.answered(origin, reply))
        case .answered(let origin, let answer):
            host.answer(.answered(origin, answer))
        case .receiptAnswered(let origin, let said):
            host.answer(.answered(origin, said))
        case .taskDue(let record):
            // The shard must not be called during its effects, so the task starts after them.
            dueTasks.append(record)
        case .launched(let record):
            launches.append(record)
        case .firstAck(let first):
            firstAcks.append(first)
        case .tokens(let news):
            tokenNews.append(news)
        case .log(let event):
            context.log.write(event)
        }
    }

    /// Adds this gateway's records of refused Hellos and of reconnect delays to the answer.
    private func noting(_ answer: DeviceAnswer, of cid: DeviceID) -> DeviceAnswer {
        guard case .known(var status) = answer else { return answer }
        let delay = context.peers.flaps.withLock { $0.delay(of: cid, now: Int64(loop.now)) }
        if delay > 0 { status.slowedUntil = now + delay }
        status.refusedHello = context.peers.refusedHellos.withLock { $0.last(of: cid) }
        return .known(status)
    }
}

extension Partition: ShardStoreObserver {
    func storeCommitted(upTo ticket: Ticket) {
        core.pointee.shard.visitPlaces(awaiting: ticket) { place in
            if let start = place.baseAddress {
                prefetch(start, byteCount: min(place.count, EventLoopHost.recordByteCount))
            }
        }
        withShard { $0.committed(upTo: ticket, now: now) }
        while let first = metaWaiters.first, first.ticket <= ticket {
            metaWaiters.removeFirst()
            first.done()
        }
        if !lists.isEmpty { dealLists() }
    }

    func storeReplied(_ reply: StoreReply) {
        metrics.count(.coldReads)
        withShard { $0.replied(reply, now: now) }
    }

    func storeCooled(_ key: StoreKey) { withQuietShard { $0.cooled(key) } }

    /// Called during a call of the shard, so it must not call the shard.
    func storeBreached(_ breach: StoreBreach) {
        metrics.count(.storeBreaches)
        context.log.write(LogEvent(level: .error, name: "storeBoundBreached", text: "\(breach)"))
    }
}
