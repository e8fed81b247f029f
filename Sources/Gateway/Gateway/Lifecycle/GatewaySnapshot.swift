internal import Quotas
internal import Configuration
internal import Delivery
internal import PushAPI
internal import Wire

/// What a reload replaces on every loop: apps, secrets, limits, credentials, as immutable values.
struct GatewaySnapshot: Sendable {
    var version: UInt64
    /// Of all apps that are known, those that are switched off too.
    var settings: [AppSettings]
    var registry: AppRegistry
    var credentials: CredentialSet
    var limits: GatewayLimits
    /// As far as there are descriptors.
    var connections: ConnectionLimits
    var allowsPlaintextRegistration: Bool
    var webSockets: GatewayConfiguration.WebSockets
    var backupFolder: String
    /// Some app has events.
    var hasEvents: Bool
    /// Some app has quotas.
    var hasQuotas: Bool
    /// Apps with a quota on what the shards have, those that are switched off too: what they had is shown until it ends.
    var boundApps: [AppKey]
    /// Those of them with a quota on what they have in the store.
    var storeBoundApps: [AppKey]
    /// Where feeds are posted.
    var webhooks: [FeedName: GatewayConfiguration.Hook] = [:]

    /// - Parameters:
    ///   - configuration: the file's, in force.
    ///   - budget: how many connections there are descriptors for.
    ///   - managed: apps that the admin API made, none of which is the file's.
    ///   - isComplete: false while this gateway has not heard of them.
    init(
        _ configuration: GatewayConfiguration, _ budget: DescriptorBudget,
        managed: [(app: AppConfiguration, isEnabled: Bool)] = [], isComplete: Bool = true
    ) {
        version = configuration.version
        limits = configuration.limits
        connections = budget.limits(configuration.limits)
        allowsPlaintextRegistration = configuration.allowPlaintextRegistration
        webSockets = configuration.webSockets
        backupFolder = configuration.backupPath ?? configuration.storePath + "/backups"
        let served = configuration.apps + managed.filter(\.isEnabled).map(\.app)
        hasEvents = (configuration.apps + managed.map(\.app)).contains { $0.events != nil }
        hasQuotas = served.contains { !$0.quotas.isEmpty }
        storeBoundApps = (configuration.apps + managed.map(\.app)).filter(\.quotas.boundsStore).map {
            AppKey(appID: $0.appID)
        }
        boundApps = (configuration.apps + managed.map(\.app)).filter(\.quotas.boundsHoldings).map {
            AppKey(appID: $0.appID)
        }
        // The shards keep the settings of an app that is switched off: its jobs are leased and its events kept as before.
        settings =
            configuration.apps.map { $0.settings(key: AppKey(appID: $0.appID)) }
            + managed.map { app, isEnabled in
                var settings = app.settings(key: AppKey(appID: app.appID))
                settings.isServed = isEnabled
                return settings
            }
        registry = AppRegistry(
            configuration.apps.map { App($0) }
                + managed.map { app, isEnabled in
                    var known = App(app)
                    (known.isManaged, known.isEnabled) = (true, isEnabled)
                    return known
                }, isComplete: isComplete)
        for app in served {
            let key = AppKey(appID: app.appID)
            webhooks[FeedName(key, .upstream)] = app.upstream?.webhook
            webhooks[FeedName(key, .events)] = app.events?.webhook
        }
        credentials = CredentialSet(
            configuration.credentials.flatMap { credential in
                credential.tokens.map { token in
                    PushAPI.Credential(
                        name: credential.name, token: token.exposed,
                        apps: credential.apps.map { Set($0.map { AppKey(appID: $0) }) },
                        may: Set(
                            credential.permissions.compactMap {
                                PushAPI.Credential.Permission(rawValue: $0.rawValue)
                            }))
                }
            }, isLoopbackOnly: configuration.credentials.contains { $0.name == "generated" })
    }
}

extension App {
    /// An app as configured.
    fileprivate init(_ app: AppConfiguration) {
        self.init(
            appID: app.appID, appKey: app.appKey, appSecrets: app.appSecrets.map(\.exposed),
            masterSecrets: app.masterSecrets.map(\.exposed), apnsTopic: app.apnsTopic)
        apnsTemplate = app.apnsTemplate
        (defaultTimeToLive, longestTimeToLive) = (app.push.defaultTTL, app.push.longestTTL)
        transmissionCharacterCount = app.push.transmissionCharacters
        scheduleHorizon = Int64(app.push.scheduleDays) * 86_400_000
        timestampTolerance = Int64(app.push.timestampToleranceSeconds) * 1_000
        (takesUpstream, hasEvents) = (app.upstream != nil, app.events != nil)
        (rates, bounds, quotas) = (app.push.rates, app.push.bounds, app.quotas)
    }
}
