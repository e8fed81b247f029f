internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Quotas
internal import Wire

// Routing of messages to partitions on this loop, on another loop or on another gateway, and of their answers. A new
// `LoopMessage` case needs changes only in this file. A new question is a `PartitionRequest` and needs no change here.
extension EventLoopHost {
    func publish(_ command: borrowing PublishCommand, _ permit: PublishPermit) {
        let isCovered = permit.covers(command.app)
        assert(isCovered, "the quotas of another app were asked")
        let target = command.bucket.loop(of: context.partitionCount)
        if let partition = servingPartition(target) { return partition.publish(command) }
        address(target)
        let batch = core.pointee.outgoing[target].publishes ?? context.spares.takeCommands()
        batch.append(command)
        if batch.byteCount >= CommandBatch.byteLimit {
            core.pointee.outgoing[target].publishes = nil
            core.pointee.outgoing[target].messages.append(.publishes(batch))
        } else {
            core.pointee.outgoing[target].publishes = batch
        }
    }

    func publish(_ fanout: Fanout, to target: Int, _ permit: PublishPermit) {
        if let partition = servingPartition(target) { partition.take(fanout) } else { send(.list(fanout), to: target) }
    }

    /// Prefetches the record of a device that a command is about to use; does nothing in a cluster.
    func foresee(_ cid: DeviceID) {
        if context.cluster == nil { partition(index)?.foresee(cid) }
    }

    /// The number of bytes of a device's record that most commands use.
    static let recordByteCount = 128

    func move(_ adopted: AdoptedConnection, to target: Int) {
        let other = target % context.hostCount
        guard loop.hasOwnTable else { return send(.adopt(adopted), toHost: other) }
        guard !context.hosts[other].pass(adopted) else { return }
        // The pass failed and the connection is closed. Its client reconnects after its own backoff.
        metrics.count(.mailboxRefusals)
        endConnection(.device)
    }

    func send(_ message: LoopMessage, to target: Int) {
        address(target)
        core.pointee.outgoing[target].messages.append(message)
    }

    func send(_ message: LoopMessage, toHost other: Int) { core.pointee.mail[other].items.append(Mail(message)) }

    private func address(_ target: Int) {
        if core.pointee.outgoing[target].isEmpty { core.pointee.addressed.append(target) }
    }

    // MARK: Out

    /// Sends the turn's messages to the hosts of their partitions, on this gateway and on others.
    private func dispatchPartitions() {
        guard !core.pointee.addressed.isEmpty else { return }
        let targets = core.pointee.addressed
        core.pointee.addressed.removeAll(keepingCapacity: true)
        for target in targets {
            if let batch = core.pointee.outgoing[target].publishes {
                core.pointee.outgoing[target].publishes = nil
                core.pointee.outgoing[target].messages.append(.publishes(batch))
            }
            if let cluster = context.cluster, cluster.owner(of: target) != cluster.node {
                dispatch(to: target, at: cluster.owner(of: target), of: cluster)
            } else {
                let other = target % context.hostCount
                for message in core.pointee.outgoing[target].messages {
                    core.pointee.mail[other].items.append(Mail(message, partition: target))
                }
            }
            core.pointee.outgoing[target].messages.removeAll(keepingCapacity: true)
        }
    }

    func dispatch() {
        dispatchPartitions()
        for other in core.pointee.mail.indices {
            if let answers = core.pointee.mail[other].answers {
                core.pointee.mail[other].answers = nil
                core.pointee.mail[other].items.append(Mail(.answers(answers)))
            }
            guard !core.pointee.mail[other].items.isEmpty else { continue }
            if mailboxes[other].send(contentsOf: &core.pointee.mail[other].items) { continue }
            // The mailbox has no room for all items: the first ones are sent, and `refuse` handles the others.
            mailboxes[other].send(prefixOf: &core.pointee.mail[other].items)
            refuse(&core.pointee.mail[other].items)
        }
    }

    private func dispatch(to target: Int, at owner: Int, of cluster: ClusterContext) {
        if owner != 0, cluster.links.send(&core.pointee.outgoing[target].messages, part: target, to: owner) { return }
        for message in core.pointee.outgoing[target].messages {
            if !message.isNotice {
                answerBusy(message)
            } else if owner != 0, let home = message.home(of: context.partitionCount) {
                core.pointee.untold[home, default: []].insert(target)
            }
        }
        answerDeferredSoon()
    }

    /// Repeats broadcast announcements that a full or broken link has lost; called about once a second.
    func tellAgain() {
        guard !core.pointee.untold.isEmpty else { return }
        let untold = core.pointee.untold
        core.pointee.untold = [:]
        for (home, targets) in untold {
            for target in targets { servingPartition(home)?.announceBroadcasts(to: target) }
        }
    }

    func dispatchRemoteAnswers() {
        for (node, batch) in core.pointee.remoteAnswers {
            // If the link is broken, the asking gateway has already answered these questions as busy.
            _ = context.cluster?.links.send(batch, loop: 0, to: node)
            context.spares.keep(batch)
        }
        core.pointee.remoteAnswers.removeAll(keepingCapacity: true)
    }

    /// Answers all questions in the message as busy, so that their callers retry.
    func answerBusy(_ message: LoopMessage) { message.forEachBusyAnswer { answer($0) } }

    /// Handles items that a full mailbox refused.
    ///
    /// Items with `isRefusedWhenFull` are answered as busy. The others are sent again at the next tick at the latest.
    private func refuse(_ items: inout [Mail]) {
        guard !items.isEmpty else { return }
        metrics.count(.mailboxRefusals)
        items.removeAll { mail in
            guard mail.message.isRefusedWhenFull else { return false }
            answerBusy(mail.message)
            return true
        }
        answerDeferredSoon()
    }

    // MARK: In

    func receive(_ items: [Mail]) {
        for mail in items {
            switch mail.message {
            case .publishes, .request, .list:
                guard let partition = servingPartition(mail.partition) else {
                    // The partition was released while the message was in a queue.
                    answerBusy(mail.message)
                    answerDeferredSoon()
                    continue
                }
                partition.take(mail.message)
            case .answers(let answers):
                answers.forEach { take($0) }
                context.spares.keep(answers)
            case .adopt(let adopted): DeviceHandshake.adopt(adopted, on: self)
            case .news(let news): take(news)
            }
        }
    }

    // MARK: Answers

    func answer(_ answer: LoopAnswer) {
        guard let route = Route(answer.origin.route) else { return }
        if route.node != 0 {
            let batch = core.pointee.remoteAnswers[route.node] ?? context.spares.takeAnswers()
            batch.append(answer)
            core.pointee.remoteAnswers[route.node] = batch
        } else if route.loop == index {
            core.pointee.deferred.append(answer)
        } else {
            guard route.loop < context.hostCount else { return }
            let batch = core.pointee.mail[route.loop].answers ?? context.spares.takeAnswers()
            batch.append(answer)
            core.pointee.mail[route.loop].answers = batch
        }
    }

    /// Answers a question without the shard.
    func reply(_ answer: any Codable & Sendable, to origin: Origin) {
        self.answer(.answered(origin, answer))
        answerDeferredSoon()
    }

    /// Answers a question as busy, because no work was done for it.
    func replyBusy(to origin: Origin) {
        answer(.answered(origin, nil))
        answerDeferredSoon()
    }

    /// Delivers answers to this loop's own questions after the caller has returned.
    func answerDeferredSoon() {
        guard !core.pointee.deferred.isEmpty else { return }
        inNextTurn { $0.answerDeferred() }
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

    func take(_ answer: LoopAnswer) {
        guard var route = Route(answer.origin.route) else { return }
        // An answer from a link carries this gateway's number. The number is cleared, because the answer may cause a question to
        // a local partition, whose answer needs no link.
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

extension EventLoopHost {
    func take(_ news: GatewayNews) {
        switch news {
        case .jobsAvailable(let channel, let part):
            handoff.jobsAvailable(ChannelSet(channel), in: part, now: Int64(loop.now))
        case .taskChanged(let task): campaigns.coordinator.forget(task)
        case .broadcastEnded(let task, let app):
            forEachPartition { partition in partition.withShard { $0.forgetBroadcast(task, app) } }
        case .tokenRevoked(let token): publicHandler.revoke(token)
        case .appsChanged(let version): if index == 0 { followApps(upTo: version) }
        // The membership thread handles this case.
        case .registerChanged: break
        }
    }
}

extension GatewayContext {
    /// Sends news to every local host at once, and to each other gateway once it is connected.
    func tellEveryGateway(_ news: GatewayNews) {
        tellAll { $0.take(news) }
        cluster?.links.tell(news)
    }
}

extension Partition {
    fileprivate func take(_ message: LoopMessage) {
        switch message {
        case .publishes(let batch):
            batch.forEach(foresee: { foresee($0) }) { publish($0) }
            context.spares.keep(batch)
        case .request(let request, let origin): request.perform(on: self, origin)
        case .list(let fanout): take(fanout)
        case .answers, .adopt, .news: break
        }
    }

    fileprivate func foresee(_ cid: DeviceID) {
        guard let place = core.pointee.shard.place(of: cid)?.baseAddress else { return }
        prefetch(place, byteCount: EventLoopHost.recordByteCount)
    }
}
