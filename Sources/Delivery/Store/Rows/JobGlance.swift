internal import Wire

extension JobRow {
    /// What a reader needs to know of a job.
    struct Glance {
        var app: AppKey
        /// Due, or leased: it is due when the lease lapses.
        var isWaiting: Bool
        private var expiresAt: GatewayTime
        /// The pile for it.
        var pile = AlarmPile.Kind.due
        private var waitsForVendorSince: GatewayTime?

        /// A job by its own row, or by the row of its message; `nil` for a row without a job.
        init?(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, at time: GatewayTime) {
            switch key.table {
            case .job where unsafe bytes.first == JobRow.version:
                var reader = unsafe RowReader(UnsafeRawBufferPointer(rebasing: bytes.dropFirst()))
                guard let head = Head(&reader) else { return nil }
                (app, expiresAt) = (head.app, head.expiresAt)
                isWaiting = head.state == .due || head.state == .leased
                guard head.state == .due else { return }
                wait(head.strategy, in: head.table, since: max(head.acceptedAt, head.dueAt))
            case .job:
                guard bytes.count >= JobRow.firstByteCount, unsafe bytes[0] == JobRow.firstVersion,
                    let state = unsafe State(rawValue: bytes[1])
                else { return nil }
                // What rows of the first version have at these places.
                app = unsafe AppKey(Self.word(bytes, 56))
                isWaiting = state == .due || state == .leased
                expiresAt = unsafe Int64(bitPattern: Self.word(bytes, 80))
                guard state == .due, let table = unsafe StoreKey.Table(rawValue: bytes[5]) else { return }
                let since = unsafe max(
                    Int64(bitPattern: Self.word(bytes, 72)), Int64(bitPattern: Self.word(bytes, 120)))
                unsafe wait(Strategy(stored: bytes[3]), in: table, since: since)
            case .message, .vendorMessage:
                guard let row = unsafe MessageRow(bytes) else { return nil }
                let facts = row.facts(cid: .none, table: key.table, item: key.item)
                guard facts.hasDueJob(at: time) else { return nil }
                (app, isWaiting, expiresAt) = (facts.app, true, facts.expiresAt)
                wait(facts.strategy, in: facts.table, since: facts.jobDueAt)
            default: return nil
            }
        }

        private mutating func wait(_ strategy: Strategy, in table: StoreKey.Table, since time: GatewayTime) {
            pile = strategy.pile(in: table)
            if strategy.mustBeLeasedInTime(in: table) { waitsForVendorSince = time }
        }

        private static func word(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt64 {
            unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        }

        func mayWait(_ timeout: Int64) -> GatewayTime { JobRow.mayWait(expiresAt, waitsForVendorSince, timeout) }
    }
}
