internal import Delivery
internal import Directory
internal import Wire

/// A step of the directory that is queued for a shard or was sent to it.
struct SimulatedStep {
    enum Purpose {
        /// Part of an operation on aliases.
        case operation(Int, request: UInt64)
        case badge(BadgeChange)
        case blacklist(Bool)
        case tag
        case count(expected: Int)
    }
    var app: Int
    var bucket: Bucket
    var step: DirectoryStep
    var purpose: Purpose
    var identity: Identity?
    /// The ticket of the row that shows the step's effect.
    var seenAt: Ticket?
    var reply: DirectoryReply?
}

/// The directory calls of the app's server.
struct NamesModel {
    /// The generator of this part only.
    fileprivate var chance: Chance
    fileprivate var operations: [(app: Int, operation: DirectoryOperation)] = []
    fileprivate var steps: [SimulatedStep] = []

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0xD19E_C704) }

    /// Whether the server makes a call now.
    mutating func isTime() -> Bool { chance.perMille(80) }
}

// An app's server: names, blacklist, badge. It uses its own generator, so that it does not change the draws of other parts. Steps
// pass through mailboxes, so those of several operations interleave.
extension World {
    func alias(_ app: Int, _ number: Int) -> AliasName {
        AliasName(
            high: UInt64(app * 2_000 + number * 601 + 17) << 52 | 1, low: UInt64(app << 8 | number), text: "n\(number)")
    }

    func tag(_ number: Int) -> TagName { TagName(digest: UInt64(number + 1), text: "t\(number)") }

    func directSomething() {
        guard !identities.isEmpty, isUp else { return }
        let identity = names.chance.one(of: identities)
        guard identity.isDurable else { return }
        eventCount += 1
        let place = DevicePlace(cid: identity.cid, bucket: identity.bucket)
        switch names.chance.below(10) {
        case 0, 1:
            let number = Int32(names.chance.between(-3, 20))
            let change: BadgeChange = names.chance.perMille(500) ? .set(number) : .add(number)
            send(.setBadge(identity.cid, change), .badge(change), to: identity)
        case 2, 3:
            let isOn = names.chance.perMille(350)
            send(.setBlacklisted(identity.cid, isOn), .blacklist(isOn), to: identity)
        case 4, 5:
            let tag = tag(names.chance.below(3))
            let adds = names.chance.perMille(600)
            send(adds ? .addTags(identity.cid, [tag]) : .removeTags(identity.cid, [tag]), .tag, to: identity)
        case 6: begin(.unbindAll(alias(identity.app, names.chance.below(3))), app: identity.app)
        case 7:
            let item = AliasItem(device: place, name: alias(identity.app, names.chance.below(3)))
            begin(.unbind([item]), app: identity.app)
        default:
            let item = AliasItem(device: place, name: alias(identity.app, names.chance.below(3)))
            begin(.bind([item]), app: identity.app)
        }
    }

    private func send(_ step: DirectoryStep, _ purpose: SimulatedStep.Purpose, to identity: Identity) {
        post(
            SimulatedStep(
                app: identity.app, bucket: identity.bucket, step: step, purpose: purpose, identity: identity))
    }

    private func begin(_ work: DirectoryOperation.Work, app: Int) {
        var operation = DirectoryOperation(work, loopCount: loops.count)
        let steps = operation.start()
        names.operations.append((app, operation))
        post(steps, of: names.operations.count - 1)
    }

    /// Updates the token rows after a change of a device's tokens, as the gateway does.
    func followTokens(_ news: TokenNews) {
        guard let app = plan.apps.firstIndex(where: { $0.key == news.app }) else { return }
        begin(.tokens(news), app: app)
    }

    private func post(_ next: [StepToSend], of operation: Int) {
        for step in next {
            guard case .bucket(let bucket) = step.target else { continue }
            post(
                SimulatedStep(
                    app: names.operations[operation].app, bucket: bucket, step: step.step,
                    purpose: .operation(operation, request: step.request)))
        }
    }

    private func post(_ step: SimulatedStep) {
        names.steps.append(step)
        queue.add(.directoryStep(names.steps.count - 1, life: life), at: now + names.chance.time(0, 60))
    }

    /// Delivers the step from its loop's mailbox.
    func carryOut(_ number: Int) {
        let step = names.steps[number]
        log.note(now, "step", Int64(number), Int64(step.identity?.index ?? -1))
        step.identity?.openSteps.append(number)
        let loop = loop(of: step.bucket)
        loop.shard.directory(
            DirectoryCommand(
                origin: Origin(route: 6, request: UInt64(number)), app: plan.apps[step.app].key, bucket: step.bucket,
                step: step.step), now: gatewayNow)
        loop.perform()
    }

    /// Called while effects are performed: the reply is delivered after a delay.
    func directed(_ number: Int, _ reply: DirectoryReply, _ loop: Loop) {
        if names.steps[number].reply != nil { fail(.request, "step \(number) was answered twice") }
        names.steps[number].reply = reply
        oracle.directed(number, reply, loop)
        queue.add(.directoryReply(number, life: life), at: now + names.chance.time(0, 60))
    }

    func takeReply(_ number: Int) {
        guard case .operation(let index, let request) = names.steps[number].purpose,
            let reply = names.steps[number].reply
        else {
            return
        }
        post(names.operations[index].operation.receive(request, reply), of: index)
    }

    // MARK: The end

    /// Removes every device from the blacklist, so that the final checks apply to all devices.
    func clearBlacklists() {
        for identity in identities where identity.isDurable {
            send(.setBlacklisted(identity.cid, false), .blacklist(false), to: identity)
        }
    }

    /// Checks one alias, and retries refused calls, because few steps may be queued per device.
    private func checkAlias(_ name: AliasName, _ app: Int) {
        for _ in 0..<4 where violation == nil {
            begin(.resolve([name]), app: app)
            pass(milliseconds: 20_000)
            guard let operation = names.operations.last?.1, operation.isDone, operation.outcomes == [.done] else {
                continue
            }
            let found = Set(operation.members[0].map(\.cid))
            let expected = Set(identities.filter { $0.app == app && $0.durableAlias == name }.map(\.cid))
            if found != expected {
                fail(.books, "alias \(name.text) names \(found.count) devices, \(expected.count) have it")
            }
            if expected.count > plan.limits.devicesPerAlias { fail(.bounds, "\(expected.count) have an alias") }
            return
        }
        fail(.progress, "alias \(name.text) was not resolved")
    }

    /// Checks that aliases resolve to exactly the devices whose rows have them, and that counts match the rows.
    func checkDirectory() {
        guard violation == nil else { return }
        pass(milliseconds: 40_000)
        for app in plan.apps.indices {
            for number in 0..<3 { checkAlias(alias(app, number), app) }
        }
        let firstStep = names.steps.count
        for identity in identities.suffix(60) {
            let tag = tag(identity.index % 3)
            var expression = TagExpression()
            _ = expression.add(.any, [tag])
            let expected = identities.count {
                $0.app == identity.app && $0.bucket == identity.bucket && $0.durableTags.contains(tag)
            }
            let step = DirectoryStep.count(expression, first: Int(identity.bucket.index), stride: Bucket.count)
            post(
                SimulatedStep(
                    app: identity.app, bucket: identity.bucket, step: step, purpose: .count(expected: expected)))
        }
        pass(milliseconds: 120_000)
        for step in names.steps[firstStep...] {
            guard case .count(let expected) = step.purpose else { continue }
            guard case .count(let found)? = step.reply else { return fail(.progress, "a tag was not counted") }
            if found != expected { fail(.books, "\(found) of a bucket have a tag, the rows say \(expected)") }
        }
    }
}

extension Oracle {
    /// Handles a change in a device row that only a server's step can make; a requested step must account for it.
    func serverChanged(_ identity: Identity, _ row: RowInspection.Device, ticket: Ticket) {
        if row.isBlacklisted != identity.isBlacklisted {
            let step = identity.openSteps.first { number in
                if case .blacklist(let isOn) = world.names.steps[number].purpose {
                    return isOn == row.isBlacklisted && world.names.steps[number].seenAt == nil
                }
                return false
            }
            guard let step else {
                return fail(.content, "device \(identity.index) was blacklisted by nobody, or freed")
            }
            world.names.steps[step].seenAt = ticket
            identity.isBlacklisted = row.isBlacklisted
            identity.wasBlacklisted = true
            if row.isBlacklisted { identity.leftAt = now }
        }
        if row.badge != identity.badge {
            let step = identity.openSteps.first { number in
                guard case .badge(let change) = world.names.steps[number].purpose,
                    world.names.steps[number].seenAt == nil
                else {
                    return false
                }
                switch change {
                case .set(let value): return row.badge == max(0, value)
                case .add(let value): return row.badge == max(0, identity.badge + value)
                }
            }
            // Without a matching step the badge is wrong. The caller reports it.
            guard let step else { return }
            world.names.steps[step].seenAt = ticket
            identity.badge = row.badge
        }
    }

    func directed(_ number: Int, _ reply: DirectoryReply, _ loop: Loop) {
        let step = world.names.steps[number]
        guard let identity = step.identity else { return }
        identity.openSteps.removeAll { $0 == number }
        if reply == .unknown { fail(.refusal, "device \(identity.index) is unknown to a step") }
        if let ticket = step.seenAt, reply == .failed || ticket > loop.store.durableTicket,
            let other = identity.openSteps.first(where: { isLike(step, $0) && mayHaveDone($0, reply, loop) })
        {
            // Two steps had the same effect and the other one's answer was in flight, so the row change belongs to the other
            // step.
            world.names.steps[other].seenAt = ticket
        } else if let ticket = step.seenAt {
            if reply != .done { fail(.request, "step \(number) was carried out, but answered \(reply)") }
            if ticket > loop.store.durableTicket {
                fail(.beforeSync, "step \(number) was answered before it was durable")
            }
        }
    }
    /// Whether the other step has no known effect, or has the effect that this reply reports.
    private func mayHaveDone(_ other: Int, _ reply: DirectoryReply, _ loop: Loop) -> Bool {
        guard let ticket = world.names.steps[other].seenAt else { return true }
        return reply == .done && ticket <= loop.store.durableTicket
    }

    /// Whether the other step could have caused the same row change.
    private func isLike(_ step: SimulatedStep, _ other: Int) -> Bool {
        switch (step.purpose, world.names.steps[other].purpose) {
        case (.badge, .badge): return true
        case (.blacklist(let one), .blacklist(let two)): return one == two
        default: return false
        }
    }
}
