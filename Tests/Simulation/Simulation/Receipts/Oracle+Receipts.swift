internal import Delivery
internal import Wire

// Checks of receipts against the rows and the counters.
extension Oracle {
    func receiptAnswered(_ number: Int, _ answer: ReceiptAnswer) {
        let call = world.receipts.calls[number]
        switch answer {
        case .busy: return
        case .clockSkew:
            if call.character != .skewed { fail(.refusal, "receipt \(number) was refused for its clock") }
        case .refused:
            if call.character == .honest, !call.identity.wasLost {
                fail(.refusal, "receipt \(number) of device \(call.identity.index) was refused")
            }
        case .taken(let verdicts):
            if call.character != .honest { return fail(.fencing, "receipt \(number) was taken, but \(call.character)") }
            guard verdicts.count == call.events.count else {
                return fail(.books, "receipt \(number) has \(call.events.count) events and \(verdicts.count) verdicts")
            }
            for (event, verdict) in zip(call.events, verdicts) where verdict == .recorded {
                checkRecorded(event.record, event.kind, event.action, of: call.identity, number)
                // The report is the vendor's acceptance, so the job must not be leased again.
                if call.leased.contains(event.record.index), event.record.final == nil,
                    event.record.strategy == .liveElseVendor
                {
                    (event.record.acceptWasRecorded, event.record.alertWasRecorded) = (true, true)
                }
            }
        }
    }

    private func checkRecorded(
        _ record: Record, _ kind: Feedback.Kind, _ action: UInt32, of identity: Identity, _ number: Int
    ) {
        let name = "\(kind) of message \(record.index) in receipt \(number)"
        if record.identity !== identity { fail(.fencing, "\(name) counted for another device's message") }
        let event: TraceEvent =
            switch kind {
            case .shown: .shown
            case .opened: .opened
            case .action: .action
            }
        let isDurable =
            world.receipts.isDurable(ReceiptModel.Event(record: record.index, event: event))
            || kind == .opened && record.durableFinal == .opened
        if !isDurable { fail(.beforeSync, "\(name) was confirmed before it was durable") }
        let isNew = world.receipts.record(ReceiptModel.Event(record: record.index, event: event, action: action))
        if !isNew, !requests.areForgotten { fail(.books, "\(name) was recorded twice") }
    }

    func eventBecameDurable(_ event: TraceEvent, _ message: MessageID) {
        guard let record = record(message) else { return }
        world.receipts.becameDurable(ReceiptModel.Event(record: record.index, event: event))
    }

    /// Checks that each shown or opened message counts once, regardless of the channel and the number of reports.
    func checkReported() {
        guard !requests.areForgotten else { return }
        let opened = world.records.count { $0.durableFinal == .opened } + world.receipts.count(of: .opened)
        let books: [(TraceEvent, Int, [CountersRow.Extra])] = [
            (.shown, world.receipts.count(of: .shown), [.shownLive, .shownVendor]),
            (.opened, opened, [.clickedLive, .clickedVendor]),
        ]
        for (event, count, extras) in books {
            let counted = extras.reduce(0) { $0 + counting.sum(of: $1) }
            if counted != count { fail(.books, "\(event) is counted \(counted) times, of \(count) messages") }
        }
    }
}
