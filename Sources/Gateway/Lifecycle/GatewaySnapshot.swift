internal import Configuration
internal import Delivery
internal import PushAPI
internal import Wire

/// What a reload replaces on every loop: apps, secrets, limits, credentials, as immutable values.
struct GatewaySnapshot: Sendable {
    var version: UInt64
    var settings: [AppSettings]
    var registry: AppRegistry
    var credentials: CredentialSet
    var limits: GatewayLimits
    /// As far as there are descriptors.
    var connections: ConnectionLimits
    var allowsPlaintextRegistration: Bool
    var backupFolder: String

    init(_ configuration: GatewayConfiguration, _ budget: DescriptorBudget) {
        version = configuration.version
        limits = configuration.limits
        connections = budget.limits(configuration.limits)
        allowsPlaintextRegistration = configuration.allowPlaintextRegistration
        backupFolder = configuration.backupPath ?? configuration.storePath + "/backups"
        settings = configuration.apps.map { $0.settings(key: AppKey(appID: $0.appID)) }
        registry = AppRegistry(
            configuration.apps.map { app in
                var known = App(
                    appID: app.appID, appKey: app.appKey, appSecrets: app.appSecrets.map(\.exposed),
                    masterSecrets: app.masterSecrets.map(\.exposed), apnsTopic: app.apnsTopic)
                known.apnsTemplate = app.apnsTemplate
                (known.defaultTimeToLive, known.longestTimeToLive) = (app.push.defaultTTL, app.push.longestTTL)
                known.transmissionCharacterCount = app.push.transmissionCharacters
                known.scheduleHorizon = Int64(app.push.scheduleDays) * 86_400_000
                known.timestampTolerance = Int64(app.push.timestampToleranceSeconds) * 1_000
                (known.rates, known.bounds) = (app.push.rates, app.push.bounds)
                return known
            })
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
