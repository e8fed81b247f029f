internal import Configuration
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// The webhooks of the feeds whose home is this partition.
///
/// Each webhook reads a page, posts it, acknowledges it, and reads the next one. The acknowledgement moves the feed's only
/// cursor, as for any consumer. After a move of the home, the new owner continues from the cursor. A page that was posted but not
/// acknowledged is posted again.
final class FeedWebhooks {
    private enum Step {
        case reading, posting, acking
        /// Waiting until a time in monotonic milliseconds.
        case resting(until: UInt64)
    }

    private struct Runner {
        var hook: GatewayConfiguration.Hook
        /// The feed's name in `FeedPoster`, kept because the app's id is unknown after the app is removed from the configuration.
        var name: String
        var step: Step
        /// The identity of this runner; answers for an earlier runner of the feed are ignored.
        var number: UInt64
    }

    private static let waitMilliseconds: Int64 = 20_000
    private static let restMilliseconds: UInt64 = 1_000

    private unowned let owner: Partition
    private var runners: [FeedName: Runner] = [:]

    init(_ owner: Partition) { self.owner = owner }

    /// Starts and ends runners according to the configuration; called about once a second.
    func tick() {
        let wanted = owner.snapshot.webhooks
        guard !wanted.isEmpty || !runners.isEmpty else { return }
        let mayRun = owner.context.isReady && !owner.context.isStopping
        for (feed, runner) in runners where !mayRun || wanted[feed] != runner.hook || !isHome(feed) {
            runners[feed] = nil
            owner.context.outbound.feedPoster?.cancel(runner.name)
        }
        guard mayRun else { return }
        for (feed, hook) in wanted where runners[feed] == nil && isHome(feed) {
            // The number is random, so that it differs from the numbers of earlier runners on other owners.
            let number = UInt64.random(in: .min ... .max)
            runners[feed] = Runner(hook: hook, name: name(feed), step: .reading, number: number)
            read(feed, number)
        }
        for (feed, runner) in runners {
            if case .resting(let until) = runner.step, until <= owner.loop.now {
                runners[feed]?.step = .reading
                read(feed, runner.number)
            }
        }
    }

    /// Ends the runners of a released partition; its next owner continues from the cursor.
    func stop() {
        for runner in runners.values { owner.context.outbound.feedPoster?.cancel(runner.name) }
        runners = [:]
    }

    private func isHome(_ feed: FeedName) -> Bool {
        owner.isServing && feed.home.loop(of: owner.context.partitionCount) == owner.number
    }

    private func name(_ feed: FeedName) -> String { "\(owner.registry.appID(of: feed.app)).\(feed.kind.name)" }

    private func isCurrent(_ feed: FeedName, _ number: UInt64) -> Bool { runners[feed]?.number == number }

    private func rest(_ feed: FeedName) {
        runners[feed]?.step = .resting(until: owner.loop.now + Self.restMilliseconds)
    }

    private func read(_ feed: FeedName, _ number: UInt64) {
        guard let runner = runners[feed] else { return }
        let read = FeedRead(
            feed, after: nil, limit: runner.hook.batchJobs, waitMilliseconds: Self.waitMilliseconds)
        let asked = owner.loop.now
        // The feed is asked in the next turn, because a home on this loop may answer inside the call.
        owner.inNextTurn { partition in
            partition.host.feeds.ask(.read(read)) { [weak self] answer in
                guard let self, isCurrent(feed, number) else { return }
                guard let page = answer?.page else { return rest(feed) }
                guard !page.isEmpty else {
                    // An empty page before the timeout means that the feed has too many readers.
                    return owner.loop.now < asked + Self.restMilliseconds ? rest(feed) : self.read(feed, number)
                }
                post(page, of: feed, runner, number)
            }
        }
    }

    private func post(_ page: FeedPage, of feed: FeedName, _ runner: Runner, _ number: UInt64) {
        guard let poster = owner.context.outbound.feedPoster else { return rest(feed) }
        let body: [UInt8]
        switch runner.hook.form {
        case .pages:
            body = FeedAnswers.body(
                page, of: feed, registry: owner.registry,
                type: feed.kind == .upstream ? "longwire.upstream" : "longwire.events")
        case .getuiReceipts(let secret):
            // Getui's receipts are signed with the app's masterSecret.
            body = GetuiReceipts.body(
                page, appID: owner.registry.appID(of: feed.app), masterSecret: secret.exposed)
            guard !body.isEmpty else { return acknowledge(feed, upTo: page.next, number) }
        }
        let first = page.first - page.missed
        let (host, partition) = (owner.context.hosts[owner.host.index], owner.number)
        let post = FeedPoster.Post(
            feed: runner.name, id: "\(runner.name).\(first)-\(page.next)", body: body, hook: runner.hook
        ) { isTaken in
            host.submit { host in
                if let present = host.partition(partition) {
                    present.webhooks.posted(feed, upTo: page.next, number, isTaken: isTaken)
                } else if isTaken {
                    // The receiver has the page, so the feed's new home must advance its cursor.
                    host.feeds.ask(.acknowledge(feed, upTo: page.next)) { _ in }
                }
            }
        }
        runners[feed]?.step = .posting
        if !poster.post(post) { rest(feed) }
    }

    private func posted(_ feed: FeedName, upTo cursor: UInt64, _ number: UInt64, isTaken: Bool) {
        guard isTaken else {
            if isCurrent(feed, number) { rest(feed) }
            return
        }
        acknowledge(feed, upTo: cursor, number)
    }

    /// Acknowledges a page, even if the runner has ended, because the receiver has the page.
    private func acknowledge(_ feed: FeedName, upTo cursor: UInt64, _ number: UInt64) {
        if isCurrent(feed, number) { runners[feed]?.step = .acking }
        owner.host.feeds.ask(.acknowledge(feed, upTo: cursor)) { [weak self] answer in
            guard let self, isCurrent(feed, number) else { return }
            // An unacknowledged page is read and posted again.
            guard case .acknowledged? = answer else { return rest(feed) }
            runners[feed]?.step = .reading
            read(feed, number)
        }
    }
}
