package import Campaigns
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
    /// How far ahead a timed push may lie, in milliseconds.
    package var scheduleHorizon = ScheduleRules.horizon
    /// How far a sign's timestamp may be off, in milliseconds.
    package var timestampTolerance = Limits.timestampTolerance
    package var transmissionCharacterCount = Limits.transmissionCharacterCount
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

    /// A later app of the same id replaces an earlier one; configuration refuses such a file before it comes here.
    package init(_ apps: [App] = []) {
        byID = Dictionary(apps.map { ($0.appID, $0) }, uniquingKeysWith: { $1 })
        byKey = Dictionary(byID.values.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
    }

    package subscript(appID: String) -> App? { byID[appID] }
    package subscript(key: AppKey) -> App? { byKey[key] }

    /// The ids of the apps that `isSeen` says yes to, in their order.
    func appIDs(where isSeen: (AppKey) -> Bool) -> [String] {
        byID.values.filter { isSeen($0.key) }.map(\.appID).sorted()
    }

    /// The app's id for rendering; empty for an app that has left the configuration.
    package func appID(of key: AppKey) -> String { byKey[key]?.appID ?? "" }
}
