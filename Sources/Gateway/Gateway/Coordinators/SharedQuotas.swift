internal import Quotas
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// The use of apps' quotas, in one account for all loops; only apps with quotas take its lock.
final class SharedQuotas: Sendable {
    private let accounting = Lock(QuotaAccounting())
    /// The queue counts reported by all gateways, at the owner of partition 0.
    private let ledger = Lock(QueueLedger())

    func setGatewayCount(_ count: Int) { accounting.withLock { $0.gatewayCount = max(1, count) } }

    func take(app: AppKey, publishes: Int, byteCount: Int, quotas: AppQuotas, now: UInt64) -> QuotaRefusal? {
        accounting.withLock {
            $0.take(app: app, publishes: publishes, byteCount: byteCount, quotas: quotas, now: Int64(now))
        }
    }

    func admitsDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        accounting.withLock { $0.admitsDevice(app: app, part: part, connected: connected, quotas: quotas) }
    }

    func hasSurplusDevice(app: AppKey, part: Int, connected: Int, quotas: AppQuotas) -> Bool {
        accounting.withLock { $0.hasSurplusDevice(app: app, part: part, connected: connected, quotas: quotas) }
    }

    func storeRefusal(app: AppKey, quotas: AppQuotas, now: UInt64) -> QuotaRefusal? {
        accounting.withLock { $0.storeRefusal(app: app, quotas: quotas, now: Int64(now)) }
    }

    func registrationRefusal(app: AppKey, quotas: AppQuotas, now: UInt64) -> QuotaRefusal? {
        accounting.withLock { $0.registrationRefusal(app: app, quotas: quotas, now: Int64(now)) }
    }

    func note(part: Int, _ holdings: [AppKey: QuotaHolding]) { accounting.withLock { $0.note(part: part, holdings) } }

    func follow(_ registry: AppRegistry) { accounting.withLock { $0.keep { registry.known($0) != nil } } }

    func queues(of apps: [AppKey]) -> [AppQueue] { accounting.withLock { $0.queues(of: apps) } }
    func hear(_ elsewhere: [AppQueue], now: UInt64) { accounting.withLock { $0.hear(elsewhere, now: Int64(now)) } }

    /// Stores a gateway's queue counts and returns those of the others; used at the owner of partition 0.
    ///
    /// - Returns: The counts, or `nil` until every gateway has had time to report.
    func count(_ queues: [AppQueue], of node: Int, now: UInt64) -> [AppQueue]? {
        ledger.withLock { $0.take(queues, of: node, now: Int64(now)) }
    }

    /// Discards earlier reports after this gateway has become the owner of partition 0.
    func beginCounting() { ledger.withLock { $0 = QueueLedger() } }

    func forget(part: Int) { accounting.withLock { $0.forget(part: part) } }

    func usage(of app: AppKey, quotas: AppQuotas, now: UInt64) -> [QuotaUse] {
        accounting.withLock { $0.usage(of: app, quotas: quotas, now: Int64(now)) }
    }

    /// Logs recent refusals; called on the control thread about once a second.
    func report(to log: Log, registry: AppRegistry) {
        for (app, quota, count) in accounting.withLock({ $0.takeReport() }) {
            log.write(
                .warning, .quotaUsedUp,
                [.app: .text(registry.appID(of: app)), .name: .text(quota.key), .count: LogValue(count)])
        }
    }
}

/// Proof that an app's quotas were checked; every publish needs one, and only this file creates them.
///
/// A new API that skips the check therefore does not compile.
struct PublishPermit: Sendable {
    /// The checked app; `nil` for a task's messages, which were checked when the task was created.
    private let app: AppKey?
    fileprivate init(_ app: AppKey?) { self.app = app }

    func covers(_ app: AppKey) -> Bool { self.app == nil || self.app == app }
}

extension EventLoopHost {
    /// Sends this gateway's queue counts to the owner of partition 0, and applies the counts of the other gateways.
    ///
    /// Only host 0 of each gateway exchanges counts, for apps with a quota on queues. A quota on queues cannot be split into
    /// shares, because a message may be accepted on one gateway and queued on another.
    func exchangeQueues() {
        guard index == 0, let cluster = context.cluster, !snapshot.storeBoundApps.isEmpty,
            loop.now >= nextQueueExchange
        else { return }
        nextQueueExchange = loop.now + QueueLedger.exchangeMilliseconds
        let told = context.usage.quotas.queues(of: Array(snapshot.storeBoundApps.prefix(QueueLedger.appLimit)))
        guard servingPartition(0) == nil else {
            guard let elsewhere = context.usage.quotas.count(told, of: cluster.node, now: loop.now) else { return }
            return context.usage.quotas.hear(elsewhere, now: loop.now)
        }
        ask(CountQueues(queues: told), of: Bucket(0)) { [self] elsewhere in
            // Without an answer, the last counts stay valid for some seconds.
            if let elsewhere { context.usage.quotas.hear(elsewhere, now: loop.now) }
        }
    }

    /// Counts a publishing call of an app; throws if one of the app's quotas is used up.
    func permit(of key: AppKey, publishes: Int, byteCount: Int) throws(QuotaRefusal) -> PublishPermit {
        guard snapshot.hasQuotas, let quotas = registry[key]?.quotas, !quotas.isEmpty else {
            return PublishPermit(key)
        }
        let refusal = context.usage.quotas.take(
            app: key, publishes: publishes, byteCount: byteCount, quotas: quotas, now: loop.now)
        guard let refusal else { return PublishPermit(key) }
        metrics.count(.over(refusal.quota))
        throw refusal
    }

    /// Counts a call with messages against the app's quotas; checks a broadcast only against the quotas of the store.
    func permit(_ action: CampaignAction, byteCount: Int) throws(QuotaRefusal) -> PublishPermit {
        if let (app, count) = action.publishes {
            return try permit(of: app, publishes: count, byteCount: byteCount)
        }
        guard let key = action.broadcaster, snapshot.hasQuotas, let quotas = registry[key]?.quotas,
            let refusal = context.usage.quotas.storeRefusal(app: key, quotas: quotas, now: loop.now)
        else { return PublishPermit(action.broadcaster) }
        metrics.count(.over(refusal.quota))
        throw refusal
    }

    /// The permit for messages of a stored task; the call that created the task was counted.
    var permitOfKeptTask: PublishPermit { PublishPermit(nil) }

    /// The retry window in milliseconds of a device that is refused because of its app's quota.
    private static let quotaWindow: (UInt32, UInt32) = (30_000, 60_000)
    static let overStoredBytes = Refusal(
        .overloaded, "the app's quota storedBytes is used up, so no new device can register; retry later",
        window: quotaWindow)
    static let overDevices = Refusal(
        .overloaded, "the app has as many devices connected as its quota devices allows this gateway; retry later",
        window: quotaWindow)
}

extension Partition {
    /// Records this partition's use of quotas; called in each tick.
    func noteHoldings() {
        let apps = snapshot.boundApps
        guard !apps.isEmpty, isServing else {
            if isHoldingNoted { context.usage.quotas.forget(part: number) }
            isHoldingNoted = false
            return
        }
        if !isHoldingNoted, number == 0 { context.usage.quotas.beginCounting() }
        isHoldingNoted = true
        var holdings: [AppKey: QuotaHolding] = [:]
        holdings.reserveCapacity(apps.count)
        for (app, figures) in zip(apps, core.pointee.shard.statistics(of: apps)) {
            // Devices that will be refused are not counted, as in `connectedDevices(of:)`.
            let devices = max(0, figures.connectedDevices - (surplusDevices[app] ?? 0))
            holdings[app] = QuotaHolding(
                devices: devices, queued: Int(figures.queuedMessages), queuedBytes: Int(figures.queuedBytes),
                retainedBytes: Int(figures.retainedBytes))
        }
        // One call for all apps, because each publish of an app with quotas takes the same lock.
        context.usage.quotas.note(part: number, holdings)
    }

    /// Checks the app's quotas for one more device; a device that is already connected may always reconnect.
    ///
    /// - Returns: Whether the device quota applies. It is then checked again before the Welcome (`isSurplus`).
    /// - Throws: The refusal for the exceeded quota.
    func admission(of cid: DeviceID, of app: App, isRegistration: Bool) throws(Refusal) -> Bool {
        if isRegistration, app.quotas[.storedBytes] > 0,
            context.usage.quotas.registrationRefusal(app: app.key, quotas: app.quotas, now: loop.now) != nil
        {
            metrics.count(.over(.storedBytes))
            throw EventLoopHost.overStoredBytes
        }
        guard app.quotas[.devices] > 0, !core.pointee.shard.isConnected(cid) else { return false }
        let isRoom = context.usage.quotas.admitsDevice(
            app: app.key, part: number, connected: connectedDevices(of: app.key), quotas: app.quotas)
        guard !isRoom else { return true }
        metrics.count(.over(.devices))
        throw EventLoopHost.overDevices
    }

    /// Returns whether a device without a Welcome exceeds the device quota; such a device is surplus until `surplusLeft`.
    ///
    /// Several Hellos may wait for the disk at once after each has passed the first check. If they counted on arrival,
    /// unauthenticated Hellos could use up an app's quota.
    func isSurplus(of key: AppKey) -> Bool {
        guard let quotas = registry[key]?.quotas, quotas[.devices] > 0,
            context.usage.quotas.hasSurplusDevice(
                app: key, part: number, connected: connectedDevices(of: key), quotas: quotas)
        else { return false }
        metrics.count(.over(.devices))
        surplusDevices[key, default: 0] += 1
        return true
    }

    func surplusLeft(of key: AppKey) {
        let left = (surplusDevices[key] ?? 0) - 1
        surplusDevices[key] = left > 0 ? left : nil
    }

    /// Returns the number of an app's connected devices in this partition, without those that will be refused.
    private func connectedDevices(of key: AppKey) -> Int {
        let connected = core.pointee.shard.statistics(of: [key]).first?.connectedDevices ?? 0
        return connected - (surplusDevices[key] ?? 0)
    }
}

extension LoopCounter {
    static func over(_ quota: Quota) -> LoopCounter {
        switch quota {
        case .devices: .overDevices
        case .publishesPerSecond: .overPublishes
        case .requestBytesPerSecond: .overBytes
        case .queuedMessages: .overQueued
        case .queuedBytes: .overQueuedBytes
        case .storedBytes: .overStored
        }
    }
}
