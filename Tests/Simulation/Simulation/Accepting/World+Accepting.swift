internal import Delivery
internal import Wire

// Publishers: messages of every kind, their results, and retries.
extension World {
    func publishSomething() {
        guard !identities.isEmpty else { return }
        switch chance.below(90) {
        case 0...2: return publishList()
        case 3: return stopSomeTask()
        case 4, 5: return revokeSomething()
        default: break
        }
        let identity = chance.one(of: identities)
        guard identity.isDurable else { return }
        let strategy = chance.one(of: [
            Strategy.liveElseVendor, .liveElseVendor, .liveElseVendor, .vendorOnly, .liveOnly, .vendorElseLive,
        ])
        var timeToLive = chance.one(of: [plan.maximumTimeToLive, plan.maximumTimeToLive / 2, 20_000, 3_000])
        if chance.perMille(150) { timeToLive = chance.perMille(500) ? 0 : -1 }
        let badge: VendorContent.Badge =
            switch chance.below(4) {
            case 0: .set(Int32(chance.between(-3, 50)))
            case 1: .add(Int32(chance.between(-4, 4)))
            default: .none
            }
        var request = 0
        if chance.perMille(350) {
            requestCount += 1
            request = requestCount
        }
        let record = Record(
            index: records.count, identity: identity, strategy: strategy, timeToLive: timeToLive,
            hasVendor: chance.perMille(850), badge: badge,
            collapse: plan.collapses && chance.perMille(300) ? UInt8(chance.between(1, 3)) : 0,
            isBulk: chance.perMille(300), request: request,
            digest: (chance.next() << 32) | UInt64(records.count),
            payloadCount: chance.one(of: [8, 20, 60, 60, 300, 900]))
        records.append(record)
        submit(record, conflicting: false)
        if request > 0 || chance.perMille(50) {
            queue.add(.retryPublish(record: record.index, attempt: 1), at: now + chance.time(0, 8_000))
        }
    }

    /// Repeats a call that got no answer, and some calls that got one.
    func retry(_ record: Record, attempt: Int) {
        guard record.request > 0, !isHealing else { return }
        let isAnswered = record.outcome != nil
        if isAnswered, !chance.perMille(300) { return }
        faults.note(isAnswered ? .publishRetriedAnswered : .publishRetriedUnanswered)
        if isAnswered, chance.perMille(100) {
            faults.note(.publishConflicting)
            let other = copy(of: record)
            submit(other, conflicting: true)
            return
        }
        let again = copy(of: record)
        submit(again, conflicting: false)
        if attempt < 3 {
            queue.add(.retryPublish(record: again.index, attempt: attempt + 1), at: now + chance.time(0, 8_000))
        }
    }

    private func copy(of record: Record) -> Record {
        let copy = Record(
            index: records.count, identity: record.identity, strategy: record.strategy, timeToLive: record.timeToLive,
            hasVendor: record.hasVendor, badge: record.badge, collapse: record.collapse, isBulk: record.isBulk,
            request: record.request, digest: (chance.next() << 32) | UInt64(records.count),
            payloadCount: record.payloadCount)
        copy.mayBeRevoked = record.mayBeRevoked
        records.append(copy)
        return copy
    }

    func submit(_ record: Record, conflicting: Bool) {
        guard isUp else { return }
        eventCount += 1
        if record.askedAt == 0 { record.askedAt = now }
        log.note(now, "publish", Int64(record.index), Int64(record.identity.index), Int64(record.strategy.rawValue))
        let identity = record.identity
        let loop = loop(of: identity.bucket)
        let body = record.badge == .none ? #"{"aps":{"alert":"x"}}"# : #"{"aps":{"alert":"x","badge":}}"#
        let payload =
            record.revokes.map { task(of: $0).bytes } ?? record.dealt?.payload
            ?? Self.payload(Int(record.digest & 0xFFFF_FFFF), record.payloadCount)
        let key: [UInt8] = record.collapse == 0 ? [] : [96 + record.collapse]
        payload.withUnsafeBytes { payload in
            key.withUnsafeBytes { key in
                Array(body.utf8).withUnsafeBytes { body in
                    let content = VendorContent(
                        channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: record.badge,
                        body: body,
                        messageIDOffset: -1, badgeOffset: record.badge == .none ? -1 : 28,
                        collapseID: UnsafeRawBufferPointer(start: nil, count: 0))
                    let isDeduplicated = record.request > 0 && !record.isOnce
                    var command = PublishCommand(
                        origin: Origin(route: 1, request: UInt64(record.index)), app: plan.apps[identity.app].key,
                        bucket: identity.bucket, cid: identity.cid, task: task(of: record),
                        messageDigest: record.digest, strategy: record.strategy, timeToLive: record.timeToLive,
                        requestKey: isDeduplicated ? requestKey(of: record) : (0, 0),
                        requestDigest: conflicting ? 2 : 1, isBulk: record.isBulk, payload: payload,
                        collapseKey: key, vendor: record.hasVendor ? content : nil)
                    command.vendorCarriesAll = record.hasVendor && record.carriesAll
                    if record.carriesAll { command.carryingPlatforms = PlatformSet(rawValue: .max) }
                    if record.hasVendor {
                        for channel in plan.channels {
                            var further = content
                            further.channel = channel
                            command.contents.add(further)
                        }
                        if plan.hasFollowUps, let delay = record.followUpDelay {
                            command.contents.add(
                                VendorContent(
                                    channel: .sms, tokenKind: .alert, activity: UInt64(delay), pushType: .alert,
                                    priority: 10, badge: .none, body: body, messageIDOffset: -1, badgeOffset: -1,
                                    collapseID: UnsafeRawBufferPointer(start: nil, count: 0)))
                        }
                    }
                    command.taskCreatedAt =
                        record.task?.createdAt ?? record.dealt?.launched?.broadcast?.launchedAt ?? 0
                    command.firstAckWins = record.task?.firstAckWins ?? false
                    if let old = record.revokes {
                        (command.revokes, command.revokedDigest) = (task(of: old), old.digest)
                    }
                    loop.shard.publish(command, now: gatewayNow)
                }
            }
        }
        loop.perform()
    }

    /// Returns the task id of a request.
    ///
    /// A single push's id names the bucket of its device. Every other id is derived from the request, as in the push API, so all
    /// attempts share it.
    func task(of record: Record) -> TaskID {
        if let task = record.broadcast?.task.id ?? record.dealt?.task.id ?? record.task?.id { return task }
        guard isFoundByTask(record) else {
            return TaskID(
                kind: .single, month: 0, day: 0, home: record.identity.bucket, random: (0, UInt64(record.index)))
        }
        return TaskID(
            kind: .single, month: 0, day: 0, home: record.identity.bucket, request: requestKey(of: record))
    }

    /// Whether a task finds its message; a single push's task finds it only if the task id is derived from the request.
    func isFoundByTask(_ record: Record) -> Bool {
        record.task != nil || record.broadcast != nil || record.dealt != nil
            || record.request % 2 == 1 && !record.isOnce
    }

    private func requestKey(of record: Record) -> (UInt64, UInt64) { (1 << 40 | 77, UInt64(record.request)) }

    /// Marks all attempts at a push that share its task, because a revoke may end any of them.
    func mayBeRevoked(_ record: Record) {
        record.mayBeRevoked = true
        guard record.request % 2 == 1, !record.isOnce else { return }
        for other in records where other.request == record.request { other.mayBeRevoked = true }
    }

    /// Returns the record's number, followed by bytes derived from it.
    static func payload(_ index: Int, _ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: index), count: count)
        for place in 0..<8 { bytes[place] = UInt8(truncatingIfNeeded: index >> (8 * place)) }
        return bytes
    }

    func answered(_ index: Int, _ outcome: PublishOutcome) {
        eventCount += 1
        log.note(now, "answer", Int64(index), Int64(outcome.code.rawValue), outcome.isRepeat ? 1 : 0)
        let record = records[index]
        if record.outcome != nil { fail(.request, "publish \(index) was answered twice") }
        record.outcome = outcome
        oracle.answered(record, outcome)
        if record.dealt != nil { dealAnswered(record, outcome) }
    }
}
