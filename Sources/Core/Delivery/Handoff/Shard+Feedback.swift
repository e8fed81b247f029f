// Feedback: user actions on a message, as reported by its device.
//
// Each event of a message has its own row besides the trace, whether the message is pending or has ended. The shard looks the row
// up before it counts an event. A repetition is therefore not counted, even after a restart.

internal import Structures
internal import Wire

struct DeviceReport {
    var kind: Feedback.Kind
    var action: UInt32
    var message: MessageID
    var at: GatewayTime
    /// Whether the event certainly concerns a vendor's notification, even if the sender's result has not arrived.
    var isOfNotification = false
}

struct ReportedMessage {
    var id: MessageID
    var task: TaskID
    /// Whether the vendor accepted the message, so the report counts for its alert.
    var isVendor: Bool
    /// Whether the job was ever leased.
    var wasLeased: Bool
    var events: Set<TraceEvent>
    /// The channel of the message's alert.
    var channel: VendorChannel?
    var hasCallback = false
    var endsWhenOpened = false
    /// Whether a vendor's sender leased the job and no vendor has accepted the message.
    var awaitsAcceptance = false

    /// The channel of the alert that a report is about; `nil` on the live channel.
    var alertChannel: VendorChannel? { isVendor ? channel : nil }
}

private enum QueueSearch {
    /// A row for which `isEnough` returned true; the search stopped there.
    case enough(Shard.Scanned)
    /// All rows were read; the results of all searched messages.
    case whole([MessageID: Found<ReportedMessage>])
    case unreadable

    func finding(_ message: MessageID) -> Found<ReportedMessage> {
        if case .whole(let findings) = self { findings[message] ?? .absent } else { .unreadable }
    }
}

extension Shard {
    private func mayRecord(_ kind: Feedback.Kind, action: UInt32) -> Bool {
        switch kind {
        // An open is recorded even in a full store, because it ends its message and so frees room.
        case .opened: true
        case .shown: store.acceptsWrites
        case .action: store.acceptsWrites && Wire.Limits.actions.contains(action)
        }
    }

    /// Records one event of a device; the device must be ready and is held until the completion (`whileBusy`).
    mutating func record(
        _ report: DeviceReport, of slot: DeviceSlot, completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        guard mayRecord(report.kind, action: report.action) else {
            if store.acceptsWrites { numbers.feedbackIgnored &+= 1 }
            return completion(&self, store.acceptsWrites ? .ignored : .retry)
        }
        switch report.kind {
        case .opened: markOpened(report, slot, completion: completion)
        case .shown: note(.shown, report, slot, completion: completion)
        case .action: note(.action, report, slot, completion: completion)
        }
    }

    /// Ends a pending message as opened if it is the device's own and its alert carried all of it.
    ///
    /// Otherwise the open is only a trace event, and a pending message is still delivered.
    ///
    /// The device must be ready and is held until the completion (`whileBusy`).
    mutating func markOpened(
        _ opened: DeviceReport, _ slot: DeviceSlot, completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        let message = opened.message
        guard !devices.at(slot).value.replaysOpened,
            let shown = Self.lateKey(.shown, message), message.bucket == devices.at(slot).value.bucket
        else {
            note(.opened, opened, slot, completion: completion)
            return
        }
        lookUp(shown) { shard, late in
            // If the row of `shown` is unreadable, the event may already be counted, so it is not counted again.
            let wasShown = !late.isAbsent
            if let listed = shard.listedMessage(message, of: slot) {
                let entry = shard.messages.at(listed)
                guard shard.endsWhenOpened(entry.value.facts) else {
                    return shard.note(.opened, Self.tap(opened), slot, completion: completion)
                }
                shard.endOpened(entry.value.facts, message: listed, job: entry.value.job, slot, wasShown)
                completion(&shard, .recorded)
                return
            }
            let cid = shard.devices.at(slot).value.cid
            shard.findJob(message) { shard, found in
                guard case .found(let job) = found, shard.jobs.at(job).value.row.facts.cid == cid else {
                    if case .found(let job) = found { shard.dropJobIfDone(job) }
                    shard.markColdOpened(opened, slot, wasShown, completion: completion)
                    return
                }
                let entry = shard.jobs.at(job)
                guard shard.endsWhenOpened(entry.value.row.facts) else {
                    shard.dropJobIfDone(job)
                    return shard.note(.opened, Self.tap(opened), slot, completion: completion)
                }
                shard.endOpened(entry.value.row.facts, message: entry.value.message, job: job, slot, wasShown)
                completion(&shard, .recorded)
            }
        }
    }

    /// Returns the report, marked as an event of a vendor's notification.
    private static func tap(_ opened: DeviceReport) -> DeviceReport {
        var tap = opened
        tap.isOfNotification = true
        return tap
    }

    private func endsWhenOpened(_ facts: MessageFacts) -> Bool {
        facts.strategy.endsWhenOpened(carriesAll: facts.vendorCarriesAll || isPlanted(.partEndsWhenOpened))
    }

    /// Handles an open of a message that is not in memory and has no job row, so that only the queue's rows may contain it.
    private mutating func markColdOpened(
        _ opened: DeviceReport, _ slot: DeviceSlot, _ wasShown: Bool,
        completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        let message = opened.message
        switch reports.finding(message, of: devices.at(slot).value.session) {
        case .absent: return note(.opened, opened, slot, completion: completion)
        case .found(let reported) where !reported.endsWhenOpened:
            return note(.opened, Self.tap(opened), of: .found(reported), slot, completion: completion)
        // The message is known to be in the queue. The search therefore succeeds and delays no later search.
        case .found: break
        case .unreadable, nil:
            guard mayBeQueued(message, of: slot), maySearchQueue(of: slot) else {
                return note(.opened, opened, slot, completion: completion)
            }
        }
        guard let bucket = message.bucket else { return note(.opened, opened, slot, completion: completion) }
        // The trace is read first, because most opened messages have ended.
        readTrace(message, bucket: bucket) { shard, trace in
            guard trace.isAbsent else {
                shard.note(.opened, opened, slot, completion: completion)
                return
            }
            let wanted = shard.wanted(message, slot)
            shard.searchQueue(of: slot, for: wanted, until: { $0 == message && $1 }) { shard, search in
                guard case .enough(let found) = search else {
                    // A failed search delays the device's next one by a second.
                    shard.devices.at(slot).value.queuedSearchAt = shard.now
                    return shard.note(
                        .opened, Self.tap(opened), of: search.finding(message), slot, completion: completion)
                }
                let listed = shard.adoptMessage(found, device: slot)
                let entry = shard.messages.at(listed)
                shard.endOpened(entry.value.facts, message: listed, job: entry.value.job, slot, wasShown)
                completion(&shard, .recorded)
            }
        }
    }

    private mutating func endOpened(
        _ facts: MessageFacts, message: MessageSlot, job: JobSlot, _ slot: DeviceSlot, _ wasShown: Bool
    ) {
        inBatch(of: slot) { shard in
            let isInSteps = job != .none && shard.jobs.at(job).value.row.steps.contains { $0.event == .shown }
            let channel =
                job == .none
                ? facts.channels.subtracting(.followUps).first : shard.jobs.at(job).value.row.vendorChannel
            shard.count(.clickedVendor, ofAlertBy: channel)
            if !wasShown, !isInSteps { shard.noteImplied(facts.message, by: channel, at: shard.now) }
            shard.noteEvent(
                .clicked, message: facts.message, task: facts.task, detail: .ofAlert(true, by: channel),
                hasCallback: facts.hasCallback)
            shard.end(facts, .opened, message: message, job: job)
        }
    }

    // MARK: Events

    private mutating func note(
        _ event: TraceEvent, _ report: DeviceReport, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        findReported(report.message, slot) { shard, found in
            shard.note(event, report, of: found, slot, completion: completion)
        }
    }

    private mutating func note(
        _ event: TraceEvent, _ report: DeviceReport, of found: Found<ReportedMessage>, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        guard case .found(var found) = found else {
            if found.isAbsent { numbers.feedbackIgnored &+= 1 }
            return completion(&self, found.isAbsent ? .ignored : .retry)
        }
        guard report.isOfNotification, found.wasLeased else {
            return write(event, report, of: found, slot, completion: completion)
        }
        found.isVendor = true
        guard found.awaitsAcceptance else { return write(event, report, of: found, slot, completion: completion) }
        let known = found
        // A crash between both changes leaves an accepted message; the repeated report then writes the event.
        acceptProven(known.id, slot) { shard, reading in
            guard reading == .whole else { return completion(&shard, .retry) }
            shard.write(event, report, of: known, slot, completion: completion)
        }
    }

    private mutating func write(
        _ event: TraceEvent, _ report: DeviceReport, of found: ReportedMessage, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        if event == .action {
            noteAction(report, of: found, slot, completion: completion)
        } else {
            noteOnce(event, at: report.at, of: found, slot, completion: completion)
        }
    }

    /// Finds a message of this device: in memory, by its job, by its trace, or in the rows of its queue.
    private mutating func findReported(
        _ message: MessageID, _ slot: DeviceSlot, completion: @escaping (inout Shard, Found<ReportedMessage>) -> Void
    ) {
        let device = devices.at(slot)
        guard message.bucket == device.value.bucket else { return completion(&self, .absent) }
        let cid = device.value.cid
        if let listed = listedMessage(message, of: slot) {
            let entry = messages.at(listed)
            let row = entry.value.job == .none ? nil : jobs.at(entry.value.job).value.row
            completion(&self, .found(Self.reported(entry.value.facts, row)))
            return
        }
        findJob(message) { shard, found in
            switch found {
            case .found(let job):
                let row = shard.jobs.at(job).value.row
                shard.dropJobIfDone(job)
                return completion(&shard, row.facts.cid == cid ? .found(Self.reported(row.facts, row)) : .absent)
            case .unreadable: return completion(&shard, .unreadable)
            case .absent: break
            }
            guard let bucket = message.bucket else { return completion(&shard, .absent) }
            shard.readTrace(message, bucket: bucket) { shard, found in
                let trace: TraceRow
                switch found {
                case .found(let row): trace = row
                case .unreadable: return completion(&shard, .unreadable)
                case .absent: return shard.findQueued(message, slot, completion: completion)
                }
                guard trace.facts.cid == cid else { return completion(&shard, .absent) }
                let isVendor =
                    trace.finalState == .opened
                    || trace.channel?.isFollowUp != true
                        && (trace.finalState == .handedOff || trace.steps.contains { $0.event == .vendorAccepted })
                completion(
                    &shard,
                    .found(
                        ReportedMessage(
                            id: message, task: trace.facts.task, isVendor: isVendor,
                            wasLeased: trace.wasLeased, events: Set(trace.steps.lazy.map(\.event)),
                            channel: trace.channel?.isFollowUp == true ? nil : trace.channel,
                            hasCallback: trace.facts.hasCallback)))
            }
        }
    }

    private static func reported(_ facts: MessageFacts, _ job: JobRow?) -> ReportedMessage {
        ReportedMessage(
            id: facts.message, task: facts.task, isVendor: job?.isAlerted ?? false, wasLeased: job?.wasLeased ?? false,
            events: Set((job?.steps ?? []).lazy.map(\.event)),
            channel: job?.vendorChannel ?? facts.channels.subtracting(.followUps).first, hasCallback: facts.hasCallback,
            awaitsAcceptance: job.map { $0.wasLeased && !$0.isAlerted } ?? false)
    }

    /// Searches the rows of the device's queue for an un-acked message, at most once per second and device.
    ///
    /// One search serves all reports in the session's lane. Otherwise each report of an unknown message would delay the Pong by a
    /// second.
    private mutating func findQueued(
        _ message: MessageID, _ slot: DeviceSlot, completion: @escaping (inout Shard, Found<ReportedMessage>) -> Void
    ) {
        guard mayBeQueued(message, of: slot) else { return completion(&self, .absent) }
        if let finding = reports.finding(message, of: devices.at(slot).value.session) {
            return completion(&self, finding)
        }
        // The message may exist, so the report is retried. The next search is possible a second later.
        guard maySearchQueue(of: slot) else { return completion(&self, .unreadable) }
        devices.at(slot).value.queuedSearchAt = now
        searchQueue(of: slot, for: wanted(message, slot), until: { _, _ in false }) { shard, search in
            completion(&shard, search.finding(message))
        }
    }

    /// Returns the searched messages: this one, and those of the session's waiting reports.
    private func wanted(_ message: MessageID, _ slot: DeviceSlot) -> [MessageID: Found<ReportedMessage>] {
        var wanted = reports.messages(of: devices.at(slot).value.session)
        wanted.insert(message)
        return Dictionary(uniqueKeysWithValues: wanted.map { ($0, .absent) })
    }

    private func mayBeQueued(_ message: MessageID, of slot: DeviceSlot) -> Bool {
        devices.at(slot).value.coldMessageCount > 0 && message.acceptedAtMilliseconds <= now
    }

    private func maySearchQueue(of slot: DeviceSlot) -> Bool {
        devices.at(slot).value.queuedSearchAt + 1_000 <= now
    }

    /// Reads the device's live rows until `isEnough` returns true.
    ///
    /// The arguments of `isEnough` are a searched message, and whether an open ends that message. The results for all searched
    /// messages are kept in the session's lane.
    private mutating func searchQueue(
        of slot: DeviceSlot, for wanted: [MessageID: Found<ReportedMessage>], from item: UInt64 = 0,
        until isEnough: @escaping (MessageID, Bool) -> Bool,
        completion: @escaping (inout Shard, QueueSearch) -> Void
    ) {
        scan(slot, table: .message, from: item, rowLimit: 128, byteLimit: 1 << 20) { shard, page in
            guard case .rows(let rows, let isLast) = page else { return completion(&shard, .unreadable) }
            var findings = wanted
            for row in rows where findings[row.facts.message] != nil {
                let endsWhenOpened = shard.endsWhenOpened(row.facts)
                if isEnough(row.facts.message, endsWhenOpened) { return completion(&shard, .enough(row)) }
                var reported = Self.reported(row.facts, row.job)
                reported.endsWhenOpened = endsWhenOpened
                findings[row.facts.message] = .found(reported)
            }
            if !isLast, let last = rows.last {
                let next = last.facts.item &+ 1
                return shard.searchQueue(
                    of: slot, for: findings, from: next, until: isEnough, completion: completion)
            }
            shard.reports.keep(findings, of: shard.devices.at(slot).value.session)
            completion(&shard, .whole(findings))
        }
    }

    /// Records `shown` or `opened`, unless it is already recorded.
    private mutating func noteOnce(
        _ event: TraceEvent, at time: GatewayTime, of found: ReportedMessage, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        guard let key = Self.lateKey(event, found.id), let shown = Self.lateKey(.shown, found.id),
            !found.events.contains(event)
        else { return completion(&self, .repeated) }
        lookUp(key) { shard, late in
            switch late {
            case .found:
                if shard.isPlanted(.receiptCountsTwice) { break }
                return completion(&shard, .repeated)
            case .unreadable:
                return completion(&shard, .retry)
            case .absent: break
            }
            guard event == .opened, !found.events.contains(.shown) else {
                shard.writeOnce(event, at: time, of: found, slot, wasShown: found.events.contains(.shown))
                return completion(&shard, .recorded)
            }
            // A click on an alert implies that it was shown. On the live channel only the client knows whether it showed
            // something.
            shard.lookUp(shown) { shard, late in
                shard.writeOnce(event, at: time, of: found, slot, wasShown: !late.isAbsent)
                completion(&shard, .recorded)
            }
        }
    }

    private mutating func writeOnce(
        _ event: TraceEvent, at time: GatewayTime, of found: ReportedMessage, _ slot: DeviceSlot, wasShown: Bool
    ) {
        let isOpened = event == .opened
        inBatch(of: slot) { shard in
            if isOpened {
                shard.count(found.isVendor ? .clickedVendor : .clickedLive, ofAlertBy: found.alertChannel)
                if found.isVendor, !wasShown { shard.noteImplied(found.id, by: found.channel, at: time) }
            } else {
                shard.count(found.isVendor ? .shownVendor : .shownLive, ofAlertBy: found.alertChannel)
            }
            shard.noteTaskEvent(
                isOpened ? .opened : .shown, isVendor: found.isVendor, task: found.task, message: found.id)
            shard.noteEvent(
                isOpened ? .clicked : .shown, message: found.id, task: found.task,
                detail: .ofAlert(found.isVendor, by: found.alertChannel), hasCallback: found.hasCallback)
            shard.noteLate(event, at: time, of: found.id, detail: "")
        }
    }

    /// Records the vendor's acceptance, which a report of its notification proves.
    ///
    /// The sender may have ended before its result. Without the acceptance the job would be leased again, or end as failed.
    private mutating func acceptProven(
        _ message: MessageID, _ slot: DeviceSlot, completion: @escaping (inout Shard, Reading) -> Void
    ) {
        findJob(message) { shard, found in
            switch found {
            case .unreadable: return completion(&shard, .unreadable)
            case .absent: return completion(&shard, .whole)
            case .found: break
            }
            shard.withJob(message, device: slot) { shard, found in
                guard case .found(let job) = found else {
                    return completion(&shard, found.isAbsent ? .whole : .unreadable)
                }
                if !shard.jobs.at(job.slot).value.row.isAlerted { shard.vendorAccepted(job) }
                if let left = shard.jobs.find(message) { shard.dropJobIfDone(left) }
                completion(&shard, .whole)
            }
        }
    }

    /// Counts, in the open batch, that an opened alert was shown; the device may report that later.
    private mutating func noteImplied(_ message: MessageID, by channel: VendorChannel?, at time: GatewayTime) {
        count(.shownVendor, ofAlertBy: channel)
        noteLate(.shown, at: time, of: message, detail: "")
    }

    /// Records a custom action: each number once, and at most `actionsPerMessage` numbers per message.
    private mutating func noteAction(
        _ report: DeviceReport, of found: ReportedMessage, _ slot: DeviceSlot,
        completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        guard let key = Self.lateKey(.action, found.id) else { return completion(&self, .ignored) }
        let number = report.action
        lookUp(key) { shard, late in
            let known: [MessageTrace.Step]
            switch late {
            case .unreadable: return shard.ignoreAction(.retry, completion)
            case .absent: known = []
            case .found(let row): known = LateEventRow.read(row.bytes)
            }
            if !late.isAbsent || !found.task.hasLedger {
                let isKnown = known.contains { $0.detail == String(number) }
                guard isKnown || known.count < Limits.actionsPerMessage else {
                    return shard.ignoreAction(.ignored, completion)
                }
                if !isKnown { shard.writeAction(report, beside: known, of: found, slot) }
                completion(&shard, isKnown ? .repeated : .recorded)
                return
            }
            // The trace's action row may have expired. The task's event rows are kept longer and show the recorded actions.
            let first = TaskEventRow.item(found.id, .action, action: 0)
            let start = StoreKey(
                shard.devices.at(slot).value.bucket, .taskEvent, found.task, item: first)
            shard.read([.scan(partition: start, rowLimit: Limits.actionsPerMessage, byteLimit: 64 << 10)]) {
                shard, reply in
                guard case .rows(let rows, _)? = reply.results.first else {
                    return shard.ignoreAction(.retry, completion)
                }
                let own = rows.filter { $0.key.item & ~0xFFF == first }
                let wanted = TaskEventRow.item(found.id, .action, action: number)
                let isKnown = own.contains { $0.key.item == wanted }
                guard isKnown || own.count < Limits.actionsPerMessage else {
                    return shard.ignoreAction(.ignored, completion)
                }
                if !isKnown { shard.writeAction(report, beside: known, of: found, slot) }
                completion(&shard, isKnown ? .repeated : .recorded)
            }
        }
    }

    private mutating func writeAction(
        _ report: DeviceReport, beside known: [MessageTrace.Step], of found: ReportedMessage, _ slot: DeviceSlot
    ) {
        inBatch(of: slot) { shard in
            shard.noteTaskEvent(
                .action, isVendor: found.isVendor, action: report.action, task: found.task, message: found.id)
            shard.noteEvent(
                .action, message: found.id, task: found.task, detail: .action(report.action),
                hasCallback: found.hasCallback)
            shard.noteLate(.action, at: report.at, of: found.id, detail: String(report.action), beside: known)
        }
    }

    private mutating func ignoreAction(
        _ verdict: EventVerdict, _ completion: @escaping (inout Shard, EventVerdict) -> Void
    ) {
        if verdict == .ignored { numbers.feedbackIgnored &+= 1 }
        completion(&self, verdict)
    }
}
