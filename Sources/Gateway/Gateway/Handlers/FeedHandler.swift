internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// The admin listener's requests about feeds, which the owner of the feed's home bucket answers.
final class FeedHandler {
    private unowned let owner: EventLoopHost

    init(_ owner: EventLoopHost) { self.owner = owner }

    /// Answers a request; a long poll ends once `isCallerPresent` returns `false`.
    func handle(
        _ request: FeedRequest, isCallerPresent: @escaping () -> Bool, respond: @escaping (APIResponse) -> Void
    ) {
        guard owner.context.isReady, !owner.context.isStopping else {
            return respond(.adminUnavailable("the gateway is starting or stopping, retry"))
        }
        switch request {
        case .read(let read):
            let longPolls = owner.context.connections.longPolls
            guard longPolls.enter(limit: owner.limits.longPolls) else {
                longPolls.leave()
                return respond(AdminHandler.busy)
            }
            let deadline = Int64(owner.loop.now) + read.waitMilliseconds
            wait(read, until: deadline, isCallerPresent) { [self] answer in
                longPolls.leave()
                respond(FeedAnswers.page(answer, of: read.feed, registry: owner.registry))
            }
        case .acknowledge(let feed, let number):
            ask(.acknowledge(feed, upTo: number)) { respond(FeedAnswers.acknowledged($0)) }
        }
    }

    /// The longest wait, in milliseconds, of one question to the feed's home; a disconnected reader keeps its place there for at
    /// most this time.
    private static let sliceMilliseconds: Int64 = 1_000
    /// The tolerance, in milliseconds, for a slice that ends early.
    ///
    /// If an empty answer arrives even earlier, the home has refused to wait, because it has too many readers or is stopping.
    private static let earlyMilliseconds: Int64 = 200

    /// Waits at the feed's home, one slice at a time.
    private func wait(
        _ read: FeedRead, until deadline: Int64, _ isCallerPresent: @escaping () -> Bool,
        completion: @escaping (FeedAnswer?) -> Void
    ) {
        let began = Int64(owner.loop.now)
        var slice = read
        slice.waitMilliseconds = min(max(0, deadline - began), Self.sliceMilliseconds)
        let asked = slice.waitMilliseconds
        ask(.read(slice)) { [self] answer in
            guard answer?.page?.isEmpty ?? false else { return completion(answer) }
            let now = Int64(owner.loop.now)
            // An early end of a slice within the tolerance cannot be detected. Repeating such slices could be a busy loop.
            guard asked > Self.earlyMilliseconds, now < deadline, now - began >= asked - Self.earlyMilliseconds,
                !owner.context.isStopping,
                isCallerPresent()
            else { return completion(answer) }
            wait(read, until: deadline, isCallerPresent, completion: completion)
        }
    }

    /// Asks the feed's home; `completion` receives `nil` if the home cannot answer.
    func ask(_ command: FeedCommand, completion: @escaping (FeedAnswer?) -> Void) {
        owner.ask(command, of: command.feed.home, completion: completion)
    }
}
