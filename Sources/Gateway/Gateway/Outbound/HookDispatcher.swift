internal import HTTPClient
package import Platform

/// Posts batches to the hook's receiver, and retries each until it is accepted or expires.
///
/// A dedicated thread drives curl's multi interface, so a slow or failing receiver delays no event loop. At most
/// `HookLimits.heldCount` batches are held, including those that wait for a retry; `submit` refuses more. While the receiver
/// fails, one request is in flight at a time. The first success lifts that limit.
package final class HookDispatcher: Sendable {
    private struct Shared: ~Copyable {
        var incoming: [HookDelivery] = []
        var configuration: GatewayConfiguration.Hook?
        var configurationChanged = false
        var state = HookState()
        var isStopping = false
        var stopDeadline: Int64 = .max
        var thread: Thread?
    }

    private let shared: Lock<Shared>
    /// The HTTP transfers; after the init, only the dispatcher's thread uses them.
    private let transfers: HTTPTransfers
    /// The signal that wakes the thread; opened before any loop ran.
    ///
    /// `curl_multi_wakeup` cannot be used: a loop that calls `submit` may have its own descriptor table, in which curl's
    /// descriptor number denotes another file.
    private let wakeup: Wakeup
    private let policy: any HookPolicy
    private let log: Log?

    /// Starts the dispatcher's thread; `stop(withinMilliseconds:)` ends it.
    ///
    /// - Parameters:
    ///   - configuration: The hook; `nil` for none. Without a hook, `submit` refuses batches.
    ///   - policy: Signs requests, judges responses and receives final results. Retained until the stop.
    ///   - log: The log for failures and recoveries.
    ///   - wakeup: Wakes the thread. Must have been opened before any thread with its own descriptor table started.
    /// - Throws: `SystemError` if the thread cannot be created.
    package init(
        configuration: GatewayConfiguration.Hook?, policy: any HookPolicy, log: Log?, wakeup: Wakeup? = nil
    ) throws {
        guard let transfers = HTTPTransfers() else { throw HookError.noCurl }
        (self.transfers, self.policy, self.log) = (transfers, policy, log)
        self.wakeup = try wakeup ?? Wakeup()
        shared = Lock(Shared(configuration: configuration))
        let dispatcher = self
        let thread = try Thread(named: "longwire-hook") { dispatcher.run() }
        var started: Thread? = consume thread
        shared.withLock { $0.thread = started.take() }
    }

    /// Queues a batch; returns `false` if the queue is full, no hook is configured or the dispatcher is stopping.
    package func submit(_ delivery: HookDelivery) -> Bool {
        let isTaken = shared.withLock { shared in
            guard !shared.isStopping, shared.configuration != nil, shared.state.heldCount < HookLimits.heldCount
            else { return false }
            shared.state.heldCount += 1
            shared.incoming.append(delivery)
            return true
        }
        if isTaken { wakeup.signal() }
        return isTaken
    }

    /// The number of batches for which callers should lease jobs now; at most one while the receiver fails.
    package var room: Int {
        shared.withLock { shared in
            guard !shared.isStopping, shared.configuration != nil else { return 0 }
            let limit = shared.state.isHealthy ? HookLimits.heldCount : 1
            return max(0, limit - shared.state.heldCount)
        }
    }

    package var state: HookState { shared.withLock { $0.state } }

    /// Applies a changed configuration: later attempts use the new URL and secrets.
    ///
    /// With `nil`, all batches are given up, except those that the receiver accepts in a running attempt.
    package func update(_ configuration: GatewayConfiguration.Hook?) {
        shared.withLock { shared in
            shared.configuration = configuration
            shared.configurationChanged = true
        }
        wakeup.signal()
    }

    /// Waits up to `bound` for requests in flight, ends the others as `.stopped`, and joins the thread.
    package func stop(withinMilliseconds bound: Int64) {
        let thread = shared.withLock { shared -> Thread? in
            shared.isStopping = true
            shared.stopDeadline = Int64(SystemClock.monotonicMilliseconds) + max(0, bound)
            return shared.thread.take()
        }
        wakeup.signal()
        thread?.join()
    }

    /// The hook's state for `/metrics`; `nil` without a hook.
    package var figures: HookState? {
        shared.withLock { shared in
            guard let configuration = shared.configuration else { return nil }
            var state = shared.state
            state.channels = configuration.channels
            return state
        }
    }

    // MARK: The thread

    private struct Waiting {
        var delivery: HookDelivery
        var attemptCount = 0
        /// Whether an earlier attempt may have reached the receiver.
        var mayHaveArrived = false
        var nextAttemptAt: Int64 = 0
    }

    private func run() {
        var waiting: [Waiting] = []
        var attempts: [HookTransfer] = []
        var random = SystemRandomNumberGenerator()
        var configuration: GatewayConfiguration.Hook?
        /// The number of the configuration in force; a failure under an earlier configuration does not delay attempts under this
        /// one.
        var edition = 0
        while true {
            let now = Int64(SystemClock.monotonicMilliseconds)
            let (incoming, changed, next, isHealthy, isStopping, deadline) = shared.withLock { shared in
                let taken = (
                    shared.incoming, shared.configurationChanged, shared.configuration, shared.state.isHealthy,
                    shared.isStopping, shared.stopDeadline
                )
                shared.incoming = []
                shared.configurationChanged = false
                return taken
            }
            waiting += incoming.map { Waiting(delivery: $0) }
            if changed || edition == 0 {
                configuration = next
                edition += 1
                // A corrected URL should be tried at once, without the backoff of the old URL.
                for index in waiting.indices { waiting[index].nextAttemptAt = now }
            }

            if isStopping, now >= deadline || attempts.isEmpty {
                for attempt in attempts {
                    attempt.transfer.leave()
                    end(attempt.delivery, .stopped, mayHaveArrived: true)
                }
                for item in waiting { end(item.delivery, .stopped, mayHaveArrived: item.mayHaveArrived) }
                return
            }
            waiting.removeAll { item in
                let isOver = configuration == nil || item.delivery.giveUpAt.map { now >= $0 } ?? false
                if isOver { end(item.delivery, .givenUp, mayHaveArrived: item.mayHaveArrived) }
                return isOver
            }
            let limit = isHealthy ? HookLimits.concurrentCount : 1
            while !isStopping, attempts.count < limit, let configuration,
                let index = waiting.firstIndex(where: { $0.nextAttemptAt <= now })
            {
                let item = waiting.remove(at: index)
                let seconds = ClockReader.wall() / 1_000
                let headers = policy.headers(
                    for: item.delivery, secrets: configuration.secrets, unixSeconds: seconds)
                if let attempt = HookTransfer(
                    item.delivery, attempt: item.attemptCount + 1, headers: headers, configuration: configuration,
                    mayHaveArrived: item.mayHaveArrived, edition: edition, in: transfers)
                {
                    attempts.append(attempt)
                } else {
                    finishAttempt(
                        item.delivery, attempt: item.attemptCount + 1,
                        .failure(.other, cause: "the request could not be made"),
                        mayHaveArrived: item.mayHaveArrived, retryAfter: nil, &waiting, &random)
                }
            }

            transfers.perform()
            collect(&attempts, &waiting, &random, edition: edition)
            // Without a hook, a batch whose attempt has just failed gets no other attempt. The next iteration, at once, gives it
            // up.
            let isOver = configuration == nil && !waiting.isEmpty
            let wait = isOver ? 0 : pause(waiting, attempts, isStopping: isStopping, deadline: deadline)
            if transfers.wait(milliseconds: wait, orInputOn: wakeup.descriptor) { wakeup.clear() }
        }
    }

    /// Returns the longest sleep of the thread; curl shortens the sleep for its own timeouts, and `wakeup` ends it.
    private func pause(
        _ waiting: [Waiting], _ attempts: [HookTransfer], isStopping: Bool, deadline: Int64
    ) -> Int64 {
        let now = Int64(SystemClock.monotonicMilliseconds)
        var until = now + 60_000
        if isStopping { until = min(until, attempts.isEmpty ? now : deadline) }
        for item in waiting {
            // If all slots are taken, a due batch starts when a transfer ends, which wakes the thread anyway.
            let isBlocked = !attempts.isEmpty && item.nextAttemptAt <= now
            if !isBlocked { until = min(until, item.nextAttemptAt) }
            if let giveUpAt = item.delivery.giveUpAt { until = min(until, giveUpAt) }
        }
        return max(0, until - now)
    }

    private func collect(
        _ attempts: inout [HookTransfer], _ waiting: inout [Waiting], _ random: inout SystemRandomNumberGenerator,
        edition: Int
    ) {
        while let ended = transfers.nextEnded() {
            guard let index = attempts.firstIndex(where: { $0.transfer === ended.transfer }) else { continue }
            let attempt = attempts.remove(at: index)
            var retryAfter: Int64?
            let result: HookTransfer.Result
            switch ended.result {
            case .success(let reply):
                result = .answer(HookResponse(status: reply.status, body: reply.body))
                retryAfter = reply.retryAfterMilliseconds
            case .failure(let failure): result = .failure(HookFailure(failure), cause: failure.cause)
            }
            finishAttempt(
                attempt.delivery, attempt: attempt.attempt, result, mayHaveArrived: attempt.mayHaveArrived,
                retryAfter: retryAfter, &waiting, &random)
            if attempt.edition != edition {
                for index in waiting.indices { waiting[index].nextAttemptAt = 0 }
            }
        }
    }

    private func finishAttempt(
        _ delivery: HookDelivery, attempt: Int, _ result: HookTransfer.Result, mayHaveArrived: Bool,
        retryAfter: Int64?, _ waiting: inout [Waiting], _ random: inout SystemRandomNumberGenerator
    ) {
        var status = 0
        let (failure, cause): (HookFailure, String)
        switch result {
        case .answer(let response):
            status = response.status
            if policy.decide(response, for: delivery) == .done {
                let hasRecovered = shared.withLock { shared in
                    let wasFailing = !shared.state.isHealthy
                    shared.state.failingSince = nil
                    shared.state.lastStatus = status
                    shared.state.lastFailure = .none
                    shared.state.attemptsAnswered += 1
                    return wasFailing
                }
                if hasRecovered {
                    log?.write(.info, .hookRecovered, [.status: LogValue(status), .attempt: LogValue(attempt)])
                    // The receiver has recovered, so other batches need not wait for their backoff.
                    for index in waiting.indices { waiting[index].nextAttemptAt = 0 }
                }
                return end(delivery, .answered(response), mayHaveArrived: true)
            }
            (failure, cause) = (.status, "HTTP status \(status)")
        case .failure(let kind, let text): (failure, cause) = (kind, text)
        }
        let delay = HookBackoff.delay(afterAttempt: attempt, retryAfter: retryAfter, random: &random)
        let seconds = ClockReader.wall() / 1_000
        shared.withLock { shared in
            if shared.state.failingSince == nil { shared.state.failingSince = seconds }
            shared.state.lastStatus = status
            (shared.state.lastFailure, shared.state.lastCause) = (failure, cause)
            shared.state.attemptsFailed += 1
        }
        log?.write(
            .warning, .hookFailing,
            [
                .status: LogValue(status), .error: .text(failure.rawValue), .reason: .text(cause),
                .attempt: LogValue(attempt), .retryInMilliseconds: LogValue(delay),
            ])
        let next = Int64(SystemClock.monotonicMilliseconds) + delay
        waiting.append(
            Waiting(
                delivery: delivery, attemptCount: attempt, mayHaveArrived: mayHaveArrived || failure.mayHaveArrived,
                nextAttemptAt: next))
    }

    private func end(_ delivery: HookDelivery, _ outcome: HookOutcome, mayHaveArrived: Bool) {
        shared.withLock { shared in
            shared.state.heldCount -= 1
            switch outcome {
            case .answered: shared.state.deliveriesAnswered += 1
            case .givenUp: shared.state.deliveriesGivenUp += 1
            case .stopped: break
            }
        }
        if outcome == .givenUp { log?.write(.warning, .hookGivenUp, [.name: .text(delivery.id)]) }
        policy.ended(delivery, outcome, mayHaveArrived: mayHaveArrived)
    }
}

package enum HookError: Error, CustomStringConvertible {
    case noCurl
    package var description: String { "libcurl could not be initialised" }
}
