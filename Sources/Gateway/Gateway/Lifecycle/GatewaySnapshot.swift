internal import Quotas
internal import Configuration
internal import Cryptography
internal import Delivery
internal import PushAPI
internal import Wire

/// The immutable values that a reload replaces on every loop: apps, secrets, limits, credentials.
struct GatewaySnapshot: Sendable {
    var version: UInt64
    /// The settings of all known apps, including disabled ones.
    var settings: [AppSettings]
    var registry: AppRegistry
    var credentials: CredentialSet
    var limits: GatewayLimits
    /// The connection limits, reduced to the available descriptors.
    var connections: ConnectionLimits
    var allowsPlaintextRegistration: Bool
    var webSockets: GatewayConfiguration.WebSockets
    var backupFolder: String
    var hasEvents: Bool
    var hasQuotas: Bool
    /// The apps with a quota that limits an amount and not a rate, such as devices or stored bytes.
    ///
    /// Disabled apps are included, because their usage is shown until it ends.
    var boundApps: [AppKey]
    /// The apps of `boundApps` with a quota on queued messages or on bytes.
    var storeBoundApps: [AppKey]
    var webhooks: [FeedName: GatewayConfiguration.Hook] = [:]

    /// Builds a snapshot.
    ///
    /// - Parameters:
    ///   - configuration: The configuration file in use.
    ///   - budget: The descriptor budget that limits connections.
    ///   - managed: The apps of the admin API, none of which is in the file.
    ///   - isComplete: Whether this gateway has received all apps of the admin API.
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
        // Shards keep the settings of a disabled app, because its jobs are still leased and its events kept.
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
        deviceMay = app.deviceMay
        registersBySecret = app.registersBySecret
        // The keys were validated when the configuration was read.
        tokenKeys = app.tokenKeys.compactMap { try? RSAPublicKey(pem: Array($0.utf8)) }
        (rates, bounds, quotas) = (app.push.rates, app.push.bounds, app.quotas)
    }
}
