package import Quotas
package import Wire

/// One tenant, as the push API knows it.
package struct App: Sendable {
    package let appID: String
    package let key: AppKey
    /// Getui's appkey: public, part of the sign.
    package var appKey: String
    /// What proves a registration; the newest first, old ones while they still count.
    package var appSecrets: [String]
    /// What proves a sender; the newest first, old ones while they still count.
    package var masterSecrets: [String]
    /// The topic of tokens that name none.
    package var apnsTopic: String
    package var apnsTemplate = APNsTemplate()
    /// The TTL of a push that names none, in milliseconds.
    package var defaultTimeToLive = Limits.defaultTimeToLive
    /// The longest TTL that a push may ask for, in milliseconds.
    package var longestTimeToLive = Limits.timeToLive
    package var rates = RateLimits()
    package var bounds = CallBounds()
    package var quotas = AppQuotas()
    /// How far ahead a timed push may lie, in milliseconds.
    package var scheduleHorizon = ScheduleRules.horizon
    /// How far a sign's timestamp may be off, in milliseconds.
    package var timestampTolerance = Limits.timestampTolerance
    package var transmissionCharacterCount = Limits.transmissionCharacterCount
    /// False: nothing of it is served, and what it has stays.
    package var isEnabled = true
    /// The admin API made it; otherwise it is the configuration file's.
    package var isManaged = false
    /// It has the feed.
    package var takesUpstream = false
    package var hasEvents = false
    let bucketPrefix: [UInt8]

    /// Both lists of secrets have at least one.
    package init(appID: String, appKey: String, appSecrets: [String], masterSecrets: [String], apnsTopic: String = "") {
        self.appID = appID
        key = AppKey(appID: appID)
        (self.appKey, self.apnsTopic) = (appKey, apnsTopic)
        (self.appSecrets, self.masterSecrets) = (appSecrets, masterSecrets)
        bucketPrefix = Array(appID.utf8) + [0]
    }

    /// The bucket of a device of this app.
    package func bucket(of cid: DeviceID) -> Bucket { Bucket(prefix: bucketPrefix, cid: cid) }
}

/// How much one call may hold.
package struct CallBounds: Sendable, Equatable {
    package var batchItems = Limits.batchItemCount
    package var listTargets = Limits.listTargetCount
    package var reportedTasks = Limits.reportedTaskCount
    package init() {}
}

/// Every app in force: an immutable snapshot, replaced as a whole at a reload.
package struct AppRegistry: Sendable {
    private let byID: [String: App]
    private let byKey: [AppKey: App]
    /// False while a gateway of a cluster has not heard of the apps that the admin API made.
    package let isComplete: Bool

    /// A later app of the same id replaces an earlier one; configuration refuses such a file before it comes here.
    package init(_ apps: [App] = [], isComplete: Bool = true) {
        self.isComplete = isComplete
        byID = Dictionary(apps.map { ($0.appID, $0) }, uniquingKeysWith: { $1 })
        byKey = Dictionary(byID.values.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
    }

    /// An app that is served.
    package subscript(appID: String) -> App? { byID[appID].flatMap { $0.isEnabled ? $0 : nil } }
    package subscript(key: AppKey) -> App? { byKey[key].flatMap { $0.isEnabled ? $0 : nil } }

    /// The apps, served or not.
    package var keys: Set<AppKey> { Set(byKey.keys) }

    /// An app, served or not.
    package func known(_ appID: String) -> App? { byID[appID] }
    package func known(_ key: AppKey) -> App? { byKey[key] }

    /// The apps that `isSeen` says yes to, in the order of their ids.
    func apps(where isSeen: (AppKey) -> Bool) -> [App] {
        byID.values.filter { isSeen($0.key) }.sorted { $0.appID < $1.appID }
    }

    /// Apps that are served by this registry and are switched off in another.
    package func disabled(in next: AppRegistry) -> [AppKey] {
        byID.values.filter { $0.isEnabled && next.byID[$0.appID]?.isEnabled == false }.map(\.key)
    }

    /// The app's id for rendering; empty for an app that has left the configuration.
    package func appID(of key: AppKey) -> String { byKey[key]?.appID ?? "" }
}
