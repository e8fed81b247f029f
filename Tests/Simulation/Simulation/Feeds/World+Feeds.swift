internal import Delivery
internal import Wire

// Upstream messages and events, their delivery to feeds, and the feeds' consumers. Mailboxes delay commands, answers get lost,
// and consumers restart or pause. Uses its own generator.
extension World {
    static let feedRoute: UInt64 = 40

    func sendUpstream() {
        guard !identities.isEmpty else { return }
        let identity = feeds.chance.one(of: identities)
        guard identity.isDurable else { return }
        let place: Int
        if let known = feeds.places[identity.index] {
            place = known
            guard !feeds.senders[place].isOpen else { return }
        } else {
            place = feeds.senders.count
            feeds.places[identity.index] = place
            feeds.senders.append(FeedModel.Sender(identity: identity))
        }
        feeds.senders[place].isOpen = true
        queue.add(.feed(.send(place)), at: now + 1)
    }

    func feedsStarted() {
        for loop in loops { queue.add(.feed(.tell(loop: loop.index, life: life)), at: now + 1) }
    }

    func beginFollowing() {
        for index in feeds.followers.indices { queue.add(.feed(.follow(index)), at: 300 + Int64(index)) }
    }

    func take(_ step: FeedModel.Step) {
        switch step {
        case .send(let place): send(place)
        case .carry(let number): carry(number)
        case .tell(let loop, let itsLife): if itsLife == life, isUp { tell(loops[loop]) }
        case .told(let number, let isTold): told(number, isTold)
        case .follow(let index): follow(index)
        }
    }

    // MARK: Commands

    /// The delay of a mailbox; in 10 % of the cases it includes a busy loop or a link between gateways.
    private func mailbox() -> Int64 { feeds.chance.time(0, feeds.chance.perMille(100) ? 4_000 : 6) }

    @discardableResult
    private func post(_ purpose: FeedModel.Purpose, _ command: FeedCommand) -> Int {
        feeds.asks.append(FeedModel.Ask(purpose: purpose, command: command, life: life))
        queue.add(.feed(.carry(feeds.asks.count - 1)), at: now + mailbox())
        return feeds.asks.count - 1
    }

    private func carry(_ number: Int) {
        let ask = feeds.asks[number]
        guard isUp, ask.life == life else { return }
        eventCount += 1
        let loop = loop(of: ask.command.feed.home)
        log.note(now, "feed command", Int64(number), Int64(loop.index))
        loop.shard.ask(
            ask.command, origin: Origin(route: Self.feedRoute, request: UInt64(number)), now: gatewayNow)
        loop.perform()
    }

    /// Within the performing of effects: what follows from it comes a little later.
    func feedAnswered(_ origin: Origin, _ answer: FeedAnswer?) {
        let number = Int(origin.request)
        let ask = feeds.asks[number]
        guard ask.life == life else { return fail(.beforeSync, "a feed answered for a process that has died") }
        switch ask.purpose {
        case .upstream(let place, let message): oracle.upstreamAnswered(place, message, answer)
        case .read(let index, let after):
            guard feeds.followers[index].asked == number else { return }
            feeds.followers[index].asked = nil
            oracle.feedRead(index, after: after, answer)
        case .acknowledge(let index, let upTo):
            guard feeds.followers[index].asked == number else { return }
            feeds.followers[index].asked = nil
            oracle.feedAcknowledged(index, upTo: upTo, answer)
        case .append(let batch):
            switch answer {
            case .taken:
                // The answer of another gateway may get lost: the batch comes a second time.
                let isLost = !isHealing && feeds.chance.perMille(80)
                if isLost { faults.note(.feedAnswerLost) }
                queue.add(.feed(.told(batch, isTold: !isLost)), at: now + (isLost ? 1_000 : mailbox()))
            case nil: queue.add(.feed(.told(batch, isTold: false)), at: now + 1_000)
            default: fail(.refusal, "events were answered with \(String(describing: answer))")
            }
        }
    }

    // MARK: Devices

    private func send(_ place: Int) {
        let sender = feeds.senders[place]
        guard sender.isOpen else { return }
        defer { queue.add(.feed(.send(place)), at: now + feeds.chance.time(200, 6_000)) }
        guard isUp else { return }
        if sender.askedAt >= 0 { faults.note(.upstreamSentAgain) }
        feeds.senders[place].askedAt = now
        let bytes = Array("\(sender.identity.index) \(sender.number)".utf8)
        let message = UpstreamMessage(
            app: plan.apps[sender.identity.app].key, cid: sender.identity.cid, request: sender.number, payload: bytes)
        post(.upstream(place, number: sender.number), .upstream(message))
    }

    // MARK: Events

    private func tell(_ loop: Loop) {
        queue.add(
            .feed(.tell(loop: loop.index, life: life)),
            at: now + feeds.chance.time(20, isHealing ? 10_000 : 400))
        let share = share(of: loop)
        loop.shard.watchFeeds(share, now: gatewayNow)
        let batches = loop.shard.takeEvents(share, now: gatewayNow)
        loop.perform()
        for batch in batches {
            eventCount += 1
            feeds.batches.append((batch, loop.index, life))
            let number = feeds.batches.count - 1
            guard isHealing || !feeds.chance.perMille(60) else {
                faults.note(.feedHomeOutOfReach)
                queue.add(.feed(.told(number, isTold: false)), at: now + 1_000)
                continue
            }
            post(.append(number), .append(FeedName(batch.app, .events), batch.items, lost: batch.lost))
        }
    }

    private func told(_ number: Int, _ isTold: Bool) {
        let (batch, loop, itsLife) = feeds.batches[number]
        guard isUp, itsLife == life else { return }
        eventCount += 1
        loops[loop].shard.eventsTold(batch, isTold: isTold, now: gatewayNow)
        loops[loop].perform()
    }

    // MARK: Consumers

    private func follow(_ index: Int) {
        let follower = feeds.followers[index]
        var pause = feeds.chance.time(5, isHealing ? 4_000 : 1_500)
        defer { queue.add(.feed(.follow(index)), at: now + pause) }
        guard isUp else { return }
        if let asked = follower.asked {
            // The timeout of a long poll plus all network delays. A process that died does not answer.
            guard feeds.asks[asked].life != life || now - follower.askedAt > 60_000 else { return }
            feeds.followers[index].asked = nil
        }
        if !isHealing, feeds.chance.perMille(40) {
            faults.note(.followerRestarted)
            feeds.followers[index].cursor = nil
        } else if !isHealing, feeds.chance.perMille(20) {
            faults.note(.followerAway)
            pause = feeds.chance.time(5_000, 60_000)
            return
        }
        let cursor = feeds.followers[index].cursor
        feeds.followers[index].askedAt = now
        let acked = history.cursor(follower.acked)
        if let cursor, cursor > acked, isHealing || feeds.chance.perMille(500) {
            let upTo = isHealing || feeds.chance.perMille(700) ? cursor : acked + 1
            feeds.followers[index].asked = post(
                .acknowledge(index, upTo: upTo), .acknowledge(follower.feed, upTo: upTo))
        } else {
            let wait = isHealing || feeds.chance.perMille(500) ? 0 : feeds.chance.time(1, 3_000)
            feeds.followers[index].asked = post(
                .read(index, after: cursor),
                .read(
                    FeedRead(
                        follower.feed, after: cursor, limit: feeds.chance.one(of: [1, 7, 100]), waitMilliseconds: wait))
            )
        }
    }
}
