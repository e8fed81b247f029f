internal import Delivery
internal import Wire

// Broadcasts to all devices and to tags, their stops, and the gateway's coordinator for them. Uses its own generator.
extension World {
    private static let routes = (
        create: UInt64(21), stop: UInt64(22), scan: UInt64(23), totals: UInt64(24), state: UInt64(25),
        callersSweep: UInt64(26)
    )

    func broadcastSomething() {
        guard isUp, !identities.isEmpty else { return }
        eventCount += 1
        if broadcasting.chance.perMille(150) { return stopSomeBroadcast() }
        let app = broadcasting.chance.below(2)
        let key = plan.apps[app].key
        let strategy = broadcasting.chance.one(of: [
            Strategy.liveElseVendor, .liveElseVendor, .liveElseVendor, .liveOnly, .vendorOnly, .vendorElseLive,
        ])
        let isDealt = strategy == .vendorOnly || strategy == .vendorElseLive
        let timeToLive = broadcasting.chance.one(of: [
            plan.maximumTimeToLive, plan.maximumTimeToLive, 30_000, 15_000, 0, -1,
        ])
        var tag: (number: Int, isWanted: Bool)?
        var audience = TagExpression()
        if hasServer, broadcasting.chance.perMille(500) {
            let chosen = (number: broadcasting.chance.below(3), isWanted: broadcasting.chance.perMille(600))
            _ = audience.add(chosen.isWanted ? .all : .none, [self.tag(chosen.number)])
            tag = chosen
        }
        // A dealt-out message shares its device's queue with the messages of single pushes.
        let keyNumber = isDealt ? UInt8(broadcasting.chance.between(1, 3)) : 9
        let collapse: UInt8 = plan.collapses && broadcasting.chance.perMille(400) ? keyNumber : 0
        let index = broadcasting.all.count
        let payload = World.payload(index | 1 << 24, 60)
        let body = Array(#"{"aps":{"alert":"x"}}"#.utf8)
        let hasVendor = broadcasting.chance.perMille(800)
        var lengths = MessageContent.Lengths()
        (lengths.payload, lengths.collapseKey) = (payload.count, collapse == 0 ? 0 : 1)
        lengths.vendorBody = hasVendor ? body.count : 0
        let shape = MessageContent.Vendor(
            channel: .apns, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none, messageIDOffset: -1,
            badgeOffset: -1)
        var content = MessageContent(
            strategy: strategy, timeToLive: timeToLive, vendor: hasVendor ? shape : nil, lengths: lengths,
            arena: payload + (collapse == 0 ? [] : [96 + collapse]) + (hasVendor ? body : []))
        for platform in VendorPlatform.allCases where hasVendor && platform != .apple {
            guard let channel = plan.channels.first(where: { $0.platform == platform }) else { continue }
            var further = shape
            further.channel = channel
            content.add(further, body: body, collapseID: [])
        }
        content.vendorCarriesAll = hasVendor && index % 3 != 2
        if index % 3 != 2 { content.carryingPlatforms = PlatformSet(rawValue: .max) }
        let id = TaskID(kind: .app, month: 1, day: 1, home: key.home, random: (1, UInt64(index)))
        var record = TaskRecord(
            id: id, app: key, state: .open, createdAt: gatewayNow, validUntil: gatewayNow, content: content)
        record.broadcast = BroadcastPlan(
            audience: audience, speed: broadcasting.chance.perMille(200) ? Int64(broadcasting.chance.between(1, 20)) : 0
        )
        let broadcast = SimulatedBroadcast(index: index, app: app, task: record, tag: tag, collapse: collapse)
        broadcast.madeAt = now
        broadcasting.add(broadcast)
        faults.note(strategy == .vendorOnly ? .dealtVendorOnly : isDealt ? .dealtVendorFirst : .broadcastMade)
        submit(broadcast)
        queue.add(.retryBroadcast(index, attempt: 1), at: now + broadcasting.chance.time(0, 8_000))
    }

    /// Repeats a call that got no answer, and some that got one.
    ///
    /// Every attempt has the same request.
    func retryBroadcast(_ index: Int, attempt: Int) {
        let broadcast = broadcasting.all[index]
        // Without the request's row the gateway would create another broadcast.
        guard !isHealing, !oracle.requests.areForgotten, !broadcast.isCreated || broadcasting.chance.perMille(300)
        else {
            return
        }
        if isUp { submit(broadcast) }
        if attempt < 3 {
            queue.add(.retryBroadcast(index, attempt: attempt + 1), at: now + broadcasting.chance.time(0, 8_000))
        }
    }

    private func submit(_ broadcast: SimulatedBroadcast) {
        log.note(now, "broadcast", Int64(broadcast.index), Int64(broadcast.app))
        broadcasting.asked()
        let home = broadcast.task.id.home
        let key = CallKey(high: UInt64(home.index) << 52 | UInt64(broadcast.index + 1), low: 0xB0AD)
        ask(loop(of: home), CreateTask(broadcast.task, key: key, digest: 1), Self.routes.create, broadcast.index)
    }

    private func stopSomeBroadcast() {
        let open = broadcasting.all.suffix(6).filter { $0.isCreated && !$0.isStopped && !$0.isOver }
        guard let oldest = open.first else { return }
        // The newest broadcast may have replaced an older one, which must not be sent after the stop.
        let newest = broadcasting.chance.perMille(700) ? open.last { $0.collapse != 0 } : nil
        stopBroadcast((newest ?? oldest).index)
    }

    func stopBroadcast(_ index: Int) {
        let broadcast = broadcasting.all[index]
        guard broadcast.isCreated, !broadcast.isStopped, !broadcast.isOver else { return }
        faults.note(.broadcastStopped)
        broadcast.isStopped = true
        ask(
            loop(of: broadcast.task.id.home), ChangeTask(broadcast.task.id, broadcast.task.app, .stop),
            Self.routes.stop, broadcast.index)
    }

    private func ask(_ loop: Loop, _ question: some ShardQuestion, _ route: UInt64, _ index: Int) {
        let now = gatewayNow
        loop.call { $0.ask(question, origin: Origin(route: route, request: UInt64(index)), now: now) }
    }

    // MARK: Effects

    /// Called while effects are performed: every loop is notified after a short delay, in order.
    func launched(_ record: TaskRecord) {
        guard let broadcast = broadcast(record.id) else { return fail(.content, "a broadcast that nobody made") }
        if let before = broadcast.launched, before.broadcast?.number != record.broadcast?.number {
            fail(.sequence, "broadcast \(broadcast.index) has two numbers")
        }
        for other in broadcasting.all where other.app == broadcast.app && other !== broadcast {
            if let number = other.launched?.broadcast?.number, number >= record.broadcast?.number ?? 0,
                broadcast.launched == nil
            {
                fail(
                    .sequence,
                    "broadcast \(broadcast.index) has number \(record.broadcast?.number ?? 0) after \(number)")
            }
        }
        if broadcast.launched == nil { (broadcast.launched, broadcast.launchedAt) = (record, now) }
        for loop in loops {
            let time = broadcasting.launchTime(loop: loop.index, now: now)
            queue.add(.launch(loop: loop.index, life: life, broadcast: broadcast.index), at: time)
        }
    }

    /// Handles a broadcast that a restart finds in the log; the previous run may not have announced it to any loop.
    func found(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer) {
        guard key.item > 0, let record = TaskRow.read(bytes), let broadcast = broadcast(record.id) else { return }
        if broadcast.launched == nil {
            (broadcast.launched, broadcast.launchedAt, broadcast.wasFound) = (record, now, true)
        }
    }

    func launch(_ index: Int, on loop: Loop) {
        guard let record = broadcasting.all[index].launched else { return }
        loop.shard.launch(record, loopCount: loops.count, now: gatewayNow)
        loop.perform()
    }

    func broadcastDue(_ record: TaskRecord) {
        guard let broadcast = broadcast(record.id) else { return fail(.content, "a task fell due that nobody made") }
        // A stop replaces a scan in progress. Otherwise one scan runs at a time.
        if let scan = broadcast.scan, scan.life == life, scan.record.state == record.state { return }
        let scan = SimulatedScan(record, life: life)
        broadcast.scan = scan
        broadcast.scanStamp += 1
        scan.isSweeping = record.state == .stopping
        if record.state == .ending, broadcast.isDealt { return finish(broadcast, scan) }
        queue.add(.broadcastStep(broadcast.scanRequest, life: life), at: now + 1)
    }

    /// Runs one step of a scan; `request` names the scan, so that calls for an earlier one are ignored.
    func broadcastStep(_ request: Int) {
        let index = request & 0xFFFF_FFFF
        let broadcast = broadcasting.all[index]
        guard let scan = broadcast.scan, scan.life == life, scan.missing == 0, request == broadcast.scanRequest else {
            return
        }
        eventCount += 1
        scan.hasFailed = false
        (scan.askedAt, scan.found) = (now, [])
        let (task, app) = (broadcast.task.id, broadcast.task.app)
        if scan.isSweeping {
            scan.missing = loops.count
            for loop in loops {
                ask(loop, SweepTask(task, app, share(of: loop)), Self.routes.scan, broadcast.scanRequest)
            }
            return
        }
        let end = min(World.bucketCount, scan.position + broadcasting.chance.between(1, 10))
        let purpose: ScanBroadcast.Purpose =
            switch scan.record.state {
            case .open: broadcast.isDealt ? .deal : .enumerate
            case .ending: .close(.expired)
            default: .close(.revoked)
            }
        let range = min(scan.position, World.bucketCount)..<end
        // The state is set first, because answers may arrive synchronously.
        broadcasting.stepBegan(index, at: range.lowerBound)
        scan.position = end
        scan.missing = loops.count
        for loop in loops {
            ask(
                loop,
                ScanBroadcast(record: scan.record, purpose: purpose, buckets: range, share: share(of: loop)),
                Self.routes.scan, broadcast.scanRequest)
        }
    }

    // MARK: Answers

    func broadcastAnswered(_ origin: Origin, _ answer: Answer?) {
        let broadcast = broadcasting.all[Int(origin.request & 0xFFFF_FFFF)]
        switch origin.route {
        case Self.routes.create: created(broadcast, answer as? CreateTask.Answer)
        case Self.routes.stop:
            guard !broadcast.isStopTold else { return }
            guard let answer else { return broadcast.isStopped = false }
            if case .changed(let record)? = answer as? TaskTransition, record.state == .stopping {
                sweepAsCaller(broadcast)
            }
        case Self.routes.callersSweep: callerSwept(broadcast, answer)
        case Self.routes.totals:
            guard let part = (answer as? Found<TaskTotals>)?.value else { return answeredOtherwise(broadcast, answer) }
            broadcast.totals.add(part)
        case Self.routes.state:
            guard let record = (answer as? Found<TaskRecord>)?.value else {
                return answeredOtherwise(broadcast, answer)
            }
            if record.state == .ended || record.state == .stopped { broadcast.isOver = true }
        case Self.routes.scan: if Int(origin.request) == broadcast.scanRequest { stepped(broadcast, answer) }
        default: answeredOtherwise(broadcast, answer)
        }
    }

    private func answeredOtherwise(_ broadcast: SimulatedBroadcast, _ answer: Answer?) {
        fail(.content, "broadcast \(broadcast.index) was answered with \(String(describing: answer))")
    }

    private func created(_ broadcast: SimulatedBroadcast, _ answer: CreateTask.Answer?) {
        broadcasting.answered()
        switch answer {
        case .created(let id, _):
            if id != broadcast.task.id { fail(.request, "broadcast \(broadcast.index) was made under another id") }
            if broadcast.launched == nil {
                fail(.beforeSync, "broadcast \(broadcast.index) was answered before it was out")
            }
            broadcast.isCreated = true
        case nil, .full: break
        case .conflict, .tooLarge, .busy: answeredOtherwise(broadcast, answer)
        }
    }

    /// Ends pending messages on every loop as the gateway that received the stop does; if it dies, the home shard continues.
    private func sweepAsCaller(_ broadcast: SimulatedBroadcast) {
        (broadcast.callersSweepMissing, broadcast.hasCallersSweepFailed, broadcast.callersRun) = (
            loops.count, false, life
        )
        for loop in loops {
            ask(
                loop, SweepTask(broadcast.task.id, broadcast.task.app, share(of: loop)), Self.routes.callersSweep,
                broadcast.index)
        }
    }

    private func callerSwept(_ broadcast: SimulatedBroadcast, _ answer: Answer?) {
        guard broadcast.callersRun == life, broadcast.callersSweepMissing > 0 else { return }
        if answer == nil { broadcast.hasCallersSweepFailed = true }
        broadcast.callersSweepMissing -= 1
        guard broadcast.callersSweepMissing == 0, !broadcast.hasCallersSweepFailed else { return }
        broadcast.isStopTold = true
        ask(
            loop(of: broadcast.task.id.home), ChangeTask(broadcast.task.id, broadcast.task.app, .swept),
            Self.routes.stop, broadcast.index)
    }

    private func stepped(_ broadcast: SimulatedBroadcast, _ answer: Answer?) {
        guard let scan = broadcast.scan, scan.life == life else { return }
        if case .refused? = answer as? TaskTransition {
            // It was stopped, or has ended, while it was scanned.
            broadcast.scan = nil
            return
        }
        if let step = answer as? ScanBroadcast.Step {
            scan.found += step.devices
        } else {
            let isDone = answer is Int || (answer as? TaskTransition)?.isChanged ?? false
            if !isDone { scan.hasFailed = true }
        }
        scan.missing -= 1
        guard scan.missing <= 0 else { return }
        scan.missing = 0
        let next = now + 1 + broadcasting.chance.time(0, 200)
        if scan.hasFailed {
            if !scan.isSweeping, !scan.isAdvancing { scan.position = broadcasting.stepStart(broadcast.index) }
            scan.isAdvancing = false
            let again: Event =
                scan.isFinishing
                ? .broadcastAdvance(broadcast.scanRequest, life: life)
                : .broadcastStep(broadcast.scanRequest, life: life)
            queue.add(again, at: next + 1_000)
        } else if scan.isSweeping {
            scan.isSweeping = false
            broadcast.isSwept = true
            oracle.swept(broadcast)
            if broadcast.isDealt { return finish(broadcast, scan) }
            queue.add(.broadcastStep(broadcast.scanRequest, life: life), at: next)
        } else if scan.isFinishing {
            broadcast.scan = nil
            broadcast.isOver = true
            for loop in loops { loop.call { $0.forgetBroadcast(broadcast.task.id, broadcast.task.app) } }
        } else if scan.isAdvancing {
            scan.isAdvancing = false
            if scan.position >= World.bucketCount {
                finish(broadcast, scan)
            } else {
                queue.add(.broadcastStep(broadcast.scanRequest, life: life), at: next + scan.pause)
                scan.pause = 0
            }
        } else if !scan.found.isEmpty {
            deal(broadcast, scan)
        } else {
            dealtTo(broadcast, scan)
            queue.add(.broadcastAdvance(broadcast.scanRequest, life: life), at: next)
        }
    }

    private func finish(_ broadcast: SimulatedBroadcast, _ scan: SimulatedScan) {
        guard scan.record.state != .open else {
            broadcast.scan = nil
            return
        }
        scan.isFinishing = true
        queue.add(.broadcastAdvance(broadcast.scanRequest, life: life), at: now + 1)
    }

    /// Writes the scan's position, or that the scan is complete.
    func broadcastAdvance(_ request: Int) {
        let broadcast = broadcasting.all[request & 0xFFFF_FFFF]
        guard let scan = broadcast.scan, scan.life == life, scan.missing == 0, request == broadcast.scanRequest else {
            return
        }
        let (task, app) = (broadcast.task.id, broadcast.task.app)
        scan.missing = 1
        scan.hasFailed = false
        if scan.isFinishing {
            ask(
                loop(of: task.home), ChangeTask(task, app, scan.record.state == .ending ? .ended : .stopped),
                Self.routes.scan, broadcast.scanRequest)
        } else {
            scan.isAdvancing = true
            let place = scan.position >= World.bucketCount ? Bucket.count : scan.position
            ask(
                loop(of: task.home), AdvanceBroadcast(task, app, position: place, during: scan.record.state),
                Self.routes.scan, broadcast.scanRequest)
        }
    }

    // MARK: Records

    func broadcast(_ task: TaskID) -> SimulatedBroadcast? {
        let index = Int(task.low & 0xFFFF_FFFF)
        return task.kind == .app && index < broadcasting.all.count && broadcasting.all[index].task.id == task
            ? broadcasting.all[index] : nil
    }

    /// Returns the digest in the message id of a broadcast's message for one device, and records the message.
    func broadcastDigest(of task: TaskID, for cid: DeviceID) -> UInt64 {
        guard let broadcast = broadcast(task), let identity = identity(cid) else { return task.low ^ cid.low }
        if let record = broadcast.records[cid] { return record.digest }
        let content = broadcast.task.content
        let record = Record(
            index: records.count, identity: identity, strategy: content.strategy, timeToLive: content.timeToLive,
            hasVendor: !content.vendors.isEmpty, badge: .none, collapse: broadcast.collapse, isBulk: true, request: 0,
            digest: (broadcasting.chance.next() << 32) | UInt64(records.count), payloadCount: 60)
        record.broadcast = broadcast
        records.append(record)
        broadcast.records[cid] = record
        return record.digest
    }

    /// The last write may have been durable when the process died, and its answer lost; the row decides.
    func askBroadcastStates() {
        for broadcast in broadcasting.all where broadcast.launched != nil && !broadcast.isOver {
            ask(
                loop(of: broadcast.task.id.home), LoadTask(broadcast.task.id, broadcast.task.app), Self.routes.state,
                broadcast.index)
        }
        pass(milliseconds: 30_000)
    }

    func askBroadcastTotals() {
        for broadcast in broadcasting.all {
            for loop in loops {
                ask(
                    loop, TaskTotalsQuery(broadcast.task.id, broadcast.task.app, share(of: loop)), Self.routes.totals,
                    broadcast.index)
            }
        }
        pass(milliseconds: 30_000)
    }
}
