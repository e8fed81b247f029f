// Queries of operators and the admin API. Each answer waits until everything it depends on is durable, so that no caller sees an
// end that a crash reverts.

internal import Structures
package import Wire

extension Shard {
    /// Answers with a device's status, as `.deviceStatus`.
    ///
    /// With `readsAttributes` the status includes the device's attributes, which may need a read.
    package mutating func status(
        of cid: DeviceID, bucket: Bucket, app: AppKey, readsAttributes: Bool = false, origin: Origin, now: GatewayTime
    ) {
        begin(now)
        whenReady(deviceSlot(cid, bucket: bucket)) { shard, slot, readiness in
            guard readiness == .ready else {
                shard.tell(.deviceStatus(origin, cid, readiness.mayBeRepeated ? .unreadable : .unknown))
                return
            }
            let device = shard.devices.at(slot)
            guard shard.apps[Int(device.value.appIndex)].key == app else {
                shard.tell(.deviceStatus(origin, cid, .unknown))
                return
            }
            // The requesting gateway knows the app, but this one does not yet.
            guard let settings = shard.apps[Int(device.value.appIndex)].knowledge.settings else {
                shard.tell(.deviceStatus(origin, cid, .unreadable))
                return
            }
            let profile = shard.profile(slot)
            let tokens = profile.tokens.map {
                DeviceStatus.Token(
                    channel: $0.channel, kind: $0.kind, environment: $0.environment, topic: $0.topic,
                    token: String($0.token.prefix(8)), activity: $0.activity, isQuarantined: $0.isQuarantined)
            }
            var status = DeviceStatus(
                app: app, isConnected: device.value.isConnected, isReachable: device.value.isReachable,
                isSuspect: device.value.flags.contains(.suspect), applicationState: device.value.state,
                keepsRunning: device.value.flags.contains(.keepsRunning), generation: device.value.generation,
                heartbeatSeconds: Int64(device.value.heartbeatSeconds),
                lastSeenAt: device.value.lastHeardAt, lastLoginAt: device.value.lastLoginAt,
                registeredAt: device.value.registeredAt,
                queuedMessageCount: Int(device.value.messageCount + device.value.vendorCount),
                queuedByteCount: Int(device.value.messageBytes + device.value.vendorBytes),
                inFlightCount: Int(device.value.inFlightCount), nextSequence: device.value.nextSequence,
                badge: device.value.badge, pushModeOff: device.value.isPushModeOff,
                isBlacklisted: device.value.isBlacklisted, isInactive: shard.isInactive(slot),
                tokens: tokens, vendorFailure: profile.vendorFailure,
                bounds: .init(messageCount: settings.queuedMessageLimit, byteCount: settings.queuedByteLimit),
                names: .init(aliases: profile.names.aliases.map(\.name.text), tags: profile.names.tags.map(\.text)))
            status.hasLostToken = shard.hasLostToken(slot)
            status.appHasTopic = shard.apps[Int(device.value.appIndex)].hasTopic
            guard readsAttributes else { return shard.tell(.deviceStatus(origin, cid, .known(status))) }
            shard.readAttributes(slot) { shard, found in
                guard case .found(let attributes) = found else {
                    return shard.tell(.deviceStatus(origin, cid, .unreadable))
                }
                status.attributes = attributes ?? shard.profile(slot).attributes?.known
                shard.tell(.deviceStatus(origin, cid, .known(status)))
            }
        }
    }

    /// Answers with a message's steps, as `.messageTrace`.
    ///
    /// With `cid` the shard searches only that device's messages in memory; otherwise all messages in memory, some per turn. It
    /// then reads the job's row and the trace. If neither exists and `mayBePending`, it searches the message rows on disk.
    package mutating func trace(
        of message: MessageID, cid: DeviceID? = nil, mayBePending: Bool = true, origin: Origin, now: GatewayTime
    ) {
        begin(now)
        if let cid {
            if let device = knownDevice(cid), let slot = listedMessage(message, of: device) {
                return tellPending(slot, origin)
            }
            return traceStored(message, mayBePending: mayBePending, origin)
        }
        look(MemorySearch(message: message, origin: origin))
    }

    mutating func searchMemory() {
        if let search = searches.popMemorySearch() { look(search) }
    }

    private mutating func look(_ search: MemorySearch) {
        let slots = messages.slots(from: search.next, limit: searches.sliceCount)
        for slot in slots
        where messages.isOccupied(slot) && messages.at(slot).value.facts.message == search.message {
            return tellPending(slot, search.origin)
        }
        // A message that enters memory at a slot already searched is found on disk, or was accepted after the query.
        guard !messages.slots(from: slots.end, limit: 1).isEmpty else {
            return traceStored(search.message, mayBePending: true, search.origin)
        }
        var rest = search
        rest.next = slots.end
        if !searches.wait(rest) { tell(.messageTrace(search.origin, .unreadable)) }
    }

    private mutating func tellPending(_ slot: MessageSlot, _ origin: Origin) {
        addLateEvents(pendingTrace(slot), origin)
    }

    func pendingTrace(_ slot: MessageSlot) -> MessageTrace {
        let entry = messages.at(slot)
        let row = entry.value.job == .none ? nil : jobs.at(entry.value.job).value.row
        var steps = row?.steps ?? []
        if entry.value.sentAt > 0, !steps.contains(where: { $0.event == .sent }) {
            steps.insert(MessageTrace.Step(event: .sent, time: entry.value.sentAt), at: 0)
        }
        return Self.pendingTrace(
            entry.value.facts, row?.channel, steps: steps, attempts: row?.attempts ?? 0,
            isOffline: entry.value.isOffline)
    }

    static func pendingTrace(_ facts: MessageFacts, _ job: JobRow?, at now: GatewayTime) -> MessageTrace {
        // `adoptMessage` has the same rule.
        let isMissed = facts.fallbackAt > 0 && facts.fallbackAt <= now
        let row = job ?? (facts.hasDueJob(at: now) ? JobRow(impliedBy: facts) : nil)
        return pendingTrace(
            facts, row?.channel, steps: row?.steps ?? [], attempts: row?.attempts ?? 0,
            isOffline: facts.flags.contains(.offline) || isMissed)
    }

    private mutating func traceStored(_ message: MessageID, mayBePending: Bool, _ origin: Origin) {
        findJob(message) { shard, found in
            switch found {
            case .found(let job):
                let row = shard.jobs.at(job).value.row
                shard.dropJobIfDone(job)
                return shard.addLateEvents(
                    Self.pendingTrace(
                        row.facts, row.channel, steps: row.steps, attempts: row.attempts, isOffline: true), origin)
            case .unreadable: return shard.tell(.messageTrace(origin, .unreadable))
            case .absent: break
            }
            guard let bucket = message.bucket else { return shard.tell(.messageTrace(origin, .unknown)) }
            shard.readTrace(message, bucket: bucket) { shard, trace in
                switch trace {
                case .found(let trace): shard.addLateEvents(Self.endedTrace(trace), origin)
                case .unreadable: shard.tell(.messageTrace(origin, .unreadable))
                case .absent where mayBePending: shard.searchPending(message, bucket: bucket, origin)
                case .absent: shard.tell(.messageTrace(origin, .unknown))
                }
            }
        }
    }

    /// Searches for a message that is not in memory and has neither job nor trace row.
    ///
    /// An example is a message sent before a restart whose device has not reconnected and whose job was not leased. No row leads
    /// from the id to the device, so a reader scans all message rows of the bucket on disk. A shard runs one such search at a
    /// time.
    private mutating func searchPending(_ message: MessageID, bucket: Bucket, _ origin: Origin) {
        // The id contains the time of acceptance. An id older than the longest TTL, or in the future, is unknown.
        let age = now - message.acceptedAtMilliseconds
        guard (-limits.clockTolerance...Self.longestWait).contains(age) else {
            return tell(.messageTrace(origin, .unknown))
        }
        let search = MessageSearch(message: message, bucket: bucket, origin: origin)
        switch searches.admit(search) {
        case .now: self.search(search)
        case .later: break
        case .tooManyWait: tell(.messageTrace(origin, .unreadable))
        }
    }

    private mutating func search(_ search: MessageSearch) {
        let (message, bucket, origin) = (search.message, search.bucket, search.origin)
        let tables: [StoreKey.Table] = [.message, .vendorMessage]
        read(tables.map { .search(bucket, table: $0, message) }) { shard, reply in
            defer { if let next = shard.searches.searched() { shard.search(next) } }
            guard reply.failure == nil else { return shard.tell(.messageTrace(origin, .unreadable)) }
            for case .row(let stored?) in reply.results {
                guard let row = MessageRow(stored.bytes) else { continue }
                let key = stored.key
                let cid = DeviceID(high: key.ownerHigh, low: key.ownerLow)
                let facts = row.facts(cid: cid, table: key.table, item: key.item)
                return shard.addLateEvents(Self.pendingTrace(facts, nil, at: shard.now), origin)
            }
            // The message may have ended during the search.
            shard.readTrace(message, bucket: bucket) { shard, trace in
                switch trace {
                case .found(let trace): shard.addLateEvents(Self.endedTrace(trace), origin)
                case .absent: shard.tell(.messageTrace(origin, .unknown))
                case .unreadable: shard.tell(.messageTrace(origin, .unreadable))
                }
            }
        }
    }

    /// The longest pending time in ms: the maximum of `longestTtlMilliseconds`, one month, plus a day.
    private static let longestWait: Int64 = 31 * 86_400_000

    /// Answers with the steps of a task's message for one device, as `.messageTrace`.
    package mutating func trace(
        of task: TaskID, _ app: AppKey, cid: DeviceID, bucket: Bucket, digest: UInt64, origin: Origin, now: GatewayTime
    ) {
        begin(now)
        guard task.hasLedger else {
            return findSingle(task, in: bucket) { shard, found in
                switch found {
                case .unreadable: shard.tell(.messageTrace(origin, .unreadable))
                case .found(let row) where row.app == app && row.cid == cid:
                    shard.trace(of: row.message, mayBePending: true, origin: origin, now: shard.now)
                case .absent, .found: shard.tell(.messageTrace(origin, .unknownTask))
                }
            }
        }
        lookUp(StoreKey(bucket, .taskMessage, task, item: digest)) { shard, found in
            let stored: FoundRow
            switch found {
            case .unreadable: return shard.tell(.messageTrace(origin, .unreadable))
            case .absent: return shard.tell(.messageTrace(origin, .unknownTask))
            case .found(let row): stored = row
            }
            guard let row = LedgerRow(stored.bytes), row.app == app, row.cid == cid else {
                return shard.tell(.messageTrace(origin, .unknownTask))
            }
            let message = MessageID(bucket: bucket, acceptedAt: row.acceptedAt, digest: digest)
            // The ledger row of an ended message outlives its trace. A broadcast's message has no row in the device's queue.
            let mayBePending = row.state == nil && row.table != .broadcast
            shard.trace(of: message, mayBePending: mayBePending, origin: origin, now: shard.now)
        }
    }

    private mutating func tell(_ effect: Effect) {
        whenDurable(.told(effect))
    }

    private static func pendingTrace(
        _ facts: MessageFacts, _ channel: VendorChannel?, steps: [MessageTrace.Step], attempts: UInt16, isOffline: Bool
    ) -> MessageTrace {
        var trace = MessageTrace(
            message: facts.message, task: facts.task, cid: facts.cid, app: facts.app, strategy: facts.strategy,
            isOffline: isOffline, sequence: facts.sequence, acceptedAt: facts.acceptedAt, expiresAt: facts.expiresAt,
            finalState: nil, finalReason: "",
            steps: [MessageTrace.Step(event: .accepted, time: facts.acceptedAt)] + steps)
        (trace.fallback, trace.fallbackReason) = facts.fallback
        (trace.channel, trace.attempts) = (channel ?? facts.channels.first, attempts)
        trace.hasCallback = facts.hasCallback
        return trace
    }

    static func endedTrace(_ row: TraceRow) -> MessageTrace {
        var trace = MessageTrace(
            message: row.facts.message, task: row.facts.task, cid: row.facts.cid, app: row.facts.app,
            strategy: row.facts.strategy, isOffline: row.isOffline, sequence: row.facts.sequence,
            acceptedAt: row.facts.acceptedAt, expiresAt: row.facts.expiresAt, finalState: row.finalState,
            finalReason: row.reason, steps: row.steps)
        (trace.fallback, trace.fallbackReason) = row.fallback
        (trace.channel, trace.attempts) = (row.channel, row.attempts)
        trace.hasCallback = row.facts.hasCallback
        return trace
    }

    private mutating func addLateEvents(_ trace: MessageTrace, _ origin: Origin) {
        lateEvents(of: trace.message) { shard, late, _ in
            var told = trace
            // Unreadable events are omitted.
            if !late.isEmpty { told.steps = (trace.steps + late).sorted { $0.time < $1.time } }
            shard.addCallback(told, origin)
        }
    }

    /// Answers with the trace and the message's custom callback.
    private mutating func addCallback(_ trace: MessageTrace, _ origin: Origin) {
        guard trace.hasCallback, let bucket = trace.message.bucket else {
            return tell(.messageTrace(origin, .known(trace)))
        }
        let key = CallbackRow.key(trace.task, in: bucket)
        lookUp(key) { shard, found in
            var told = trace
            switch found {
            case .unreadable: return shard.tell(.messageTrace(origin, .unreadable))
            case .absent: break
            case .found(let row):
                if let text = CallbackRow.read(row.bytes) {
                    told.customCallback = String(decoding: text, as: UTF8.self)
                } else {
                    shard.damaged(key)
                }
            }
            shard.tell(.messageTrace(origin, .known(told)))
        }
    }

    /// Reads the late events of a message, which have their own rows beside the trace.
    mutating func lateEvents(
        of message: MessageID, completion: @escaping (inout Shard, [MessageTrace.Step], Reading) -> Void
    ) {
        var steps: [MessageTrace.Step] = []
        var asked: [StoreRead] = []
        for event in LateEventRow.events {
            guard let key = Self.lateKey(event, message) else { continue }
            switch store.young(key) {
            case .found(let location, _): steps += LateEventRow.read(store.bytes(at: location))
            case .deleted: break
            case .unknown: if !store.isCertainlyAbsent(key) { asked.append(.get(key)) }
            }
        }
        guard !asked.isEmpty else { return completion(&self, steps, .whole) }
        let known = steps
        read(asked) { shard, reply in
            var late = known
            for case .row(let stored?) in reply.results { late += LateEventRow.read(stored.bytes) }
            completion(&shard, late, reply.failure == nil ? .whole : .unreadable)
        }
    }
}
