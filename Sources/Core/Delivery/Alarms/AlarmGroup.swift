// Alarms of jobs for which their app has no room in memory. Such a job has a row, or is due by its message's row. The store
// reports each due alarm once, but skips a due job while the app's due jobs fill their share of memory. The store records the
// skipped positions per bucket and *group* (app and kind), so one app's jobs do not delay other apps' alarms. The rows do not
// change. Groups are in memory only and are empty after a restart.

package import Wire

/// A group of job alarms that the store has not reported, or that the shard returned to the store.
package struct AlarmGroup: Hashable, Sendable {
    /// The kinds of an app's groups, in the order in which the shard reads them.
    package enum Kind: UInt8, Sendable {
        /// Due jobs that the store never reported.
        case due
        /// Due jobs with a vendor timeout or a follow-up that were never reported, ordered by that time.
        case vendorTimeout
        /// Held jobs that the shard returned to the store.
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

package struct AlarmRequest: Sendable {
    package enum Verdict: Equatable, Sendable {
        case take
        /// The row stays in the store; the reader checks it again in a later read of the group, usually at `until`.
        case leave(AlarmGroup, until: Int64)
        case pass
    }

    package var time: Int64
    package var limit: Int
    /// The group to read; `nil`: alarms outside all groups.
    package var group: AlarmGroup?
    /// Whether the group's alarms are read before their `until`.
    package var isEager = false
    package var fullApps: [AppKey] = []
    /// The time in ms after which a strategy 4 message goes live if no sender leased its job.
    var vendorTimeout: Int64 = .max
    /// A planted fault: alarms are reported although another row has taken them over.
    var ignoresSuccessors = false

    package init(
        upTo time: Int64, limit: Int, group: AlarmGroup? = nil, isEager: Bool = false, fullApps: [AppKey] = []
    ) {
        (self.time, self.limit, self.group, self.isEager, self.fullApps) = (time, limit, group, isEager, fullApps)
    }

    /// Decides whether the reader reports a due row, leaves it to a group or skips it.
    ///
    /// Runs on a reader's thread. The bytes are valid only during the call.
    package func judge(_ key: StoreKey, _ value: UnsafeRawBufferPointer) -> Verdict {
        if group == nil, fullApps.isEmpty { return .take }
        guard let job = unsafe JobRow.Summary(key, value, at: time) else { return group == nil ? .take : .pass }
        if let group, group.app != job.app { return .pass }
        // A job that has ended, or is neither due nor leased, takes no room.
        guard job.isWaiting else { return group == nil ? .take : .pass }
        if let group, group.kind != .held, group.kind != job.group { return .pass }
        let until = job.mayWait(vendorTimeout)
        if until <= time || group?.kind == .held || !fullApps.contains(job.app) { return .take }
        return .leave(AlarmGroup(app: job.app, kind: job.group), until: until)
    }

    /// Returns the key of the job row that may have taken over the message's alarm; `nil` if there can be none.
    ///
    /// Runs on a reader's thread.
    package func successor(of key: StoreKey, _ value: UnsafeRawBufferPointer) -> StoreKey? {
        guard key.table == .message || key.table == .vendorMessage, !ignoresSuccessors,
            let row = unsafe MessageRow(value)
        else { return nil }
        let facts = row.facts(cid: DeviceID(high: key.ownerHigh, low: key.ownerLow), table: key.table, item: key.item)
        // An expired message ends regardless of its job's row.
        return facts.hasDueJob(at: time) && facts.expiresAt > time ? facts.jobKey : nil
    }

    /// Returns whether a successor's row is valid; an invalid row does not take over an alarm because nothing would handle it.
    package static func isReadable(successor value: UnsafeRawBufferPointer) -> Bool { unsafe JobRow(value) != nil }

    /// Returns the time of the message's alarm if its successor is unreadable: the expiry, which needs no job.
    ///
    /// Before the expiry the message's row does not show the job's state; the job may be leased.
    package func end(of key: StoreKey, _ value: UnsafeRawBufferPointer) -> Int64 {
        guard let row = unsafe MessageRow(value) else { return .max }
        return row.facts(cid: .none, table: key.table, item: key.item).expiresAt
    }
}

extension JobRow {
    /// Returns the time until which a job may stay in the store; at that time its message ends or goes live.
    func mayWait(_ timeout: Int64) -> GatewayTime {
        Self.mayWait(
            facts.expiresAt, hasVendorTimeout ? max(facts.acceptedAt, dueAt) : nil, timeout, followUpAt: followUpAt)
    }

    /// Whether the vendor counts as failed if no sender leases the job in time.
    var hasVendorTimeout: Bool { state == .due && facts.strategy.mustBeLeasedInTime(in: facts.table) }

    /// The job's group, which must not depend on the job's state: the shard and the reader see different states.
    var group: AlarmGroup {
        AlarmGroup(app: facts.app, kind: facts.followUpAt > 0 ? .vendorTimeout : facts.strategy.group(in: facts.table))
    }

    static func mayWait(
        _ expiresAt: GatewayTime, _ since: GatewayTime?, _ timeout: Int64, followUpAt: GatewayTime
    ) -> GatewayTime {
        let end = followUpAt > 0 ? min(expiresAt, followUpAt) : expiresAt
        guard let since else { return end }
        let (timedOut, isBeyond) = since.addingReportingOverflow(timeout)
        return isBeyond ? end : min(end, timedOut)
    }
}
