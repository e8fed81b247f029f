internal import Quotas
internal import Delivery
internal import EventLoops
internal import Platform
internal import Wire

// Effects of this loop's shard, and answers on their way back to the loop that asked: a new effect or `LoopAnswer`
// needs its lines here and nowhere else.
extension GatewayLoop {
    /// What waits until the effects of a call are performed: it may call the shard.
    func performed() {
        answerDeferred()
        if core.pointee.seat.hasSlicesAtHand { continueWork() }
        if !launches.isEmpty { passLaunches() }
        if !tokenNews.isEmpty {
            let news = tokenNews
            tokenNews.removeAll()
            for item in news { directoryHandler.follow(item) }
        }
        guard !dueTasks.isEmpty || !firstAcks.isEmpty else { return }
        let (due, first) = (dueTasks, firstAcks)
        dueTasks.removeAll()
        firstAcks.removeAll()
        for record in due { campaigns.coordinator.taskDue(record) }
        for ack in first { campaigns.coordinator.endSiblings(of: ack) }
    }

    /// Tells every loop of new broadcasts, this one last: it begins at once.
    private func passLaunches() {
        let records = launches
        launches.removeAll()
        for record in records {
            for target in 0..<loopCount where target != index { tell(LaunchBroadcast(record: record), to: target) }
            launch(record)
        }
    }

    func answerDeferred() {
        guard !core.pointee.isAnswering, !core.pointee.deferred.isEmpty else { return }
        core.pointee.isAnswering = true
        defer { core.pointee.isAnswering = false }
        while !core.pointee.deferred.isEmpty {
            swap(&core.pointee.round, &core.pointee.deferred)
            for index in core.pointee.round.indices { take(core.pointee.round[index]) }
            core.pointee.round.removeAll(keepingCapacity: true)
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
            answer(.published(origin, outcome))
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
            // A part that leaves says nothing of its jobs: they are its next owner's.
            let due = core.pointee.isOwned ? core.pointee.seat.dueChannels : .all
            answer(.answered(origin, Optional(LeaseAnswer(jobs: jobs, due: due))))
        case .settled(let origin, let verdicts):
            answer(.answered(origin, verdicts))
        case .jobsAvailable(let channel):
            core.pointee.jobNews.insert(ChannelSet(channel))
            let news = GatewayNews.jobsAvailable(channel, part: index)
            for target in 0..<loopCount where target != index { send(.news(news), to: target) }
            context.cluster?.links.tell(news)
        case .deviceStatus(let origin, let cid, let status):
            answer(.answered(origin, noting(status, of: cid)))
        case .messageTrace(let origin, let trace):
            answer(.answered(origin, trace))
        case .directoryAnswered(let origin, let reply):
            answer(.answered(origin, reply))
        case .task(let origin, let said):
            answer(.answered(origin, said))
        case .receiptAnswered(let origin, let said):
            answer(.answered(origin, said))
        case .taskDue(let record):
            // Begun when this turn's effects are done: it calls the shard.
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

    func answer(_ answer: LoopAnswer) {
        guard let route = Route(answer.origin.route) else { return }
        if route.node != 0 {
            let batch = core.pointee.remoteAnswers[route.node] ?? context.spares.takeAnswers()
            batch.append(answer)
            core.pointee.remoteAnswers[route.node] = batch
        } else if route.loop == index {
            core.pointee.deferred.append(answer)
        } else {
            guard route.loop < loopCount else { return }
            let batch =
                core.pointee.outgoing[route.loop].answers ?? context.spares.takeAnswers()
            batch.append(answer)
            core.pointee.outgoing[route.loop].answers = batch
        }
    }

    /// With what this gateway knows of the device's coming and going.
    private func noting(_ answer: DeviceAnswer, of cid: DeviceID) -> DeviceAnswer {
        guard case .known(var status) = answer else { return answer }
        let delay = context.flaps.withLock { $0.delay(of: cid, now: Int64(loop.now)) }
        guard delay > 0 else { return answer }
        status.slowedUntil = now + delay
        return .known(status)
    }

    func take(_ answer: LoopAnswer) {
        guard var route = Route(answer.origin.route) else { return }
        // Over a link it comes back with this gateway's number. The next step may be for a part of this gateway's own, whose
        // answer must not look for a link.
        route.node = 0
        switch answer {
        case .published(let origin, let outcome):
            if route.kind == .sender {
                senders[route.slot, route.stamp]?.answer(origin.request, outcome)
            } else if route.kind == .list {
                campaigns.coordinator.answered(route, place: Int(origin.request), outcome)
            } else {
                publicHandler.answered(route, item: Int(origin.request), outcome)
            }
        case .answered(_, let value):
            guard route.kind == .request, let complete = core.pointee.requests.remove(route) else { return }
            complete(value)
        }
    }
}

extension GatewayLoop: ShardStoreObserver {
    func storeCommitted(upTo ticket: Ticket) {
        core.pointee.seat.visitPlaces(awaiting: ticket) { place in
            if let start = place.baseAddress { prefetch(start, byteCount: min(place.count, Self.recordByteCount)) }
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

    /// Comes within a call of the shard, which must be left alone.
    func storeBreached(_ breach: StoreBreach) {
        metrics.count(.storeBreaches)
        context.log.write(LogEvent(level: .error, name: "storeBoundBreached", text: "\(breach)"))
    }
}
