// What operators and the admin API ask: a device's state, a message's life. Both are told once everything that they may
// rest on is durable: nobody shall see an end that a crash takes back.

internal import Structures
public import Wire

extension Shard {
    /// Tells a device's state, as `.deviceStatus`.
    public mutating func status(
        of cid: DeviceID, bucket: Bucket, app: AppKey, origin: Origin, now: GatewayTime
    ) {
        begin(now)
        whenReady(deviceSlot(cid, bucket: bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                shard.tell(.deviceStatus(origin, cid, readiness == .failed ? .unreadable : .unknown))
                return
            }
            let device = shard.devices.pointer(slot)
            guard shard.apps[Int(device.pointee.appIndex)].key == app else {
                shard.tell(.deviceStatus(origin, cid, .unknown))
                return
            }
            let tokens = shard.profile(slot).tokens.map {
                DeviceStatus.Token(
                    kind: $0.kind, environment: $0.environment, topic: $0.topic, token: String($0.token.prefix(8)),
                    isQuarantined: $0.isQuarantined)
            }
            let status = DeviceStatus(
                app: app, isConnected: device.pointee.isConnected, isReachable: device.pointee.isReachable,
                isSuspect: device.pointee.flags.contains(.suspect), applicationState: device.pointee.state,
                keepsRunning: device.pointee.flags.contains(.keepsRunning), generation: device.pointee.generation,
                heartbeatSeconds: Int64(device.pointee.heartbeatSeconds),
                lastSeenAt: device.pointee.lastHeardAt,
                registeredAt: device.pointee.registeredAt,
                queuedMessageCount: Int(device.pointee.messageCount + device.pointee.vendorCount),
                queuedByteCount: Int(device.pointee.messageBytes + device.pointee.vendorBytes),
                inFlightCount: Int(device.pointee.inFlightCount), nextSequence: device.pointee.nextSequence,
                badge: device.pointee.badge, pushModeOff: device.pointee.flags.contains(.pushModeOff), tokens: tokens)
            shard.tell(.deviceStatus(origin, cid, .known(status)))
        }
    }

    /// Tells a message's life so far, as `.messageTrace`.
    ///
    /// Rare and for people: a message that is only in memory is found by looking at all of them, and so is one that is only
    /// in the store, unless it is known that it cannot be pending.
    public mutating func trace(
        of message: MessageID, mayBePending: Bool = true, origin: Origin, now: GatewayTime
    ) {
        begin(now)
        for slot in 0..<messages.highWater where messages.isOccupied(slot) {
            let entry = messages.pointer(slot)
            guard entry.pointee.facts.message == message else { continue }
            let row = entry.pointee.job == .max ? nil : jobs.pointer(entry.pointee.job).pointee.row
            var steps = row?.steps ?? []
            if entry.pointee.sentAt > 0, !steps.contains(where: { $0.event == .sent }) {
                steps.insert(MessageTrace.Step(event: .sent, time: entry.pointee.sentAt), at: 0)
            }
            tell(
                .messageTrace(
                    origin,
                    .known(
                        Self.pendingTrace(entry.pointee.facts, steps: steps, isOffline: entry.pointee.isOffline))))
            return
        }
        findJob(message) { shard, job, ok in
            if let job {
                let row = shard.jobs.pointer(job).pointee.row
                shard.dropJobIfDone(job)
                return shard.tell(
                    .messageTrace(origin, .known(Self.pendingTrace(row.facts, steps: row.steps, isOffline: true))))
            }
            guard ok else { return shard.tell(.messageTrace(origin, .unreadable)) }
            guard let bucket = message.bucket else { return shard.tell(.messageTrace(origin, .unknown)) }
            shard.readTrace(message, bucket: bucket) { shard, trace, ok in
                if let trace { return shard.addLateEvents(trace, origin) }
                guard ok else { return shard.tell(.messageTrace(origin, .unreadable)) }
                guard mayBePending else { return shard.tell(.messageTrace(origin, .unknown)) }
                shard.searchPending(message, bucket: bucket, origin)
            }
        }
    }

    /// Finds a message that neither memory nor a job nor a trace knows: sent before a restart, say, to a device that has
    /// not come back, with nothing to hand to the vendor.
    ///
    /// Nothing leads from a message to its device, so a reader looks at all messages of the bucket that have left memory;
    /// one shard has one such search under way at a time.
    private mutating func searchPending(_ message: MessageID, bucket: Bucket, _ origin: Origin) {
        // Its id says when it was accepted: nothing waits for longer than the longest TTL, or has yet to come.
        let age = now - message.acceptedAtMilliseconds
        guard (-limits.clockTolerance...Self.longestWait).contains(age) else {
            return tell(.messageTrace(origin, .unknown))
        }
        guard !isSearching else {
            guard searches.count < Self.waitingSearchCount else { return tell(.messageTrace(origin, .unreadable)) }
            return searches.append((message, bucket, origin))
        }
        search(message, bucket: bucket, origin)
    }

    private mutating func search(_ message: MessageID, bucket: Bucket, _ origin: Origin) {
        isSearching = true
        let isIt: @Sendable (UnsafeRawBufferPointer) -> Bool = { MessageRow($0)?.messageID == message }
        let tables: [StoreKey.Table] = [.message, .vendorMessage]
        read(tables.map { .search(bucket: bucket, table: $0, matches: isIt) }) { shard, reply in
            shard.isSearching = false
            defer {
                if !shard.searches.isEmpty {
                    let next = shard.searches.removeFirst()
                    shard.search(next.message, bucket: next.bucket, next.origin)
                }
            }
            guard reply.failure == nil else { return shard.tell(.messageTrace(origin, .unreadable)) }
            for case .row(let stored?) in reply.results {
                guard let row = MessageRow(stored.value) else { continue }
                let key = stored.key
                let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
                let facts = row.facts(cid: cid, table: key.table, item: key.item)
                // As for one that is brought into memory.
                let isMissed = facts.fallbackAt > 0 && facts.fallbackAt <= shard.now
                let isOffline = facts.flags.contains(.offline) || isMissed
                return shard.tell(
                    .messageTrace(origin, .known(Self.pendingTrace(facts, steps: [], isOffline: isOffline))))
            }
            // It may have ended meanwhile.
            shard.readTrace(message, bucket: bucket) { shard, trace, ok in
                if let trace { return shard.addLateEvents(trace, origin) }
                shard.tell(.messageTrace(origin, ok ? .unknown : .unreadable))
            }
        }
    }

    /// How many may wait for the one that is under way.
    private static let waitingSearchCount = 64
    /// A month, the most that `longestTtlMilliseconds` allows, and a day.
    private static let longestWait: Int64 = 31 * 86_400_000

    /// Tells it once everything written so far is durable.
    private mutating func tell(_ effect: Effect) {
        pending.append(PendingEffect(ticket: lastTicket, kind: .told(effect)))
        releaseDue()
    }

    private static func pendingTrace(
        _ facts: MessageFacts, steps: [MessageTrace.Step], isOffline: Bool
    ) -> MessageTrace {
        MessageTrace(
            message: facts.message, task: facts.task, cid: facts.cid, app: facts.app, strategy: facts.strategy,
            isOffline: isOffline, sequence: facts.sequence, acceptedAt: facts.acceptedAt, expiresAt: facts.expiresAt,
            finalState: nil, finalReason: "",
            steps: [MessageTrace.Step(event: .accepted, time: facts.acceptedAt)] + steps)
    }

    private mutating func addLateEvents(_ trace: TraceRow, _ origin: Origin) {
        var steps = trace.steps
        var asked: [StoreRead] = []
        for event in LateEventRow.events {
            guard let key = Self.lateKey(event, trace.facts.message) else { continue }
            switch store.young(key) {
            case .found(let location, _):
                if let step = LateEventRow.read(store.value(at: location)) { steps.append(step) }
            case .deleted: break
            case .unknown: if !store.isCertainlyAbsent(key) { asked.append(.get(key)) }
            }
        }
        let known = steps
        let finish: (inout Shard, [MessageTrace.Step]) -> Void = { shard, late in
            let facts = trace.facts
            shard.tell(
                .messageTrace(
                    origin,
                    .known(
                        MessageTrace(
                            message: facts.message, task: facts.task, cid: facts.cid, app: facts.app,
                            strategy: facts.strategy, isOffline: trace.isOffline, sequence: facts.sequence,
                            acceptedAt: facts.acceptedAt, expiresAt: facts.expiresAt, finalState: trace.finalState,
                            finalReason: trace.reason, steps: (known + late).sorted { $0.time < $1.time }))))
        }
        guard !asked.isEmpty else {
            finish(&self, [])
            return
        }
        read(asked) { shard, reply in
            var late: [MessageTrace.Step] = []
            for case .row(let stored?) in reply.results {
                if let step = LateEventRow.read(stored.value) { late.append(step) }
            }
            finish(&shard, late)
        }
    }
}
