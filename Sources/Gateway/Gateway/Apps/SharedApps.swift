internal import Configuration
internal import Delivery
internal import Platform
internal import PushAPI
internal import Wire

/// The apps served by this gateway: those of the configuration file and those of the admin API.
///
/// Each change makes a new snapshot, which is passed to every loop. All loops receive the snapshots in the same order.
final class SharedApps: Sendable {
    private struct State {
        var configuration = GatewayConfiguration()
        var descriptors: DescriptorBudget?
        var surroundings = AppSurroundings()
        var managed = ManagedApps()
        /// Whether the managed apps were read from the store or received from their owner.
        var isKnown = true
        /// The time at which the next secret expires, according to the last snapshot.
        var nextEnd = GatewayTime.max
        var shadowed: Set<String> = []
        var told: Set<String> = []
        /// The registry of the last snapshot.
        var registry = AppRegistry()
        /// Every app served so far, deleted ones included.
        var seen: Set<AppKey> = []
    }

    private let state: Lock<State>

    /// `isKnown`: `true` without a cluster, where the apps' rows are read before the gateway serves.
    init(isKnown: Bool) {
        var state = State()
        state.isKnown = isKnown
        self.state = Lock(state)
    }

    // MARK: Snapshots

    func begin(
        _ configuration: GatewayConfiguration, _ descriptors: DescriptorBudget, now: GatewayTime, log: Log
    ) -> GatewaySnapshot {
        state.withLock { state in
            (state.configuration, state.descriptors) = (configuration, descriptors)
            state.surroundings = AppSurroundings(configuration)
            return Self.snapshot(&state, descriptors, now, log)
        }
    }

    @discardableResult
    func reload(_ configuration: GatewayConfiguration, on context: GatewayContext, now: GatewayTime) -> GatewaySnapshot?
    {
        change(on: context, now: now) { state in
            state.configuration = configuration
            state.surroundings = AppSurroundings(configuration)
            return true
        }
    }

    /// Drops expired secrets; must be called about once a second.
    func tend(on context: GatewayContext, now: GatewayTime) {
        change(on: context, now: now) { $0.nextEnd <= now }
    }

    /// Runs `body` and, if it returns `true`, passes a new snapshot to every loop.
    @discardableResult
    private func change(
        on context: GatewayContext, now: GatewayTime, _ body: (inout State) -> Bool
    ) -> GatewaySnapshot? {
        // The snapshot is passed on under the lock, so that all loops end with the same one.
        state.withLock { state in
            guard body(&state), let descriptors = state.descriptors else { return nil }
            let snapshot = Self.snapshot(&state, descriptors, now, context.log)
            context.tellAll { $0.reload(snapshot) }
            context.usage.quotas.follow(snapshot.registry)
            return snapshot
        }
    }

    private static func snapshot(
        _ state: inout State, _ descriptors: DescriptorBudget, _ now: GatewayTime, _ log: Log
    ) -> GatewaySnapshot {
        var managed: [(app: AppConfiguration, isEnabled: Bool)] = []
        var shadowed: Set<String> = []
        for app in state.managed.sorted {
            if state.surroundings.fileApps.contains(app.appID) {
                shadowed.insert(app.appID)
                if !state.shadowed.contains(app.appID) { log.write(.warning, .appShadowed, [.app: .text(app.appID)]) }
                continue
            }
            let (read, problems) = app.configuration(now: now)
            if !problems.isEmpty, state.told.insert("\(app.appID) \(app.version)").inserted {
                let text = problems.map(\.description).joined(separator: "; ")
                log.write(.error, .appUnread, [.app: .text(app.appID), .error: .text(text)])
            }
            if let read { managed.append((read, app.isEnabled)) }
        }
        state.shadowed = shadowed
        state.nextEnd = state.managed.nextEnd(after: now)
        let snapshot = GatewaySnapshot(
            state.configuration, descriptors, managed: managed, isComplete: state.isKnown)
        state.registry = snapshot.registry
        state.seen.formUnion(snapshot.settings.map(\.key))
        return snapshot
    }

    var registry: AppRegistry { state.withLock { $0.registry } }

    // MARK: The book

    var version: UInt64 { state.withLock { $0.managed.version } }
    var isKnown: Bool { state.withLock { $0.isKnown } }

    /// Sets the managed apps, after this gateway has read the apps' rows as their owner.
    func restore(_ apps: ManagedApps, on context: GatewayContext?, now: GatewayTime) {
        guard let context else {
            return state.withLock { state in (state.managed, state.isKnown) = (apps, true) }
        }
        change(on: context, now: now) { state in
            (state.managed, state.isKnown) = (apps, true)
            return true
        }
    }

    func judge(_ change: AppChange, _ history: StoreHistory, now: GatewayTime) -> AppResult {
        state.withLock { state in
            state.surroundings.history = history
            return state.managed.judge(change, state.surroundings, seen: state.seen, now: now)
        }
    }

    func news(since version: UInt64, of history: StoreHistory) -> AppNews {
        state.withLock { $0.managed.news(since: version, of: history) }
    }

    /// The id of the store history in the last `AppNews` applied; 0 for none.
    var history: UInt64 { state.withLock { $0.managed.history } }

    func put(_ app: ManagedApp, isDeleted: Bool, on context: GatewayContext, now: GatewayTime) {
        change(on: context, now: now) { state in
            if isDeleted { state.managed.remove(app.key, version: app.version) } else { state.managed.put(app) }
            return true
        }
    }

    /// Applies news from the owner of the rows, all pieces together.
    func take(_ news: AppNews, on context: GatewayContext, now: GatewayTime) {
        change(on: context, now: now) { state in
            let isNew = news.head != state.managed.version || !news.changed.isEmpty || !state.isKnown
            state.managed.take(news)
            state.isKnown = true
            return isNew
        }
    }

    // MARK: Pages

    func page(of appID: String, now: GatewayTime) -> AppPage? {
        state.withLock { state in
            if let app = state.configuration.apps.first(where: { $0.appID == appID }) {
                return AppPage(
                    appID: app.appID, appKey: app.appKey, isManaged: false, isEnabled: true,
                    appSecrets: AppPage.Secrets(ends: app.appSecrets.map { _ in 0 }),
                    masterSecrets: AppPage.Secrets(ends: app.masterSecrets.map { _ in 0 }))
            }
            guard let app = state.managed.apps[AppKey(appID: appID)], app.appID == appID else { return nil }
            return AppPage(app, now: now)
        }
    }
}

extension AppPage {
    init(_ app: ManagedApp, now: GatewayTime) {
        func ends(_ secrets: [ManagedSecret]) -> Secrets {
            Secrets(ends: secrets.filter { $0.holds(at: now) }.map(\.until))
        }
        self.init(
            appID: app.appID, appKey: app.appKey, isManaged: true, isEnabled: app.isEnabled,
            appSecrets: ends(app.appSecrets), masterSecrets: ends(app.masterSecrets),
            settings: AppText.shown(app.settings),
            createdAt: app.createdAt, changedAt: app.changedAt)
    }
}
