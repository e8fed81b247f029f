internal import Campaigns
internal import Delivery
internal import Platform
internal import PushAPI
internal import Wire

/// How many devices of each app were connected: a point each ten minutes, and the most of each day, looked at each second.
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

    /// Takes a point in.
    ///
    /// - Returns: the times of the points that left.
    func notePoint(_ count: Int, app: AppKey, at time: GatewayTime) -> [GatewayTime] {
        state.withLock { $0.series[app, default: OnlineSeries()].note(count, at: time) }
    }

    /// Takes in how many are connected now.
    ///
    /// - Returns: what the rows must say now: the day's peak if it rose, and the peaks of days that left then.
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

/// Counts connected devices every second and keeps the rates' use, on the loop that owns the gateway's own rows.
final class CampaignKeeper {
    private unowned let owner: GatewayLoop
    private var lastPoint: GatewayTime = 0
    /// A question to the loops is under way until then.
    private var asksAgainAt: GatewayTime = 0
    private static let retryDelay: Int64 = 10_000
    private var written: [String: Int] = [:]

    init(_ owner: GatewayLoop) { self.owner = owner }

    /// About once a second.
    func tick() {
        guard owner.context.isReady else { return }
        writeRates()
        // An answer that does not come, of a loop that is busy, costs one second's look.
        guard owner.now >= asksAgainAt else { return }
        asksAgainAt = owner.now + Self.retryDelay
        owner.campaigns.coordinator.askAll({ _ in .online }) { [weak self] answers in
            guard let self else { return }
            var counts: [AppKey: Int] = [:]
            for app in owner.snapshot.settings { counts[app.key] = 0 }
            for answer in answers {
                guard case .online(let part) = answer else { return }
                counts.merge(part, uniquingKeysWith: +)
            }
            asksAgainAt = 0
            let place = OnlineSeries.place(owner.now)
            for (app, count) in counts {
                notePeak(count, app)
                if place > lastPoint { notePoint(count, app, place) }
            }
            lastPoint = max(lastPoint, place)
        }
    }

    private func notePoint(_ count: Int, _ app: AppKey, _ time: GatewayTime) {
        let left = owner.context.online.notePoint(count, app: app, at: time)
        MetaRows.writeOnline(count, app: app, at: time, on: owner)
        for time in left { MetaRows.deleteOnline(app: app, at: time, on: owner) }
    }

    private func notePeak(_ count: Int, _ app: AppKey) {
        let day = UInt32(truncatingIfNeeded: max(0, owner.now) / 86_400_000)
        guard let change = owner.context.online.notePeak(count, app: app, day: day) else { return }
        MetaRows.writePeak(change.peak, app: app, day: day, on: owner)
        for left in change.leftPeaks { MetaRows.deletePeak(app: app, day: left, on: owner) }
    }

    /// What a crash can forget of a day's quota is one second's use.
    func writeRates() {
        owner.exchangeRates()
        for use in owner.context.rates.dayCounts() {
            let name = "\(use.app.word) \(use.kind.rawValue) \(use.day)"
            guard written[name] != use.count else { continue }
            written[name] = use.count
            MetaRows.writeRate(use.count, app: use.app, kind: UInt64(use.kind.rawValue), day: use.day, on: owner)
        }
        if written.count > 4_096 { written.removeAll() }
    }
}
