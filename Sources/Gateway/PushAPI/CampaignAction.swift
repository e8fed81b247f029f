// What the gateway is to do about requests that concern tasks of several messages, and about reports.

package import Quotas
package import Delivery
internal import JSON
internal import TextForms
package import Wire

package enum CampaignAction: Sendable {
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

extension CampaignAction {
    /// For how many devices' messages a call asks, and of which app; `nil` for a call that makes none.
    ///
    /// A broadcast is none: it has rates of its own (`broadcaster`).
    package var publishes: (app: AppKey, count: Int)? {
        switch self {
        case .list(let call): (call.app.key, call.audience.count)
        case .aliases(let pushes, _): pushes.first.map { ($0.app.key, pushes.count) }
        case .byTag(let push): (push.app.key, push.candidates.count)
        case .create, .stop, .schedule, .cancel, .detail, .taskReport, .groupReport, .dayReport, .onlineReport,
            .quotaReport:
            nil
        }
    }

    /// The app of a call that makes a broadcast.
    package var broadcaster: AppKey? {
        guard case .create(let task) = self, task.record.broadcast != nil else { return nil }
        return task.record.app
    }
}

extension ListCall.Audience {
    /// Devices, or aliases, each of which counts as one.
    fileprivate var count: Int {
        switch self {
        case .devices(let targets): targets.count
        case .aliases(let names): names.count
        case .conditions(let candidates): candidates.count
        }
    }
}

package struct NewTask: Sendable {
    package var record: TaskRecord
    /// Both words 0: the request has no id.
    package var requestKey: (UInt64, UInt64)
    package var requestDigest: UInt64
    /// The rows of its group, if it has one.
    package var group: GroupPlace?
    /// Why no device of the task has a fallback; `.applies`: each device decides.
    package var fallback: PublishOutcome.FallbackReason
    package var notes = RequestNotes()
}

/// Where a group's tasks are listed.
package struct GroupPlace: Sendable {
    package var bucket: Bucket
    package var owner: (UInt64, UInt64)
}

/// A list call: a stored message, and whom it is for.
package struct ListCall: Sendable {
    package enum Audience: Sendable {
        case devices([ListTarget])
        case aliases([AliasName])
        /// Devices, each under a condition on its tags.
        case conditions([TagCandidate])
    }

    package var app: App
    package var task: TaskID
    package var audience: Audience
    package var isAsync: Bool
    package var needsAliasDetail: Bool
    /// Texts that are no cid, and aliases that no device has.
    package var unknown: [String] = []
    /// Members of the audience that cannot be read.
    package var refused: [RefusedTarget] = []
    /// (0, 0): the request has no id.
    package var key: CallKey
    package var digest: UInt64
    package var notes = RequestNotes()
}

/// A member of an audience that is refused by itself, while the others get the message.
package struct RefusedTarget: Sendable {
    enum Kind: String { case cid, alias }

    var index: Int
    /// As the caller wrote it; empty for what has no text.
    var name: String
    var kind: Kind
    var fault: GetuiFault

    init(_ index: Int, _ value: JSONValue?, _ kind: Kind, _ fault: GetuiFault) {
        (self.index, self.kind, self.fault) = (index, kind, fault)
        name = String((value?.lenientText ?? "").prefix(64))
    }

    /// The refusal of a call whose audience has no other members: the first one's, with its place and text.
    static func all(_ refused: [RefusedTarget]) -> GetuiFault {
        guard let first = refused.first else { return .targetUser }
        var fault = first.fault
        fault.message += ": \(first.kind.rawValue)[\(first.index)]" + (first.name.isEmpty ? "" : " \(first.name)")
        return fault
    }
}

/// A push to one alias.
package struct AliasPush: Sendable {
    package var app: App
    package var task: TaskID
    package var alias: AliasName
    package var content: MessageContent
    /// Of the request id, as the first alias that it is used for has it.
    package var key: CallKey
    /// Of the request id and the alias, for each further alias.
    package var ownKey: CallKey
    package var digest: UInt64
    package var itemIndex: Int

    /// Whether a push under the same request id was to another alias; this one is then another request.
    package func isApart(from task: TaskID) -> Bool { task.marked(with: alias) != task }
}

extension TaskID {
    private static let aliasMask: UInt64 = 0xFF_FFFF

    /// The id with 24 of its random bits replaced by the alias's.
    func marked(with alias: AliasName) -> TaskID {
        TaskID(high: high, low: low & ~Self.aliasMask | alias.low & Self.aliasMask)
    }
}

/// A device that is to get a message if its tags are as the condition says.
package struct TagCandidate: Sendable {
    package var target: DeviceAddress
    package var expression: TagExpression
}

/// A push to devices under conditions on their tags.
package struct TagPush: Sendable {
    package var app: App
    package var task: TaskID
    package var candidates: [TagCandidate]
    package var content: MessageContent
    package var key: CallKey
    package var digest: UInt64
    package var refused: [RefusedTarget] = []
    package var notes = RequestNotes()
}

/// `task/detail/{cid}/{taskid}`.
package struct DetailQuery: Sendable {
    package var task: TaskID
    package var device: DeviceAddress
    package var digest: UInt64
}

package struct TaskReportQuery: Sendable {
    package var app: AppKey
    package var tasks: [TaskID]
    /// Texts that are no task's id.
    package var unknown: [String]
    package var isDetailed: Bool
    /// The actions asked for.
    package var actions: Set<UInt32>
    /// Texts among them that are no number of an action.
    package var unknownActions: [String] = []
    package var notes = RequestNotes()

    /// Without a list all are meant.
    func asks(for action: UInt32) -> Bool {
        actions.contains(action) || actions.isEmpty && unknownActions.isEmpty
    }
}

package struct GroupReportQuery: Sendable {
    package var app: AppKey
    package var group: String
    package var place: GroupPlace
    /// The days (since 1970) on which the tasks asked for were made; `nil`: any before, or after.
    package var firstDay: Int64?
    package var lastDay: Int64?
    package var today: Int64
    package var notes = RequestNotes()

    package func asks(for task: TaskID) -> Bool {
        guard firstDay != nil || lastDay != nil else { return true }
        guard let day = task.dayMade(asOf: today) else { return false }
        return day >= firstDay ?? .min && day <= lastDay ?? .max
    }
}

extension TaskID {
    /// The day (since 1970) on which the task was made: the id has month and day, and tasks are kept for less than a year.
    fileprivate func dayMade(asOf today: Int64) -> Int64? {
        let (month, day) = (Int(high >> 48 & 0xFF), Int(high >> 40 & 0xFF))
        // The gateway that made it may have been a day ahead.
        let latest = Int(today) + 1
        let year = CivilDate(daysSince1970: latest).year
        for year in [year, year - 1] {
            if let made = CivilDate(year: year, month: month, day: day)?.daysSince1970, made <= latest {
                return Int64(made)
            }
        }
        return nil
    }
}

package struct DayReportQuery: Sendable {
    package var app: AppKey
    /// As it was asked for.
    package var date: String
    package var day: UInt32
    /// True for `report/user/date`.
    package var isAboutUsers: Bool
    /// False for a day longer ago than numbers are kept.
    package var isKept: Bool
}

extension App {
    /// Where a device of this app is in a task's list.
    package func target(_ cid: DeviceID, of task: TaskID) -> ListTarget {
        ListTarget(cid: cid, bucket: bucket(of: cid), digest: messageDigest(of: task, for: cid))
    }

    package func address(_ cid: DeviceID) -> DeviceAddress {
        DeviceAddress(app: key, bucket: bucket(of: cid), cid: cid)
    }
}
