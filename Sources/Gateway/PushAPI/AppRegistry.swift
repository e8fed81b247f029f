package import Cryptography
package import Quotas
package import Wire

/// A tenant, as the push API uses it.
package struct App: Sendable {
    package let appID: String
    package let key: AppKey
    /// Getui's appkey, which is public and part of the signature.
    package var appKey: String
    /// The secrets that prove a registration: the newest first, then older ones that are still valid.
    package var appSecrets: [String]
    /// The secrets that prove a sender: the newest first, then older ones that are still valid.
    package var masterSecrets: [String]
    /// The APNs topic of device tokens that name none.
    package var apnsTopic: String
    package var apnsTemplate = APNsTemplate()
    /// The TTL of a push that names none, in milliseconds.
    package var defaultTimeToLive = Limits.defaultTimeToLive
    /// The largest TTL that a push may request, in milliseconds.
    package var longestTimeToLive = Limits.timeToLive
    package var rates = RateLimits()
    package var bounds = CallBounds()
    package var quotas = AppQuotas()
    /// The largest delay of a scheduled push, in milliseconds.
    package var scheduleHorizon = ScheduleRules.horizon
    /// The largest accepted difference between a signature's timestamp and the gateway's clock, in milliseconds.
    package var timestampTolerance = Limits.timestampTolerance
    package var transmissionCharacterCount = Limits.transmissionCharacterCount
    /// `false` for a disabled app: it is not served, but its data is kept.
    package var isEnabled = true
    /// Whether the admin API created the app; otherwise it is from the configuration file.
    package var isManaged = false
    /// Whether the app has the upstream feed.
    package var takesUpstream = false
    package var hasEvents = false
    /// Whether devices can register with the appSecret.
    ///
    /// Otherwise they need a token of the app's server.
    package var registersBySecret = true
    /// The public keys for RS256 tokens.
    package var tokenKeys: [RSAPublicKey] = []
    /// The permissions of devices to change their own aliases and tags.
    package var deviceMay: Set<DevicePermission> = []
    let bucketPrefix: [UInt8]

    /// Creates an app; both lists of secrets must be non-empty.
    package init(appID: String, appKey: String, appSecrets: [String], masterSecrets: [String], apnsTopic: String = "") {
        self.appID = appID
        key = AppKey(appID: appID)
        (self.appKey, self.apnsTopic) = (appKey, apnsTopic)
        (self.appSecrets, self.masterSecrets) = (appSecrets, masterSecrets)
        bucketPrefix = Array(appID.utf8) + [0]
    }

    package func bucket(of cid: DeviceID) -> Bucket { Bucket(prefix: bucketPrefix, cid: cid) }
}

package struct CallBounds: Sendable, Equatable {
    package var batchItems = Limits.batchItemCount
    package var listTargets = Limits.listTargetCount
    package var reportedTasks = Limits.reportedTaskCount
    package init() {}
}

/// A snapshot of all apps; it is immutable and replaced as a whole at a reload.
package struct AppRegistry: Sendable {
    private let byID: [String: App]
    private let byKey: [AppKey: App]
    /// `false` until a gateway in a cluster has received the apps created through the admin API.
    package let isComplete: Bool

    /// Creates a registry.
    ///
    /// Of several apps with the same id, the last is used; the configuration's reader rejects such a file.
    package init(_ apps: [App] = [], isComplete: Bool = true) {
        self.isComplete = isComplete
        byID = Dictionary(apps.map { ($0.appID, $0) }, uniquingKeysWith: { $1 })
        byKey = Dictionary(byID.values.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
    }

    /// Returns an enabled app.
    package subscript(appID: String) -> App? { byID[appID].flatMap { $0.isEnabled ? $0 : nil } }
    package subscript(key: AppKey) -> App? { byKey[key].flatMap { $0.isEnabled ? $0 : nil } }

    /// The keys of all apps, disabled ones included.
    package var keys: Set<AppKey> { Set(byKey.keys) }

    /// Returns an app, even if it is disabled.
    package func known(_ appID: String) -> App? { byID[appID] }
    package func known(_ key: AppKey) -> App? { byKey[key] }

    /// Returns the apps for which `isSeen` is true, ordered by id.
    func apps(where isSeen: (AppKey) -> Bool) -> [App] {
        byID.values.filter { isSeen($0.key) }.sorted { $0.appID < $1.appID }
    }

    /// Returns the apps that are enabled here and disabled in `next`.
    package func disabled(in next: AppRegistry) -> [AppKey] {
        byID.values.filter { $0.isEnabled && next.byID[$0.appID]?.isEnabled == false }.map(\.key)
    }

    /// Returns the app's id; empty for an app that was removed from the configuration.
    package func appID(of key: AppKey) -> String { byKey[key]?.appID ?? "" }
}
