// What the gateway is to do about requests that concern tasks of several messages, and about reports.

public import Campaigns
public import Delivery
public import Wire

public enum CampaignAction: Sendable {
    /// `push/list/message`: write the task, once for each request id.
    case create(NewTask)
    /// `push/list/cid` and `push/list/alias`.
    case list(ListCall)
    /// `push/single/alias` and `push/single/batch/alias`.
    case aliases([AliasPush], PushForm)
    /// `push/single/cid_by_tag`.
    case byTag(TagPush)
    case stop(TaskID, AppKey)
    case schedule(TaskID, AppKey)
    case cancel(TaskID, AppKey)
    case detail(DetailQuery)
    case taskReport(TaskReportQuery)
    case groupReport(GroupReportQuery)
    case dayReport(DayReportQuery)
    case onlineReport(AppKey)
    case quotaReport(AppKey)
}

public struct NewTask: Sendable {
    public var record: TaskRecord
    /// Both words 0: the request has no id.
    public var requestKey: (UInt64, UInt64)
    public var requestDigest: UInt64
    /// The rows of its group, if it has one.
    public var group: GroupPlace?
    /// Why no device of the task has a fallback; `.applies`: each device decides.
    public var fallback: PublishOutcome.FallbackReason
    /// Keys of a tag condition that say nothing about any device here.
    public var unknownKeys: [String] = []
    /// What was sent and means nothing here.
    public var ignoredKeys: [String] = []
}

/// Where a group's tasks are listed.
public struct GroupPlace: Sendable {
    public var bucket: Bucket
    public var owner: (UInt64, UInt64)
}

/// A list call: a stored message, and whom it is for.
public struct ListCall: Sendable {
    public enum Audience: Sendable {
        case devices([ListTarget])
        case aliases([AliasName])
        /// Devices, each under a condition on its tags.
        case conditions([TagCandidate])
    }

    public var app: App
    public var task: TaskID
    public var audience: Audience
    public var isAsync: Bool
    public var needsAliasDetail: Bool
    /// cids that cannot be any.
    public var malformed: [String]
    /// (0, 0): the request has no id.
    public var key: CallKey
    public var digest: UInt64
}

/// A push to one alias.
public struct AliasPush: Sendable {
    public var app: App
    public var task: TaskID
    public var alias: AliasName
    public var content: MessageContent
    public var key: CallKey
    public var digest: UInt64
    public var itemIndex: Int
}

/// A device that is to get a message if its tags are as the condition says.
public struct TagCandidate: Sendable {
    public var target: DeviceAddress
    public var expression: TagExpression
}

/// A push to devices under conditions on their tags.
public struct TagPush: Sendable {
    public var app: App
    public var task: TaskID
    public var candidates: [TagCandidate]
    public var content: MessageContent
    public var key: CallKey
    public var digest: UInt64
    public var ignoredKeys: [String] = []
}

/// `task/detail/{cid}/{taskid}`.
public struct DetailQuery: Sendable {
    public var task: TaskID
    public var device: DeviceAddress
    public var digest: UInt64
}

public struct TaskReportQuery: Sendable {
    public var app: AppKey
    public var tasks: [TaskID]
    /// Texts that are no task's id.
    public var unknown: [String]
    public var isDetailed: Bool
    /// The actions asked for.
    public var actions: Set<UInt32>
    /// Texts among them that are no number of an action.
    public var unknownActions: [String] = []

    /// Without a list all are meant.
    func asks(for action: UInt32) -> Bool {
        actions.contains(action) || actions.isEmpty && unknownActions.isEmpty
    }
}

public struct GroupReportQuery: Sendable {
    public var app: AppKey
    public var group: String
    public var place: GroupPlace
}

public struct DayReportQuery: Sendable {
    public var app: AppKey
    /// As it was asked for.
    public var date: String
    public var day: UInt32
    /// True for `report/user/date`.
    public var isAboutUsers: Bool
    /// False for a day longer ago than numbers are kept.
    public var isKept: Bool
}

extension App {
    /// Where a device of this app is in a task's list.
    public func target(_ cid: DeviceID, of task: TaskID) -> ListTarget {
        ListTarget(cid: cid, bucket: bucket(of: cid), digest: messageDigest(of: task, for: cid))
    }

    func address(_ cid: DeviceID) -> DeviceAddress { DeviceAddress(app: key, bucket: bucket(of: cid), cid: cid) }
}
