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
                guard let row = unsafe JobRow(bytes) else { return nil }
                // The job keeps its vendor timeout after the lease lapses.
                let dueAt = row.state == .leased ? row.leasedUntil : row.dueAt
                wait(for: row, since: max(head.acceptedAt, dueAt), at: time)
            case .message, .vendorMessage:
                guard let row = unsafe MessageRow(bytes) else { return nil }
                let facts = row.facts(cid: .none, table: key.table, item: key.item)
                guard facts.hasDueJob(at: time) else { return nil }
                (app, isWaiting, expiresAt) = (facts.app, true, facts.expiresAt)
                wait(for: JobRow(impliedBy: facts), since: facts.jobDueAt, at: time)
            default: return nil
            }
        }

        private mutating func wait(for row: JobRow, since dueAt: GatewayTime, at time: GatewayTime) {
            group = row.group.kind
            if row.facts.strategy.mustBeLeasedInTime(in: row.facts.table) { waitsForVendorSince = dueAt }
            // After that time the job waits for room as any other, whatever its channel.
            if row.followUpAt > time { followUpAt = row.followUpAt }
        }

        func mayWait(_ timeout: Int64) -> GatewayTime {
            JobRow.mayWait(expiresAt, waitsForVendorSince, timeout, followUpAt: followUpAt)
        }
    }
}
