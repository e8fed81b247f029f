internal import Wire

extension JobRow {
    struct Summary {
        var app: AppKey
        /// Whether the job is due, or leased and therefore due when the lease lapses.
        var isWaiting: Bool
        private var expiresAt: GatewayTime
        var group = AlarmGroup.Kind.due
        private var waitsForVendorSince: GatewayTime?
        private var followUpAt: GatewayTime = 0

        /// Reads a job from its own row, or from its message's row; `nil` for a row without a job.
        init?(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, at time: GatewayTime) {
            switch key.table {
            case .job:
                var reader = unsafe RowReader(bytes)
                guard reader.next(UInt8.self) == JobRow.version, let head = Head(&reader) else { return nil }
                (app, expiresAt) = (head.app, head.expiresAt)
                isWaiting = head.state == .due || head.state == .leased
                guard isWaiting else { return }
                let row = unsafe JobRow(bytes)
                var dueAt = head.dueAt
                if head.state == .leased, head.strategy.mustBeLeasedInTime(in: head.table) {
                    // After the lease lapses, the job is due with a new vendor timeout.
                    guard let row else { return nil }
                    dueAt = row.leasedUntil
                }
                wait(head.strategy, in: head.table, since: max(head.acceptedAt, dueAt))
                if let row { wait(forFollowUpOf: row, at: time) }
            case .message, .vendorMessage:
                guard let row = unsafe MessageRow(bytes) else { return nil }
                let facts = row.facts(cid: .none, table: key.table, item: key.item)
                guard facts.hasDueJob(at: time) else { return nil }
                (app, isWaiting, expiresAt) = (facts.app, true, facts.expiresAt)
                wait(facts.strategy, in: facts.table, since: facts.jobDueAt)
                wait(forFollowUpOf: JobRow(impliedBy: facts), at: time)
            default: return nil
            }
        }

        private mutating func wait(_ strategy: Strategy, in table: StoreKey.Table, since time: GatewayTime) {
            group = strategy.group(in: table)
            if strategy.mustBeLeasedInTime(in: table) { waitsForVendorSince = time }
        }

        private mutating func wait(forFollowUpOf row: JobRow, at time: GatewayTime) {
            group = row.group.kind
            var pending = row
            // A leased job becomes due when its lease lapses.
            if row.state == .leased { pending.state = .due }
            // After the follow-up's time the job waits for room like any other job.
            let start = row.state == .leased ? max(row.leasedUntil, pending.followUpAt) : pending.followUpAt
            if pending.followUpAt > 0, start > time { followUpAt = start }
        }

        func mayWait(_ timeout: Int64) -> GatewayTime {
            JobRow.mayWait(expiresAt, waitsForVendorSince, timeout, followUpAt: followUpAt)
        }
    }
}
