internal import Configuration
internal import HTTPClient
internal import Platform
internal import PushAPI
internal import Webhooks

/// Posts feed pages to the webhooks of apps, and retries each page until the receiver accepts it; each feed has one page in
/// flight.
///
/// One thread drives all requests. Each feed has its own request and backoff, so a slow or failing receiver delays neither loops
/// nor other apps.
final class FeedPoster: Sendable {
    struct Post: Sendable {
        /// The feed's name, from appId and kind; each feed has at most one post.
        var feed: String
        /// The webhook-id, the same at every attempt.
        var id: String
        var body: [UInt8]
        var hook: GatewayConfiguration.Hook
        /// Called once, on the poster's thread, with `true` if the receiver accepted the page.
        var ended: @Sendable (Bool) -> Void
    }

    private enum Order {
        case post(Post)
        case cancel(String)
    }

    private struct Shared: ~Copyable {
        /// Posts and cancels in call order; a cancel applies to earlier posts.
        var orders: [Order] = []
        var state: [String: HookState] = [:]
        var isStopping = false
        var thread: Thread?
    }

    private let shared = Lock(Shared())
    private let transfers: HTTPTransfers
    private let wakeup: Wakeup
    private let log: Log

    /// Starts the thread; `wakeup` must have been opened before any thread with its own descriptor table started.
    init(log: Log, wakeup: Wakeup) throws {
        guard let transfers = HTTPTransfers() else { throw HookError.noCurl }
        (self.transfers, self.wakeup, self.log) = (transfers, wakeup, log)
        let poster = self
        let thread = try Thread(named: "longwire-feeds") { poster.run() }
        var started: Thread? = consume thread
        shared.withLock { $0.thread = started.take() }
    }

    /// Queues a post; returns `false` after `stop` was called.
    func post(_ post: Post) -> Bool {
        let isTaken = shared.withLock { shared in
            guard !shared.isStopping else { return false }
            shared.orders.append(.post(post))
            return true
        }
        if isTaken { wakeup.signal() }
        return isTaken
    }

    /// Drops pending work for a feed, because its home has moved or its webhook was changed.
    func cancel(_ feed: String) {
        shared.withLock { shared in
            shared.orders.append(.cancel(feed))
            shared.state[feed] = nil
        }
        wakeup.signal()
    }

    var states: [String: HookState] { shared.withLock { $0.state } }

    func stop() {
        let thread = shared.withLock { shared -> Thread? in
            shared.isStopping = true
            return shared.thread.take()
        }
        wakeup.signal()
        thread?.join()
    }

    // MARK: The thread

    private struct Work {
        var post: Post
        var attempt = 0
        var nextAt: Int64 = 0
        var transfer: HTTPTransfer?
    }

    private func run() {
        var works: [Work] = []
        var random = SystemRandomNumberGenerator()
        while true {
            let (orders, isStopping) = shared.withLock { shared in
                let taken = (shared.orders, shared.isStopping)
                shared.orders = []
                return taken
            }
            for order in orders {
                switch order {
                case .post(let post): works.append(Work(post: post))
                case .cancel(let feed):
                    Self.giveUp(&works) { $0 == feed }
                    // An attempt that ended after `cancel` cleared the state may have recorded it again.
                    shared.withLock { $0.state[feed] = nil }
                }
            }
            guard !isStopping else { return Self.giveUp(&works) { _ in true } }
            let now = Int64(SystemClock.monotonicMilliseconds)
            for index in works.indices where works[index].transfer == nil && works[index].nextAt <= now {
                works[index].attempt += 1
                works[index].transfer = begin(works[index].post)
                if works[index].transfer == nil {
                    failed(&works[index], .other, "the request could not be made", 0, nil, &random)
                }
            }
            transfers.perform()
            while let ended = transfers.nextEnded() {
                guard let index = works.firstIndex(where: { $0.transfer === ended.transfer }) else { continue }
                works[index].transfer = nil
                switch ended.result {
                case .success(let reply) where 200..<300 ~= reply.status:
                    succeeded(works[index], reply.status)
                    works.remove(at: index).post.ended(true)
                case .success(let reply):
                    failed(
                        &works[index], .status, "HTTP status \(reply.status)", reply.status,
                        reply.retryAfterMilliseconds, &random)
                case .failure(let failure):
                    failed(&works[index], HookFailure(failure), failure.cause, 0, nil, &random)
                }
            }
            let later = Int64(SystemClock.monotonicMilliseconds)
            let waits = works.filter { $0.transfer == nil }.map { max(0, $0.nextAt - later) }
            if transfers.wait(milliseconds: min(60_000, waits.min() ?? 60_000), orInputOn: wakeup.descriptor) {
                wakeup.clear()
            }
        }
    }

    private static func giveUp(_ works: inout [Work], where isMeant: (String) -> Bool) {
        for work in works where isMeant(work.post.feed) {
            work.transfer?.leave()
            work.post.ended(false)
        }
        works.removeAll { isMeant($0.post.feed) }
    }

    private func begin(_ post: Post) -> HTTPTransfer? {
        let headers: [(name: String, value: String)]
        switch post.hook.form {
        case .pages:
            let keys = post.hook.secrets.compactMap { HookSecret($0.exposed) }
            headers = WebhookHeaders.make(
                id: post.id, body: post.body, keys: keys, unixSeconds: ClockReader.wall() / 1_000)
        case .getuiReceipts:
            headers = [("content-type", "text/plain;charset=utf-8"), ("webhook-id", post.id)]
        }
        var call = HTTPCall(
            post.hook.url.text, headers: headers, body: post.body, userAgent: "longwire",
            timeoutMilliseconds: Int(post.hook.timeoutSeconds * 1_000))
        call.connectMilliseconds = Int(HookLimits.connectTimeout)
        // Only the status of an answer matters.
        call.answerByteLimit = 64 << 10
        call.trust.authoritiesFile = post.hook.authoritiesFile
        return HTTPTransfer(call, in: transfers)
    }

    private func succeeded(_ work: Work, _ status: Int) {
        let wasFailing = shared.withLock { shared in
            var state = shared.state[work.post.feed] ?? HookState()
            let wasFailing = !state.isHealthy
            (state.failingSince, state.lastStatus, state.lastFailure) = (nil, status, .none)
            state.attemptsAnswered &+= 1
            state.deliveriesAnswered &+= 1
            shared.state[work.post.feed] = state
            return wasFailing
        }
        if wasFailing { log.write(.info, .webhookRecovered, [.name: .text(work.post.feed)]) }
    }

    private func failed(
        _ work: inout Work, _ failure: HookFailure, _ cause: String, _ status: Int, _ retryAfter: Int64?,
        _ random: inout SystemRandomNumberGenerator
    ) {
        let delay = HookBackoff.delay(afterAttempt: work.attempt, retryAfter: retryAfter, random: &random)
        work.nextAt = Int64(SystemClock.monotonicMilliseconds) + delay
        let feed = work.post.feed
        shared.withLock { shared in
            var state = shared.state[feed] ?? HookState()
            state.failingSince = state.failingSince ?? ClockReader.wall() / 1_000
            (state.lastStatus, state.lastFailure, state.lastCause) = (status, failure, cause)
            state.attemptsFailed &+= 1
            shared.state[feed] = state
        }
        log.write(
            .warning, .webhookFailing,
            [
                .name: .text(feed), .status: LogValue(status), .error: .text(failure.rawValue),
                .reason: .text(cause), .attempt: LogValue(work.attempt), .retryInMilliseconds: LogValue(delay),
            ])
    }
}
