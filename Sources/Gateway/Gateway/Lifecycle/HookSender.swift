internal import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Webhooks
internal import Wire

/// Delivers jobs to the hook, a receiver that the gateway calls, instead of a sender that calls the handoff API.
///
/// It is another client of the handoff coordinator. Loop 0 leases jobs, the dispatcher's thread posts them, and the receiver's
/// response settles them. A batch that waits for a retry keeps its leases, so an outage of the receiver uses up no attempts. Jobs
/// that expire during the outage are given up.
final class HookSender: Sendable {
    private struct Batch: Sendable {
        var delivery: PushAPI.HookDelivery
        var prolongAt: Int64
    }

    private struct State: Sendable {
        var batches: [String: Batch] = [:]
        /// The channels with a lease in progress.
        var leasing: ChannelSet = []
        var batchJobs: Int
        var channels: [VendorChannel]
        var isStopping = false
    }

    private static let leaseMilliseconds: Int64 = 300_000
    private static let prolongMilliseconds: Int64 = 120_000
    private static let waitMilliseconds: Int64 = 30_000
    /// The retry interval for leases that a partition did not extend.
    private static let repeatMilliseconds: Int64 = 2_000

    private let state: Lock<State>
    private let context: GatewayContext
    private let log: Log

    init(_ hook: GatewayConfiguration.Hook, context: GatewayContext, log: Log) throws {
        (self.context, self.log) = (context, log)
        state = Lock(State(batchJobs: hook.batchJobs, channels: hook.channels))
        let dispatcher = try HookDispatcher(
            configuration: hook, policy: self, log: log, wakeup: context.outbound.hookWakeup)
        context.outbound.hook.withLock { $0 = dispatcher }
    }

    func update(_ hook: GatewayConfiguration.Hook?) {
        if let hook { state.withLock { ($0.batchJobs, $0.channels) = (hook.batchJobs, hook.channels) } }
        context.outbound.hook.withLock { $0 }?.update(hook)
    }

    func stop(withinMilliseconds bound: Int64) {
        state.withLock { $0.isStopping = true }
        context.outbound.hook.withLock { $0 }?.stop(withinMilliseconds: bound)
    }

    /// Leases jobs of each channel when the dispatcher has room, and extends leases; called about once a second and after each
    /// batch.
    func tend() {
        guard let dispatcher = context.outbound.hook.withLock({ $0 }) else { return }
        prolong()
        let (channels, limit) = state.withLock { state -> ([VendorChannel], Int) in
            guard !state.isStopping, dispatcher.room > 0 else { return ([], 0) }
            let idle = state.channels.filter { !state.leasing.contains(ChannelSet($0)) }
            for channel in idle { state.leasing.insert(ChannelSet(channel)) }
            return (idle, state.batchJobs)
        }
        for channel in channels { lease(channel, limit: limit, by: dispatcher) }
    }

    private func lease(_ channel: VendorChannel, limit: Int, by dispatcher: HookDispatcher) {
        context.hosts[0].submit { loop in
            let call = HandoffCoordinator.LeaseCall(
                channel: channel, apps: nil, limit: limit, leaseMilliseconds: Self.leaseMilliseconds,
                deadline: Int64(loop.loop.now) + Self.waitMilliseconds, leaseID: SecureRandom.words(),
                isCallerPresent: { dispatcher.room > 0 },
                complete: { [registry = loop.registry] jobs in
                    self.post(jobs, of: channel, registry: registry, by: dispatcher)
                })
            // While too many results wait for their partitions, no jobs are leased. Without a recorded result, a job would be
            // delivered again.
            let isFull = loop.handoff.kept.count >= KeptResults.fullCount
            if isFull || !loop.handoff.lease(call, now: Int64(loop.loop.now)) {
                self.leased(channel)
            }
        }
    }

    private func leased(_ channel: VendorChannel) { state.withLock { _ = $0.leasing.remove(ChannelSet(channel)) } }

    private func post(
        _ jobs: [Job], of channel: VendorChannel, registry: AppRegistry, by dispatcher: HookDispatcher
    ) {
        leased(channel)
        guard let first = jobs.first else { return }
        let batch = PushAPI.HookDelivery(
            jobs: jobs, channel: channel, leaseID: first.leaseID, registry: registry)
        let now = ClockReader.monotonic()
        // The dispatcher retries a batch until the last of its jobs expires.
        let gatewayNow = jobs.map { $0.leasedUntil }.max().map { $0 - Self.leaseMilliseconds } ?? 0
        let lifetime = jobs.map { $0.expiration == 0 ? 60_000 : $0.expiration - gatewayNow }.max() ?? 0
        state.withLock { state in
            state.batches[batch.id] = Batch(delivery: batch, prolongAt: now + Self.prolongMilliseconds)
        }
        let delivery = HookDelivery(id: batch.id, body: batch.body, giveUpAt: now + max(1_000, lifetime))
        if !dispatcher.submit(delivery) {
            // The dispatcher is full or stopping.
            state.withLock { _ = $0.batches.removeValue(forKey: batch.id) }
            giveBack(jobs)
        }
        tend()
    }

    /// Makes undelivered jobs due again, without counting an attempt or waiting for the end of their leases.
    private func giveBack(_ jobs: [Job]) {
        settle(jobs.map { JobResult(job: $0.message, leaseID: $0.leaseID, outcome: .unsent, reason: "hookNotReached") })
    }

    /// Sends results to the partitions, with retries for as long as a lease may last.
    private func settle(_ results: [JobResult]) {
        context.hosts[0].submit { loop in
            let kept = loop.handoff.kept
            kept.givenUp = { [log = loop.log] count in
                log.write(
                    .error, .hookGivenUp,
                    [.count: LogValue(count), .reason: "no part took the results before their leases ended"])
            }
            kept.settle(results, until: Int64(loop.loop.now) + Self.leaseMilliseconds, isOfReceiver: true)
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

    /// Schedules another attempt of an extension that a partition has not processed, for example because it was moving.
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
