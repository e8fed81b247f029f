package import Wire

extension RowInspection {
    /// Returns whether a row's value has a form that this version reads; always true for tables without a fixed form.
    package static func isReadable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) -> Bool {
        switch key.table {
        case .device: unsafe device(bytes) != nil
        case .message, .vendorMessage: unsafe message(bytes) != nil
        case .job: unsafe JobRow(bytes) != nil
        case .counters: unsafe CountersRow(bytes) != nil
        case .request:
            unsafe PushRow(bytes, under: key) != nil || RequestRow.read(bytes) != nil || isCall(bytes)
        case .trace:
            lateEvent(key) != nil
                ? unsafe !LateEventRow.read(bytes).isEmpty : unsafe TraceRow(bytes, of: tracedMessage(key)) != nil
        case .alias: unsafe AliasRow(bytes) != nil
        case .task: unsafe TaskRow.read(bytes) != nil
        case .taskMessage: unsafe LedgerRow(bytes) != nil
        case .taskEvent: unsafe TaskEventRow(bytes) != nil
        case .taskTargets: unsafe TargetsRow.read(bytes) != nil
        case .broadcast: key.item == 0 ? bytes.count >= 8 : unsafe TaskRow.read(bytes) != nil
        case .feed:
            key.item == 0 ? unsafe FeedHeadRow.read(bytes) != nil : unsafe FeedRow.read(bytes) != nil
        case .event: unsafe FeedRow.read(bytes) != nil
        case .upstream: unsafe UpstreamRow(bytes) != nil
        case .taskCallback: unsafe CallbackRow.read(bytes) != nil
        case .attributes: unsafe AttributesRow.read(bytes) != nil
        case .meta, .tag, .taskGroup: true
        }
    }

    private static func isCall(_ bytes: UnsafeRawBufferPointer) -> Bool {
        // The list of targets follows the call's head.
        if bytes.count >= CallRow.byteCount(targets: []), unsafe CallRow.read(bytes) != nil { return true }
        return unsafe CallRow.readAnswer(bytes) != nil
    }

    /// Returns the app of a message row and the key of its job; `nil` for an invalid row.
    package static func waiting(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) -> (app: AppKey, job: StoreKey)? {
        guard let row = unsafe MessageRow(bytes) else { return nil }
        return (row.app, StoreKey(key.bucket, .job, row.messageID))
    }

    /// Returns the key of the message that a due or leased job belongs to; `nil` for a broadcast or an invalid row.
    package static func messageKey(ofJob bytes: UnsafeRawBufferPointer) -> StoreKey? {
        guard let row = unsafe JobRow(bytes), row.state == .due || row.state == .leased else { return nil }
        return row.facts.table == .broadcast ? nil : row.facts.key
    }
}
