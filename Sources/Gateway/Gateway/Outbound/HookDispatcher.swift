internal import HTTPClient
package import Platform

/// Posts batches to the hook's receiver, each until it is taken or makes no sense any more.
///
/// One thread of its own drives curl's multi interface: a slow or failing receiver costs nobody else anything. A
/// failed batch waits for its next attempt here, so at most `HookLimits.heldCount` are held and `submit` says no to
/// more. While the receiver fails only one request is out at a time; the first success opens the way for the rest.
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
    /// Its own thread's, once that runs.
    private let transfers: HTTPTransfers
    /// Ends the thread's sleep; opened before any loop ran.
    ///
    /// curl's own wake-up would not do: a loop that calls `submit` may have a descriptor table in which its number means
    /// something else.
    private let wakeup: Wakeup
    private let policy: any HookPolicy
    private let log: Log?

    /// Starts the dispatcher's thread; `stop(withinMilliseconds:)` ends it.
    ///
    /// - Parameters:
    ///   - configuration: `nil`: there is no hook for now; what is submitted is given up.
    ///   - policy: signs, judges, and is told how each batch ended; held until the stop.
    ///   - log: where failures and recoveries are reported.
    ///   - wakeup: ends the thread's sleep; opened before threads with descriptor tables of their own started.
    /// - Throws: `SystemError` when there is no thread to be had.
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

    /// Takes a batch, or says no because enough are held, there is no hook, or the stop has begun.
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

    /// How many more batches `submit` would take now: lease for these, not for more.
    ///
    /// One while the receiver fails.
    package var room: Int {
        shared.withLock { shared in
            guard !shared.isStopping, shared.configuration != nil else { return 0 }
            let limit = shared.state.isHealthy ? HookLimits.heldCount : 1
            return max(0, limit - shared.state.heldCount)
        }
    }

    package var state: HookState { shared.withLock { $0.state } }

    /// A reload: later attempts go to the new URL with the new secrets.
    ///
    /// `nil` gives up all that is held.
    package func update(_ configuration: GatewayConfiguration.Hook?) {
        shared.withLock { shared in
            shared.configuration = configuration
            shared.configurationChanged = true
        }
        wakeup.signal()
    }

    /// Lets the requests under way finish for so long, ends the rest as `.stopped`, and joins the thread.
    package func stop(withinMilliseconds bound: Int64) {
        let thread = shared.withLock { shared -> Thread? in
            shared.isStopping = true
            shared.stopDeadline = Int64(SystemClock.monotonicMilliseconds) + max(0, bound)
            return shared.thread.take()
        }
        wakeup.signal()
        thread?.join()
    }

    /// What `/metrics` has of the hook; `nil` without one.
    package var figures: HookState? { shared.withLock { $0.configuration == nil ? nil : $0.state } }

    // MARK: The thread

    /// A batch between attempts.
    private struct Waiting {
        var delivery: HookDelivery
        var attemptCount = 0
        /// Of an earlier attempt.
        var mayHaveArrived = false
        var nextAttemptAt: Int64 = 0
    }

    private func run() {
        var waiting: [Waiting] = []
        var attempts: [HookTransfer] = []
        var random = SystemRandomNumberGenerator()
        var configuration: GatewayConfiguration.Hook?
        /// Which configuration is in force: a failure of an earlier one says nothing about this one's receiver.
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
                // A corrected URL should be tried at once, not after the old one's backoff.
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
                        item.delivery, attempt: item.attemptCount + 1, .failure(.other),
                        mayHaveArrived: item.mayHaveArrived, retryAfter: nil, &waiting, &random)
                }
            }

            transfers.perform()
            collect(&attempts, &waiting, &random, edition: edition)
            // Without a hook nothing may wait for another attempt: the next round gives it up.
            let isOver = configuration == nil && !waiting.isEmpty
            let wait = isOver ? 0 : pause(waiting, attempts, isStopping: isStopping, deadline: deadline)
            if transfers.wait(milliseconds: wait, orInputOn: wakeup.descriptor) { wakeup.clear() }
        }
    }

    /// How long the thread may sleep; curl shortens it for its own timeouts, `wakeup` ends it.
    private func pause(
        _ waiting: [Waiting], _ attempts: [HookTransfer], isStopping: Bool, deadline: Int64
    ) -> Int64 {
        let now = Int64(SystemClock.monotonicMilliseconds)
        var until = now + 60_000
        if isStopping { until = min(until, attempts.isEmpty ? now : deadline) }
        for item in waiting {
            // With all lanes taken a due batch starts when a transfer ends, which wakes the thread anyway.
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
            var (result, retryAfter): (HookTransfer.Result, Int64?) = (.failure(.other), nil)
            switch ended.result {
            case .success(let reply):
                result = .answer(HookResponse(status: reply.status, body: reply.body))
                retryAfter = reply.retryAfterMilliseconds
            case .failure(let failure): result = .failure(HookFailure(failure))
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
        var failure = HookFailure.none
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
                    // The way is free: the rest need not sit out their backoff.
                    for index in waiting.indices { waiting[index].nextAttemptAt = 0 }
                }
                return end(delivery, .answered(response), mayHaveArrived: true)
            }
            failure = .status
        case .failure(let reason): failure = reason
        }
        let delay = HookBackoff.delay(afterAttempt: attempt, retryAfter: retryAfter, random: &random)
        let seconds = ClockReader.wall() / 1_000
        shared.withLock { shared in
            if shared.state.failingSince == nil { shared.state.failingSince = seconds }
            shared.state.lastStatus = status
            shared.state.lastFailure = failure
            shared.state.attemptsFailed += 1
        }
        log?.write(
            .warning, .hookFailing,
            [
                .status: LogValue(status), .error: .text(failure.rawValue), .attempt: LogValue(attempt),
                .retryInMilliseconds: LogValue(delay),
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

/// Why there is no dispatcher.
package enum HookError: Error, CustomStringConvertible {
    case noCurl
    package var description: String { "libcurl could not be initialised" }
}
