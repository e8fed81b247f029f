// Alarms of jobs that their app has no room for: of job rows, and of messages whose rows imply a due job.
// The store reports each due alarm once. It passes over a due job while the app's due jobs fill their share in memory,
// and remembers where, by app and bucket (a *group*). So one app's jobs do not delay the alarms of the others. The row
// does not change. Groups are in memory only and are empty after a restart.

package import Wire

/// Alarms of jobs that the store passed over without a report, or reported and got back.
package struct AlarmGroup: Hashable, Sendable {
    /// In the order in which the shard looks through an app's groups.
    package enum Kind: UInt8, Sendable {
        /// Due jobs that the store never reported.
        case due
        /// The same, of jobs that must be leased in time.
        ///
        /// Each is due again a fixed time after it was due, so the first in order is the first to look at.
        case vendorTimeout
        /// Held jobs that the shard gave back.
        case held
    }

    package var app: AppKey
    package var kind: Kind

    package init(app: AppKey, kind: Kind) { (self.app, self.kind) = (app, kind) }
}

extension AlarmGroup: Comparable {
    package static func < (left: AlarmGroup, right: AlarmGroup) -> Bool {
        if left.app != right.app { return left.app.word < right.app.word }
        return left.kind.rawValue < right.kind.rawValue
    }
}

/// A shard's request to the store for due alarms.
package struct AlarmRequest: Sendable {
    /// What a reader does with a due row.
    package enum Verdict: Equatable, Sendable {
        case take
        /// The row stays in the store.
        ///
        /// The reader looks at it with its group, not before `until` unless `isEager`.
        case leave(AlarmGroup, until: Int64)
        /// The row does not belong to this group.
        case pass
    }

    package var time: Int64
    package var limit: Int
    /// The group to look through; `nil`: alarms that no group has.
    package var group: AlarmGroup?
    /// Looks at the group's alarms even before their `until`.
    package var isEager = false
    /// Apps that have no room for due jobs.
    package var fullApps: [AppKey] = []
    /// How long a message of strategy 4 waits for a sender of its vendor to lease its job.
    var vendorTimeout: Int64 = .max
    /// A planted fault: alarms are reported that another row has taken over.
    var ignoresSuccessors = false

    package init(
        upTo time: Int64, limit: Int, group: AlarmGroup? = nil, isEager: Bool = false, fullApps: [AppKey] = []
    ) {
        (self.time, self.limit, self.group, self.isEager, self.fullApps) = (time, limit, group, isEager, fullApps)
    }

    /// Runs on a reader's thread, which keeps the bytes during the call; rows check them.
    package func judge(_ key: StoreKey, _ value: UnsafeRawBufferPointer) -> Verdict {
        if group == nil, fullApps.isEmpty { return .take }
        guard let job = unsafe JobRow.Summary(key, value, at: time) else { return group == nil ? .take : .pass }
        if let group, group.app != job.app { return .pass }
        // A job that is over or neither due nor leased takes no room.
        guard job.isWaiting else { return group == nil ? .take : .pass }
        if let group, group.kind != .held, group.kind != job.group { return .pass }
        let until = job.mayWait(vendorTimeout)
        if until <= time || group?.kind == .held || !fullApps.contains(job.app) { return .take }
        return .leave(AlarmGroup(app: job.app, kind: job.group), until: until)
    }

    /// The row that has taken over a row's alarm, if it exists: a message's job, which has an alarm of its own.
    ///
    /// `nil`: none can have. Runs on a reader's thread, too.
    package func successor(of key: StoreKey, _ value: UnsafeRawBufferPointer) -> StoreKey? {
        guard key.table == .message || key.table == .vendorMessage, !ignoresSuccessors,
            let row = unsafe MessageRow(value)
        else { return nil }
        let facts = row.facts(cid: DeviceID(high: key.ownerHigh, low: key.ownerLow), table: key.table, item: key.item)
        // A message whose time is over ends, whatever its job's row says.
        return facts.hasDueJob(at: time) && facts.expiresAt > time ? facts.jobKey : nil
    }

    /// Whether a successor's row can be read; one that cannot takes no alarm over, since its own leads to nothing.
    package static func isReadable(successor value: UnsafeRawBufferPointer) -> Bool { unsafe JobRow(value) != nil }

    /// When the message's alarm is due if its successor cannot be read: at its end, which needs no job.
    ///
    /// Before that the message's row does not speak for the job, which may have been leased.
    package func end(of key: StoreKey, _ value: UnsafeRawBufferPointer) -> Int64 {
        guard let row = unsafe MessageRow(value) else { return .max }
        return row.facts(cid: .none, table: key.table, item: key.item).expiresAt
    }
}

extension JobRow {
    /// Until when a job may stay in the store without room in memory: then its message ends, or goes to the live
    /// channel.
    func mayWait(_ timeout: Int64) -> GatewayTime {
        Self.mayWait(facts.expiresAt, hasVendorTimeout ? max(facts.acceptedAt, dueAt) : nil, timeout)
    }

    /// The vendor has failed when no sender leases the job in time.
    var hasVendorTimeout: Bool { state == .due && facts.strategy.mustBeLeasedInTime(in: facts.table) }

    /// The group for this job while it is due.
    var group: AlarmGroup { AlarmGroup(app: facts.app, kind: facts.strategy.group(in: facts.table)) }

    static func mayWait(_ expiresAt: GatewayTime, _ since: GatewayTime?, _ timeout: Int64) -> GatewayTime {
        guard let since else { return expiresAt }
        let (end, isBeyond) = since.addingReportingOverflow(timeout)
        return isBeyond ? expiresAt : min(expiresAt, end)
    }
}
