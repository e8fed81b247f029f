internal import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Webhooks
internal import Wire

/// The hook: a sender service that the gateway calls, instead of one that calls the gateway.
///
/// It is one more client of the handoff coordinator. Jobs are leased on loop 0, posted by the dispatcher's thread, and settled
/// by what the receiver answers. While a batch waits for its next attempt its leases are prolonged, so an outage of the
/// receiver uses up no attempts; what expires meanwhile is given up.
final class HookSender: Sendable {
    private struct Batch: Sendable {
        var delivery: PushAPI.HookDelivery
        var prolongAt: Int64
    }

    private struct State: Sendable {
        var batches: [String: Batch] = [:]
        var isLeasing = false
        var batchJobs: Int
        var isStopping = false
    }

    /// The only channel whose jobs the hook leases; each delivery names it.
    ///
    /// Jobs of every other channel are leased through the handoff API alone. A hook for several channels would lease
    /// once for each of them, because a lease is of one channel.
    private static let channel = VendorChannel.apns
    private static let leaseMilliseconds: Int64 = 300_000
    private static let prolongMilliseconds: Int64 = 120_000
    private static let waitMilliseconds: Int64 = 30_000
    /// When leases are prolonged again that some part did not prolong.
    private static let repeatMilliseconds: Int64 = 2_000

    private let state: Lock<State>
    private let context: GatewayContext
    private let log: Log

    init(_ hook: GatewayConfiguration.Hook, context: GatewayContext, log: Log) throws {
        (self.context, self.log) = (context, log)
        state = Lock(State(batchJobs: hook.batchJobs))
        let dispatcher = try HookDispatcher(
            configuration: hook, policy: self, log: log, wakeup: context.outbound.hookWakeup)
        context.outbound.hook.withLock { $0 = dispatcher }
    }

    func update(_ hook: GatewayConfiguration.Hook?) {
        if let hook { state.withLock { $0.batchJobs = hook.batchJobs } }
        context.outbound.hook.withLock { $0 }?.update(hook)
    }

    func stop(withinMilliseconds bound: Int64) {
        state.withLock { $0.isStopping = true }
        context.outbound.hook.withLock { $0 }?.stop(withinMilliseconds: bound)
    }

    /// Leases when there is room and prolongs what is held; called about once a second and when a batch has ended.
    func tend() {
        guard let dispatcher = context.outbound.hook.withLock({ $0 }) else { return }
        prolong()
        let limit = state.withLock { state -> Int in
            guard !state.isLeasing, !state.isStopping, dispatcher.room > 0 else { return 0 }
            state.isLeasing = true
            return state.batchJobs
        }
        guard limit > 0 else { return }
        context.hosts[0].submit { loop in
            let call = HandoffCoordinator.LeaseCall(
                channel: Self.channel, apps: nil, limit: limit, leaseMilliseconds: Self.leaseMilliseconds,
                deadline: Int64(loop.loop.now) + Self.waitMilliseconds, leaseID: SecureRandom.words(),
                isCallerPresent: { dispatcher.room > 0 },
                complete: { [registry = loop.registry] jobs in self.post(jobs, registry: registry, by: dispatcher) })
            // Jobs whose results cannot be told would be alerted again.
            let isFull = loop.handoff.kept.count >= KeptResults.fullCount
            if isFull || !loop.handoff.lease(call, now: Int64(loop.loop.now)) {
                self.state.withLock { $0.isLeasing = false }
            }
        }
    }

    private func post(_ jobs: [Job], registry: AppRegistry, by dispatcher: HookDispatcher) {
        state.withLock { $0.isLeasing = false }
        guard let first = jobs.first else { return }
        let batch = PushAPI.HookDelivery(
            jobs: jobs, channel: Self.channel, leaseID: first.leaseID, registry: registry)
        let now = ClockReader.monotonic()
        // Past the last expiry there is nothing left in the batch to show anyone.
        let gatewayNow = jobs.map { $0.leasedUntil }.max().map { $0 - Self.leaseMilliseconds } ?? 0
        let lifetime = jobs.map { $0.expiration == 0 ? 60_000 : $0.expiration - gatewayNow }.max() ?? 0
        state.withLock { state in
            state.batches[batch.id] = Batch(delivery: batch, prolongAt: now + Self.prolongMilliseconds)
        }
        let delivery = HookDelivery(id: batch.id, body: batch.body, giveUpAt: now + max(1_000, lifetime))
        if !dispatcher.submit(delivery) {
            // No room after all, or the hook stops.
            state.withLock { _ = $0.batches.removeValue(forKey: batch.id) }
            giveBack(jobs)
        }
        tend()
    }

    /// Makes jobs due again that the receiver never got: a stop, or a hook that was taken away, costs them no attempt and
    /// no lease's time.
    private func giveBack(_ jobs: [Job]) {
        settle(jobs.map { JobResult(job: $0.message, leaseID: $0.leaseID, outcome: .unsent, reason: "hookNotReached") })
    }

    /// Tells the parts; what a part cannot take now it is told again, for as long as a lease may last.
    private func settle(_ results: [JobResult]) {
        context.hosts[0].submit { loop in
            let kept = loop.handoff.kept
            kept.givenUp = { [log = loop.log] count in
                log.write(
                    .error, .hookGivenUp,
                    [.count: LogValue(count), .reason: "no part took the results before their leases ended"])
            }
            kept.settle(results, until: Int64(loop.loop.now) + Self.leaseMilliseconds)
        }
    }

    private func prolong() {
        let now = ClockReader.monotonic()
        let due = state.withLock { state -> [(id: String, items: [ExtendItem])] in
            var due: [(id: String, items: [ExtendItem])] = []
            for (id, batch) in state.batches where batch.prolongAt <= now {
                state.batches[id]?.prolongAt = now + Self.prolongMilliseconds
                due.append((id, batch.delivery.jobs.map { ExtendItem(job: $0.message, leaseID: $0.leaseID) }))
            }
            return due
        }
        guard !due.isEmpty else { return }
        context.hosts[0].submit { loop in
            for (id, items) in due {
                let isSent = loop.handoff.extend(items, milliseconds: Self.leaseMilliseconds, apps: nil) { verdicts in
                    if verdicts.contains(where: { $0.verdict == .storeFailed }) { self.prolongSoon(id) }
                }
                if !isSent { self.prolongSoon(id) }
            }
        }
    }

    /// A part that moves has not heard of it: it is asked again.
    private func prolongSoon(_ id: String) {
        let time = ClockReader.monotonic() + Self.repeatMilliseconds
        state.withLock { $0.batches[id]?.prolongAt = time }
    }
}

extension HookSender: HookPolicy {
    func headers(
        for delivery: HookDelivery, secrets: [Secret], unixSeconds: Int64
    ) -> [(name: String, value: String)] {
        guard let batch = state.withLock({ $0.batches[delivery.id]?.delivery }) else { return [] }
        let keys = secrets.compactMap { HookSecret($0.exposed) }
        return WebhookHeaders.make(id: batch.id, body: batch.body, keys: keys, unixSeconds: unixSeconds)
    }

    func decide(_ response: HookResponse, for delivery: HookDelivery) -> HookDecision {
        guard let batch = state.withLock({ $0.batches[delivery.id]?.delivery }) else { return .done }
        if case .retry = Self.read(response, batch) { return .retry }
        return .done
    }

    func ended(_ delivery: HookDelivery, _ outcome: HookOutcome, mayHaveArrived: Bool) {
        guard let batch = state.withLock({ $0.batches.removeValue(forKey: delivery.id) }) else { return }
        if case .answered(let response) = outcome {
            if case .settled(let results) = Self.read(response, batch.delivery) { settle(results) }
        } else if !mayHaveArrived {
            giveBack(batch.delivery.jobs)
        }
        tend()
    }

    private static func read(_ response: HookResponse, _ batch: PushAPI.HookDelivery) -> HookAnswer {
        response.body.withUnsafeBytes { HookAnswer(status: response.status, body: $0, delivery: batch) }
    }
}
