internal import Quotas
internal import Delivery
internal import EventLoops
internal import MessageStore
internal import Platform
internal import PushAPI
internal import Wire

// Messages on their way to a partition, this loop's or another's: a new `LoopMessage` needs its lines here and nowhere else. A
// new question needs none: it is a `PartitionRequest`.
extension GatewayLoop {
    func publish(_ command: borrowing PublishCommand, _ permit: PublishPermit) {
        let isCovered = permit.covers(command.app)
        assert(isCovered, "the quotas of another app were asked")
        let target = command.bucket.loop(of: loopCount)
        if isHere(target) {
            publishHere(command)
            return
        }
        let batch =
            core.pointee.outgoing[target].publishes ?? context.spares.takeCommands()
        batch.append(command)
        if batch.byteCount >= CommandBatch.byteLimit {
            core.pointee.outgoing[target].publishes = nil
            core.pointee.outgoing[target].messages.append(.publishes(batch))
        } else {
            core.pointee.outgoing[target].publishes = batch
        }
    }

    /// Fetches the record of a device that a command will be about, if it is here.
    func foresee(_ cid: DeviceID) {
        guard let place = core.pointee.seat.place(of: cid)?.baseAddress else { return }
        prefetch(place, byteCount: Self.recordByteCount)
    }

    /// As much of a device's record as most commands use.
    static let recordByteCount = 128

    /// A broadcast is out: this loop's devices meet it.
    func launch(_ record: TaskRecord) {
        var isTaken = true
        withShard { isTaken = $0.launch(record, loopCount: loopCount, now: now) }
        // One before it was told to nobody here: a link was down, or the part was on its way to this gateway.
        if !isTaken { learnBroadcasts(of: record.app.home.loop(of: loopCount)) }
        continueWork()
    }

    /// Sends a connection to its device's loop.
    func move(_ adopted: AdoptedConnection, to target: Int) {
        guard loop.hasOwnTable else { return send(.adopt(adopted), to: target) }
        guard !context.members[target].pass(adopted) else { return }
        // The connection is closed already: its client comes back after its own backoff.
        metrics.count(.mailboxRefusals)
        endConnection(.device)
    }

    func send(_ message: LoopMessage, to target: Int) { core.pointee.outgoing[target].messages.append(message) }

    // MARK: Out to the other loops

    func dispatch(to target: Int) {
        if let batch = core.pointee.outgoing[target].publishes {
            core.pointee.outgoing[target].publishes = nil
            core.pointee.outgoing[target].messages.append(.publishes(batch))
        }
        if let cluster = context.cluster, !core.pointee.outgoing[target].messages.isEmpty {
            dispatch(to: target, in: cluster)
        }
        if let answers = core.pointee.outgoing[target].answers {
            core.pointee.outgoing[target].answers = nil
            core.pointee.outgoing[target].messages.append(.answers(answers))
        }
        guard !core.pointee.outgoing[target].messages.isEmpty else { return }
        if mailboxes[target].send(contentsOf: &core.pointee.outgoing[target].messages) { return }
        // One turn's messages may be more than a mailbox holds at all, so they go in pieces.
        mailboxes[target].send(prefixOf: &core.pointee.outgoing[target].messages)
        refuse(&core.pointee.outgoing[target].messages)
    }

    /// Sends what is for a shard to the gateway that has it; what is left is for this gateway's own loop.
    private func dispatch(to target: Int, in cluster: ClusterContext) {
        let owner = cluster.owner(of: target)
        guard owner != cluster.node else { return }
        var local: [LoopMessage] = []
        var remote: [LoopMessage] = []
        for message in core.pointee.outgoing[target].messages {
            if message.isForShard { remote.append(message) } else { local.append(message) }
        }
        core.pointee.outgoing[target].messages = local
        guard !remote.isEmpty else { return }
        if owner != 0, cluster.links.send(&remote, part: target, to: owner) { return }
        for message in remote {
            if !message.isNotice {
                answerBusy(message)
            } else if owner != 0 {
                core.pointee.untold.insert(target)
            }
        }
        answerDeferredSoon()
    }

    /// Tells parts of this part's broadcasts that a full or broken link kept from them; about once a second.
    func tellAgain() {
        guard !core.pointee.untold.isEmpty else { return }
        let targets = core.pointee.untold
        core.pointee.untold = []
        for target in targets { announceBroadcasts(to: target) }
    }

    func dispatchRemoteAnswers() {
        for (node, batch) in core.pointee.remoteAnswers {
            // Where the link is broken, its other end has answered the questions itself.
            _ = context.cluster?.links.send(batch, loop: 0, to: node)
            context.spares.keep(batch)
        }
        core.pointee.remoteAnswers.removeAll(keepingCapacity: true)
    }

    /// Answers what cannot be asked now, so that the caller asks again.
    func answerBusy(_ message: LoopMessage) { message.forEachBusyAnswer { answer($0) } }

    /// The mailbox is full: publishes are answered as busy, the rest waits for a later turn, at most until the next tick.
    private func refuse(_ messages: inout [LoopMessage]) {
        guard !messages.isEmpty else { return }
        metrics.count(.mailboxRefusals)
        var kept: [LoopMessage] = []
        for message in messages {
            switch message {
            case .publishes, .list: answerBusy(message)
            case .request(let request, _) where type(of: request).isRefusedWhenFull: answerBusy(message)
            case .adopt, .request, .answers, .news: kept.append(message)
            }
        }
        messages = kept
        answerDeferredSoon()
    }

    // MARK: In from the other loops

    func receive(_ messages: [LoopMessage]) {
        for message in messages {
            // The part was given away while the message was on its way.
            if !core.pointee.isOwned, message.isForShard {
                answerBusy(message)
                answerDeferredSoon()
                continue
            }
            switch message {
            case .publishes(let batch):
                batch.forEach(foresee: { foresee($0) }) { publishHere($0) }
                context.spares.keep(batch)
            case .answers(let answers):
                answers.forEach { take($0) }
                context.spares.keep(answers)
            case .adopt(let adopted):
                DeviceHandshake.adopt(adopted, on: self)
            case .request(let request, let origin): request.perform(on: self, origin)
            case .list(let fanout): take(fanout)
            case .news(let news): take(news)
            }
        }
    }
}

// News for all loops of all gateways.
extension GatewayLoop {
    func take(_ news: GatewayNews) {
        switch news {
        case .jobsAvailable(let channel, let part):
            handoff.jobsAvailable(ChannelSet(channel), in: part, now: Int64(loop.now))
        case .taskChanged(let task): campaigns.coordinator.forget(task)
        case .broadcastEnded(let task, let app): withShard { $0.forgetBroadcast(task, app) }
        case .tokenRevoked(let token): publicHandler.revoke(token)
        case .appsChanged(let version): if index == 0 { followApps(upTo: version) }
        // For the membership, which is no loop's.
        case .registerChanged: break
        }
    }
}

extension GatewayContext {
    /// Tells every loop here, and every other gateway as soon as a link reaches it.
    func tellEveryGateway(_ news: GatewayNews) {
        tellAll { $0.take(news) }
        cluster?.links.tell(news)
    }
}
