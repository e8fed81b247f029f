internal import Quotas
internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// Uses of apps' quotas: one account for all loops.
///
/// Only apps that have quotas ask it, so that others pay nothing.
final class SharedQuotas: Sendable {
    private let accounting = Lock(QuotaAccounting())
    /// At the owner of part 0: what all gateways have told.
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

    /// Forgets apps that are gone.
    func follow(_ registry: AppRegistry) { accounting.withLock { $0.keep { registry.known($0) != nil } } }

    func queues(of apps: [AppKey]) -> [AppQueue] { accounting.withLock { $0.queues(of: apps) } }
    func hear(_ elsewhere: [AppQueue], now: UInt64) { accounting.withLock { $0.hear(elsewhere, now: Int64(now)) } }

    /// What the other gateways have, and keeps what this one tells; at the owner of part 0.
    ///
    /// - Returns: `nil` while others may not have told.
    func count(_ queues: [AppQueue], of node: Int, now: UInt64) -> [AppQueue]? {
        ledger.withLock { $0.take(queues, of: node, now: Int64(now)) }
    }

    /// This gateway owns part 0 from now on, perhaps again: what it was told before is old.
    func beginCounting() { ledger.withLock { $0 = QueueLedger() } }

    func forget(part: Int) { accounting.withLock { $0.forget(part: part) } }

    func usage(of app: AppKey, quotas: AppQuotas, now: UInt64) -> [QuotaUse] {
        accounting.withLock { $0.usage(of: app, quotas: quotas, now: Int64(now)) }
    }

    /// Writes what was refused lately; from the control thread, about once a second.
    func report(to log: Log, registry: AppRegistry) {
        for (app, quota, count) in accounting.withLock({ $0.takeReport() }) {
            log.write(
                .warning, .quotaUsedUp,
                [.app: .text(registry.appID(of: app)), .name: .text(quota.key), .count: LogValue(count)])
        }
    }
}

/// That an app's quotas were asked: nothing reaches a shard as a publish without one, and only this file makes them.
///
/// So a new front cannot forget the question: it does not compile.
struct PublishPermit: Sendable {
    /// The app that was asked about; `nil` for a task's messages, whose app was when the task was made.
    private let app: AppKey?
    fileprivate init(_ app: AppKey?) { self.app = app }

    /// Whether it is for a message of this app.
    func covers(_ app: AppKey) -> Bool { self.app == nil || self.app == app }
}

extension EventLoopHost {
    /// Sends this gateway's queue counts to the owner of partition 0, and takes the counts of the other gateways.
    ///
    /// The counts are of apps with a quota on queues. Host 0 of each gateway does this, whichever gateway owns partition 0. The quota
    /// cannot be split into shares: a gateway may accept a message that is queued, and counted, on another one.
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
            // Where there is none, the last word holds for some seconds.
            if let elsewhere { context.usage.quotas.hear(elsewhere, now: loop.now) }
        }
    }

    /// Counts a call of an app that asks for messages, or says which of the app's quotas is used up.
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

    /// The same of a call about tasks: what makes no message is counted for nothing, and a broadcast only needs room in the store.
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

    /// For the messages of a task whose row is durable: the call that gave it its devices, or made the broadcast, was counted.
    var permitOfKeptTask: PublishPermit { PublishPermit(nil) }

    /// When a device comes again whose app has all it may have.
    private static let quotaWindow: (UInt32, UInt32) = (30_000, 60_000)
    static let overStoredBytes = Refusal(
        .overloaded, "the app's quota storedBytes is used up, so no new device can register; come back later",
        window: quotaWindow)
    static let overDevices = Refusal(
        .overloaded, "the app has as many devices connected as its quota devices allows this gateway; come back later",
        window: quotaWindow)
}

extension Partition {
    /// Notes what this partition has of the apps whose holdings are bound; in each tick.
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
            // Devices that are to be refused do not count, as in `connectedDevices(of:)`.
            let devices = max(0, figures.connectedDevices - (surplusDevices[app] ?? 0))
            holdings[app] = QuotaHolding(
                devices: devices, queued: Int(figures.queuedMessages), queuedBytes: Int(figures.queuedBytes),
                retainedBytes: Int(figures.retainedBytes))
        }
        // Once for all apps: each publish of one that has quotas takes the same lock.
        context.usage.quotas.note(part: number, holdings)
    }

    /// Asks the app's quotas about one more device; a device that is connected already may always return.
    ///
    /// - Returns: whether the quota of devices counts it: then it is asked again before the Welcome (`isSurplus`).
    /// - Throws: which quota is used up.
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

    /// Whether a device that is connected and has no Welcome yet is one too many; then `surplusLeft` is owed.
    ///
    /// Hellos that wait for the disk are under way together, and each of them found room. To count them at their beginning would let
    /// strangers, whose Hellos prove nothing, fill an app's quota.
    func isSurplus(of key: AppKey) -> Bool {
        guard let quotas = registry[key]?.quotas, quotas[.devices] > 0,
            context.usage.quotas.hasSurplusDevice(
                app: key, part: number, connected: connectedDevices(of: key), quotas: quotas)
        else { return false }
        metrics.count(.over(.devices))
        surplusDevices[key, default: 0] += 1
        return true
    }

    /// A device that was one too many has gone.
    func surplusLeft(of key: AppKey) {
        let left = (surplusDevices[key] ?? 0) - 1
        surplusDevices[key] = left > 0 ? left : nil
    }

    /// Connected devices of an app in this partition, without those that are to be refused.
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
