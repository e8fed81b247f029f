// Acks, rejections and feedback: what the device says became of a message.

internal import Structures
public import Wire

extension Shard {
    /// Settles what the device acked in stream 0: one batch for the whole frame.
    ///
    /// Only what was sent in this session counts; a number above the highest ever given closes the session.
    public mutating func acknowledge(
        _ session: SessionRef, cumulative: UInt64, ranges: UnsafeBufferPointer<SequenceRange>, now: GatewayTime
    ) {
        begin(now)
        guard let slot = device(of: session) else { return }
        let device = devices.pointer(slot)
        device.pointee.lastHeardAt = self.now
        var highest = cumulative
        for range in ranges { highest = max(highest, range.last) }
        guard highest < device.pointee.nextSequence || isPlanted(.ackAboveHighestAccepted) else {
            numbers.acksAboveHighest &+= 1
            close(slot, .badAck, "an ack above the highest sequence ever given")
            return
        }
        // Once its last message has ended the device has no queue that would know.
        let offeredBelow = device.pointee.offeredBelow
        var settled = 0
        var next = device.pointee.firstMessage
        while next != .max {
            let message = next
            let entry = messages.pointer(message)
            next = entry.pointee.next
            let sequence = entry.pointee.facts.item
            guard sequence <= highest else { break }
            guard entry.pointee.flags.contains(.sentHere) || isPlanted(.ackOfUnsentCounts),
                sequence <= cumulative || Self.ranges(ranges, name: sequence)
            else { continue }
            if !batch.isOpen { openBatch(slot) }
            end(
                entry.pointee.facts, entry.pointee.isOffline ? .deliveredOffline : .delivered, message: message,
                job: entry.pointee.job)
            breakLongBatch()
            settled += 1
        }
        if batch.isOpen { closeBatch() }
        if settled == 0 || highest >= offeredBelow { numbers.acksIgnored &+= 1 }
        pump(slot)
    }

    private static func ranges(_ ranges: UnsafeBufferPointer<SequenceRange>, name sequence: UInt64) -> Bool {
        for range in ranges where range.first <= sequence && sequence <= range.last { return true }
        return false
    }

    /// The app can never process this message: it ends, so that it does not hold the window.
    public mutating func reject(
        _ session: SessionRef, stream: UInt32 = 0, sequence: UInt64, reason: String, now: GatewayTime
    ) {
        begin(now)
        guard let slot = device(of: session) else { return }
        devices.pointer(slot).pointee.lastHeardAt = self.now
        guard let message = listedMessage(table: stream == 1 ? .broadcast : .message, item: sequence, of: slot),
            messages.pointer(message).pointee.flags.contains(.sentHere)
        else {
            numbers.acksIgnored &+= 1
            return
        }
        let detail = reason.isEmpty ? "rejectedByClient" : "rejectedByClient: " + reason.bounded(Limits.reasonByteCount)
        openBatch(slot)
        end(
            messages.pointer(message).pointee.facts, .failed, reason: detail, message: message,
            job: messages.pointer(message).pointee.job)
        closeBatch()
        pump(slot)
    }

    // MARK: Feedback

    /// The user opened a notification, or the client showed one, or did something with it.
    public mutating func feedback(_ session: SessionRef, _ feedback: Feedback, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else { return }
        devices.pointer(slot).pointee.lastHeardAt = self.now
        whenReady(slot) { shard, slot, readiness in
            guard readiness == .ready else { return }
            shard.devices.pointer(slot).pointee.flags.insert(.busy)
            let done: (inout Shard) -> Void = { shard in
                shard.devices.pointer(slot).pointee.flags.remove(.busy)
                shard.pump(slot)
                shard.drainWaiting(slot)
            }
            switch feedback.kind {
            case .opened: shard.markOpened(feedback.messageID, slot, completion: done)
            case .shown: shard.note(.shown, of: feedback.messageID, slot, completion: done)
            case .action:
                shard.note(.shown, action: feedback.action, of: feedback.messageID, slot, completion: done)
            }
        }
    }

    /// Ends a message as opened if it is the device's own and still here; else it is a late event of its trace.
    mutating func markOpened(_ message: MessageID, _ slot: UInt32, completion: @escaping (inout Shard) -> Void) {
        let replays = devices.pointer(slot).pointee.flags.contains(.replayOpened)
        if !replays, let listed = listedMessage(message, of: slot),
            messages.pointer(listed).pointee.facts.strategy == .liveElseVendor
        {
            endOpened(
                messages.pointer(listed).pointee.facts, message: listed, job: messages.pointer(listed).pointee.job, slot
            )
            completion(&self)
            return
        }
        let cid = devices.pointer(slot).pointee.cid
        findJob(message) { shard, job, ok in
            guard let job, shard.jobs.pointer(job).pointee.row.facts.cid == cid,
                shard.jobs.pointer(job).pointee.row.facts.strategy == .liveElseVendor, !replays
            else {
                if let job { shard.dropJobIfDone(job) }
                shard.note(.opened, of: message, slot, completion: completion)
                return
            }
            let entry = shard.jobs.pointer(job)
            shard.endOpened(entry.pointee.row.facts, message: entry.pointee.message, job: job, slot)
            completion(&shard)
        }
    }

    private mutating func endOpened(_ facts: MessageFacts, message: UInt32, job: UInt32, _ slot: UInt32) {
        openBatch(slot)
        let wasShown = job != .max && jobs.pointer(job).pointee.row.steps.contains { $0.event == .shown }
        count(.clickedVendor)
        if !wasShown { count(.shownVendor) }
        end(facts, .opened, message: message, job: job)
        closeBatch()
    }

    /// Counts, in the open batch, what a user did with a message, once for the message and once for its task.
    private mutating func countEvent(
        _ event: TraceEvent, action: UInt32?, isVendor: Bool, steps: [MessageTrace.Step], task: TaskID,
        message: MessageID
    ) {
        if let action {
            noteTaskEvent(.action, isVendor: isVendor, action: action, task: task, message: message)
            return
        }
        let isOpened = event == .opened
        noteTaskEvent(isOpened ? .opened : .shown, isVendor: isVendor, task: task, message: message)
        guard !steps.contains(where: { $0.event == event }) else { return }
        if isOpened { count(isVendor ? .clickedVendor : .clickedLive) }
        // Whoever clicks has seen it; on the live channel only the client knows whether something was shown.
        let wasShown = steps.contains { $0.event == .shown }
        if !isOpened || isVendor && !wasShown { count(isVendor ? .shownVendor : .shownLive) }
    }

    /// Adds a step to a message of this device: in its job row while it is pending, else beside its trace.
    private mutating func note(
        _ event: TraceEvent, action: UInt32? = nil, of message: MessageID, _ slot: UInt32,
        completion: @escaping (inout Shard) -> Void
    ) {
        let detail = action.map { "action \($0)" } ?? ""
        let cid = devices.pointer(slot).pointee.cid
        findJob(message) { shard, job, ok in
            if let job {
                if shard.jobs.pointer(job).pointee.row.facts.cid == cid {
                    let row = shard.jobs.pointer(job).pointee.row
                    shard.jobs.pointer(job).pointee.row.note(event, shard.now, detail)
                    shard.openBatch(slot)
                    shard.countEvent(
                        event, action: action, isVendor: row.alertedAt > 0, steps: row.steps, task: row.facts.task,
                        message: message)
                    shard.writeJob(job)
                    shard.closeBatch()
                }
                shard.dropJobIfDone(job)
                completion(&shard)
                return
            }
            guard ok, let bucket = message.bucket, bucket == shard.devices.pointer(slot).pointee.bucket else {
                completion(&shard)
                return
            }
            shard.readTrace(message, bucket: bucket) { shard, trace, _ in
                if let trace, trace.facts.cid == cid {
                    var steps = trace.steps
                    if let key = Self.lateKey(event, message), case .found(let location, _) = shard.store.young(key),
                        let step = LateEventRow.read(shard.store.value(at: location)), step.detail.isEmpty
                    {
                        steps.append(step)
                    }
                    let isVendor =
                        trace.finalState == .opened || trace.finalState == .handedOff
                        || trace.steps.contains { $0.event == .vendorAccepted }
                    shard.openBatch(slot)
                    shard.countEvent(
                        event, action: action, isVendor: isVendor, steps: steps, task: trace.facts.task,
                        message: message)
                    shard.noteLate(event, of: message, detail: detail)
                    shard.closeBatch()
                }
                completion(&shard)
            }
        }
    }

    /// The trace row of a message that has ended.
    mutating func readTrace(
        _ message: MessageID, bucket: Bucket, completion: @escaping (inout Shard, TraceRow?, Bool) -> Void
    ) {
        let key = StoreKey(bucket, .trace, message)
        switch store.young(key) {
        case .found(let location, _): completion(&self, TraceRow(store.value(at: location)), true)
        case .deleted: completion(&self, nil, true)
        case .unknown:
            if store.isCertainlyAbsent(key) {
                completion(&self, nil, true)
                return
            }
            read([.get(key)]) { shard, reply in
                if case .row(let stored)? = reply.results.first {
                    completion(&shard, stored.flatMap { TraceRow($0.value) }, true)
                } else {
                    completion(&shard, nil, false)
                }
            }
        }
    }
}

extension String {
    /// At most so many bytes of UTF-8, whole characters only.
    func bounded(_ byteCount: Int) -> String {
        guard utf8.count > byteCount else { return self }
        var kept = ""
        for character in self {
            if kept.utf8.count + character.utf8.count > byteCount { break }
            kept.append(character)
        }
        return kept
    }
}
