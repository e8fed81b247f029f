internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// The admin listener's requests about feeds: each is one question to the loop of the app's home.
final class FeedFront {
    private unowned let owner: GatewayLoop

    init(_ owner: GatewayLoop) { self.owner = owner }

    func handle(_ request: FeedRequest, respond: @escaping (APIResponse) -> Void) {
        guard owner.context.isReady, !owner.context.isStopping else {
            return respond(.adminUnavailable("the gateway is starting or stopping, retry"))
        }
        switch request {
        case .read(let read):
            let longPolls = owner.context.longPolls
            guard longPolls.enter(limit: owner.limits.longPolls) else {
                longPolls.leave()
                return respond(AdminFront.busy)
            }
            ask(.read(read)) { [weak self] answer in
                longPolls.leave()
                guard let self else { return }
                respond(FeedAnswers.page(answer, of: read.feed, registry: owner.registry))
            }
        case .acknowledge(let feed, let number):
            ask(.acknowledge(feed, upTo: number)) { respond(FeedAnswers.acknowledged($0)) }
        }
    }

    /// Asks the feed's home; `then` gets `nil` when it cannot answer now.
    func ask(_ command: FeedCommand, then: @escaping (FeedAnswer?) -> Void) {
        let home = command.feed.home.loop(of: owner.loopCount)
        owner.campaigns.coordinator.ask(home, .feed(command)) { (answer: TaskAnswer) in
            if case .feed(let answer) = answer { then(answer) } else { then(nil) }
        }
    }
}
