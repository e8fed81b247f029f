internal import Quotas
internal import Delivery
internal import Platform
internal import PushAPI
internal import Wire

/// The history of each app's connected devices: a point every ten minutes, and each day's peak, sampled every second.
final class OnlineHistory: Sendable {
    private struct State {
        var series: [AppKey: OnlineSeries] = [:]
        var peaks: [AppKey: [UInt32: Int]] = [:]
    }

    private let state = Lock(State())

    func points(of app: AppKey) -> [(time: GatewayTime, count: Int)] {
        state.withLock { $0.series[app]?.points ?? [] }
    }

    func peak(of app: AppKey, day: UInt32) -> Int { state.withLock { $0.peaks[app]?[day] ?? 0 } }

    /// Adds a point.
    ///
    /// - Returns: The times of the points that were dropped.
    func notePoint(_ count: Int, app: AppKey, at time: GatewayTime) -> [GatewayTime] {
        state.withLock { $0.series[app, default: OnlineSeries()].note(count, at: time) }
    }

    /// Adds the current number of connected devices.
    ///
    /// - Returns: The day's peak, and the days whose peaks were dropped; `nil` if the peak did not rise.
    func notePeak(_ count: Int, app: AppKey, day: UInt32) -> (peak: Int, leftPeaks: [UInt32])? {
        state.withLock { state in
            guard count > state.peaks[app]?[day] ?? -1 else { return nil }
            var peaks = state.peaks[app] ?? [:]
            let leftPeaks = peaks.keys.filter { Int64($0) < Int64(day) - PushAPI.Limits.reportDays }
            for old in leftPeaks { peaks[old] = nil }
            peaks[day] = count
            state.peaks[app] = peaks
            return (count, Array(leftPeaks))
        }
    }

    /// Removes expired data, also of deleted apps.
    ///
    /// - Returns: The data whose rows must be removed.
    func takeOld(now: GatewayTime) -> (points: [(app: AppKey, time: GatewayTime)], peaks: [(app: AppKey, day: UInt32)])
    {
        state.withLock { state in
            var points: [(app: AppKey, time: GatewayTime)] = []
            for app in state.series.keys {
                points += (state.series[app]?.takeOld(now: now) ?? []).map { (app, $0) }
                if state.series[app]?.points.isEmpty ?? true { state.series[app] = nil }
            }
            let firstDay = max(0, now) / 86_400_000 - PushAPI.Limits.reportDays
            var peaks: [(app: AppKey, day: UInt32)] = []
            for app in state.peaks.keys {
                let old = (state.peaks[app] ?? [:]).keys.filter { Int64($0) < firstDay }
                for day in old { state.peaks[app]?[day] = nil }
                peaks += old.map { (app, $0) }
                if state.peaks[app]?.isEmpty ?? true { state.peaks[app] = nil }
            }
            return (points, peaks)
        }
    }

    func restore(
        points: [(app: AppKey, time: Int64, count: Int)], peaks: [(app: AppKey, day: UInt32, count: Int)]
    ) {
        state.withLock { state in
            state = State()
            for point in points {
                _ = state.series[point.app, default: OnlineSeries()].note(point.count, at: point.time)
            }
            for peak in peaks { state.peaks[peak.app, default: [:]][peak.day] = peak.count }
        }
    }
}

/// Counts connected devices every second and stores the use of rate limits, on the partition of bucket 0.
final class TaskMaintenance {
    private unowned let owner: Partition
    private var lastPoint: GatewayTime = 0
    /// The time at which a question in flight times out.
    private var asksAgainAt: GatewayTime = 0
    private static let retryDelay: Int64 = 10_000
    private var written: [String: Int] = [:]

    init(_ owner: Partition) { self.owner = owner }

    /// Called about once a second.
    func tick() {
        guard owner.context.isReady else { return }
        writeRates()
        // After a missing answer, for example of a busy loop, the next sample is taken after `retryDelay`.
        guard owner.now >= asksAgainAt else { return }
        asksAgainAt = owner.now + Self.retryDelay
        owner.coordinator.collect({ _ in OnlineQuery() }) { [self, owner] parts in
            guard owner.isServing, let parts else { return }
            var counts: [AppKey: Int] = [:]
            for app in owner.snapshot.settings where app.isServed { counts[app.key] = 0 }
            for part in parts { counts.merge(part, uniquingKeysWith: +) }
            asksAgainAt = 0
            let place = OnlineSeries.place(owner.now)
            for (app, count) in counts {
                notePeak(count, app)
                if place > lastPoint { notePoint(count, app, place) }
            }
            if place > lastPoint { removeOld() }
            lastPoint = max(lastPoint, place)
        }
    }

    /// Removes expired rows every ten minutes; no later count removes the rows of deleted apps.
    private func removeOld() {
        let old = owner.context.usage.online.takeOld(now: owner.now)
        for point in old.points { MetaRows.deleteOnline(app: point.app, at: point.time, on: owner) }
        for peak in old.peaks { MetaRows.deletePeak(app: peak.app, day: peak.day, on: owner) }
        for use in owner.context.usage.rates.takeOld(now: owner.now) {
            MetaRows.deleteRate(app: use.app, kind: UInt64(use.kind.rawValue), on: owner)
        }
    }

    private func notePoint(_ count: Int, _ app: AppKey, _ time: GatewayTime) {
        let left = owner.context.usage.online.notePoint(count, app: app, at: time)
        MetaRows.writeOnline(count, app: app, at: time, on: owner)
        for time in left { MetaRows.deleteOnline(app: app, at: time, on: owner) }
    }

    private func notePeak(_ count: Int, _ app: AppKey) {
        let day = UInt32(truncatingIfNeeded: max(0, owner.now) / 86_400_000)
        guard let change = owner.context.usage.online.notePeak(count, app: app, day: day) else { return }
        MetaRows.writePeak(change.peak, app: app, day: day, on: owner)
        for left in change.leftPeaks { MetaRows.deletePeak(app: app, day: left, on: owner) }
    }

    /// Stores the use of rate limits; a crash loses at most one second's use.
    func writeRates() {
        owner.host.exchangeRates()
        for use in owner.context.usage.rates.dayCounts() {
            let name = "\(use.app.word) \(use.kind.rawValue) \(use.day)"
            guard written[name] != use.count else { continue }
            written[name] = use.count
            MetaRows.writeRate(use.count, app: use.app, kind: UInt64(use.kind.rawValue), day: use.day, on: owner)
        }
        if written.count > 4_096 { written.removeAll() }
    }
}
