package import Quotas
package import Delivery
internal import JSON
internal import TextForms
package import Wire

package enum CampaignAction: Sendable {
    /// Stores the task of `push/list/message`, once per request id.
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
    /// The app of a publishing call and its number of messages; `nil` if it publishes none.
    ///
    /// A broadcast is not included, because it has separate rate limits (`broadcaster`).
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

    /// The app of a call that a limit on broadcasts or lists counts, and the limit.
    var counted: (app: AppKey, rate: RateKind)? {
        switch self {
        case .create(let task): (task.record.app, task.rate)
        case .list(let call): if case .devices = call.audience { nil } else { (call.app.key, .list) }
        case .aliases, .byTag, .stop, .schedule, .cancel, .detail, .taskReport, .groupReport, .dayReport,
            .onlineReport, .quotaReport:
            nil
        }
    }

    /// The app of a call that creates a broadcast.
    package var broadcaster: AppKey? {
        guard case .create(let task) = self, task.record.broadcast != nil else { return nil }
        return task.record.app
    }
}

extension ListCall.Audience {
    /// The number of devices or aliases; each alias counts as one.
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
    /// The limit that counts the call.
    package var rate: RateKind
    /// The refusal of the call unless it is a repeat.
    var lateness: GetuiFault?
    /// The key of the request id, or `.none`.
    package var requestKey: CallKey
    package var requestDigest: UInt64
    /// The bucket and owner of the rows of the task's group, if it has one.
    package var group: GroupPlace?
    /// The reason why no device of the task has a fallback; `.applies` if the fallback depends on the device.
    package var fallback: PublishOutcome.FallbackReason
    package var notes = RequestNotes()
}

/// A list call: a stored message and its audience.
package struct ListCall: Sendable {
    package enum Audience: Sendable {
        case devices([ListTarget])
        case aliases([AliasName])
        /// Devices, each with a condition on its tags.
        case conditions([TagCandidate])
    }

    package var app: App
    package var task: TaskID
    package var audience: Audience
    package var isAsync: Bool
    package var needsAliasDetail: Bool
    /// Texts that are not a cid, and aliases without a device.
    package var unknown: [String] = []
    /// Invalid members of the audience.
    package var refused: [RefusedTarget] = []
    /// The key of the request id; (0, 0) without one.
    package var key: CallKey
    package var digest: UInt64
    package var notes = RequestNotes()
}

/// A refused member of an audience; the other members receive the message.
package struct RefusedTarget: Sendable {
    enum Kind: String { case cid, alias }

    var index: Int
    /// The text sent by the caller; empty if the value has no text.
    var name: String
    var kind: Kind
    var fault: GetuiFault

    init(_ index: Int, _ value: JSONValue?, _ kind: Kind, _ fault: GetuiFault) {
        (self.index, self.kind, self.fault) = (index, kind, fault)
        name = String((value?.lenientText ?? "").prefix(64))
    }

    /// Returns the refusal of a call whose audience has no valid member: the first member's refusal, with its index and text.
    static func all(_ refused: [RefusedTarget]) -> GetuiFault {
        guard let first = refused.first else { return .targetUser }
        var fault = first.fault
        fault.message += ": \(first.kind.rawValue)[\(first.index)]" + (first.name.isEmpty ? "" : " \(first.name)")
        return fault
    }
}

package struct AliasPush: Sendable {
    package var app: App
    package var task: TaskID
    package var alias: AliasName
    package var content: MessageContent
    /// The key of the request id, for the first alias that uses it.
    package var key: CallKey
    /// The key of the request id and the alias, for every other alias.
    package var ownKey: CallKey
    package var digest: UInt64
    package var itemIndex: Int

    /// Whether `task`, which has the same request id, was a push to another alias; this push is then a separate request.
    package func isApart(from task: TaskID) -> Bool { task.marked(with: alias) != task }
}

extension TaskID {
    private static let aliasMask: UInt64 = 0xFF_FFFF

    /// Returns the id with 24 of its random bits replaced by the alias's.
    func marked(with alias: AliasName) -> TaskID {
        TaskID(high: high, low: low & ~Self.aliasMask | alias.low & Self.aliasMask)
    }
}

/// A device that receives a message only if its tags match the condition.
package struct TagCandidate: Sendable {
    package var target: DeviceAddress
    package var expression: TagExpression
}

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
    /// Texts that are not a task id.
    package var unknown: [String]
    package var isDetailed: Bool
    package var actions: Set<UInt32>
    /// Requested texts that are not an action's number.
    package var unknownActions: [String] = []
    package var notes = RequestNotes()

    /// Returns whether the action is requested; without a list, every action is.
    func asks(for action: UInt32) -> Bool {
        actions.contains(action) || actions.isEmpty && unknownActions.isEmpty
    }
}

package struct GroupReportQuery: Sendable {
    package var app: AppKey
    package var group: String
    package var place: GroupPlace
    /// The range of creation days (since 1970); `nil` for no limit.
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
    /// Returns the day (since 1970) of the task's creation; the id has month and day, and tasks are kept for less than a year.
    fileprivate func dayMade(asOf today: Int64) -> Int64? {
        let (month, day) = (Int(high >> 48 & 0xFF), Int(high >> 40 & 0xFF))
        // The clock of the creating gateway may have been a day ahead.
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
    package var date: String
    package var day: UInt32
    /// Whether the call is `report/user/date`.
    package var isAboutUsers: Bool
    /// `false` if the day is older than the kept reports.
    package var isKept: Bool
}

extension App {
    package func target(_ cid: DeviceID, of task: TaskID) -> ListTarget {
        ListTarget(cid: cid, bucket: bucket(of: cid), digest: messageDigest(of: task, for: cid))
    }

    package func address(_ cid: DeviceID) -> DeviceAddress {
        DeviceAddress(app: key, bucket: bucket(of: cid), cid: cid)
    }
}
