public import Campaigns
public import Wire

/// One tenant, as the push API knows it.
public struct App: Sendable {
    public let appID: String
    public let key: AppKey
    /// Getui's appkey: public, part of the sign.
    public var appKey: String
    /// What proves a registration; the newest first, old ones while they still count.
    public var appSecrets: [String]
    /// What proves a sender; the newest first, old ones while they still count.
    public var masterSecrets: [String]
    /// The topic of tokens that name none.
    public var apnsTopic: String
    /// The TTL of a push that names none, in milliseconds.
    public var defaultTimeToLive = Limits.defaultTimeToLive
    /// The longest TTL that a push may ask for, in milliseconds.
    public var longestTimeToLive = Limits.timeToLive
    public var rates = RateLimits()
    public var bounds = CallBounds()
    /// How far ahead a timed push may lie, in milliseconds.
    public var scheduleHorizon = ScheduleRules.horizon
    /// How far a sign's timestamp may be off, in milliseconds.
    public var timestampTolerance = Limits.timestampTolerance
    public var transmissionCharacterCount = Limits.transmissionCharacterCount
    let bucketPrefix: [UInt8]

    /// Both lists of secrets have at least one.
    public init(appID: String, appKey: String, appSecrets: [String], masterSecrets: [String], apnsTopic: String = "") {
        self.appID = appID
        key = AppKey(appID: appID)
        (self.appKey, self.apnsTopic) = (appKey, apnsTopic)
        (self.appSecrets, self.masterSecrets) = (appSecrets, masterSecrets)
        bucketPrefix = Array(appID.utf8) + [0]
    }

    /// The bucket of a device of this app.
    public func bucket(of cid: DeviceID) -> Bucket { Bucket(prefix: bucketPrefix, cid: cid) }
}

/// How much one call may hold.
public struct CallBounds: Sendable, Equatable {
    public var batchItems = Limits.batchItemCount
    public var listTargets = Limits.listTargetCount
    public var reportedTasks = Limits.reportedTaskCount
    public init() {}
}

/// Every app in force: an immutable snapshot, replaced as a whole at a reload.
public struct AppRegistry: Sendable {
    private let byID: [String: App]
    private let byKey: [AppKey: App]

    /// A later app of the same id replaces an earlier one; configuration refuses such a file before it comes here.
    public init(_ apps: [App] = []) {
        byID = Dictionary(apps.map { ($0.appID, $0) }, uniquingKeysWith: { $1 })
        byKey = Dictionary(byID.values.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
    }

    public subscript(appID: String) -> App? { byID[appID] }
    public subscript(key: AppKey) -> App? { byKey[key] }

    /// The app's id for rendering; empty for an app that has left the configuration.
    func appID(of key: AppKey) -> String { byKey[key]?.appID ?? "" }
}

/// A device together with its bucket.
public struct DeviceAddress: Hashable, Sendable {
    public var app: AppKey
    public var bucket: Bucket
    public var cid: DeviceID
    public init(app: AppKey, bucket: Bucket, cid: DeviceID) { (self.app, self.bucket, self.cid) = (app, bucket, cid) }
}
