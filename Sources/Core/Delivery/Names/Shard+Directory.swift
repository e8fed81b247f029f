internal import Structures
internal import Wire

extension Shard {
    /// Executes one step; the reply follows as `.directoryAnswered` when it is durable.
    package mutating func directory(_ command: DirectoryCommand, now: GatewayTime) {
        begin(now)
        guard store.acceptsWrites || !command.step.isChange else {
            reply(command.origin, .failed)
            return
        }
        switch command.step {
        case .reserve(let name, let cid, let bucket):
            inAliases { aliases, core in aliases.reserve(command, name, cid, bucket, &core) }
        case .release(let name, let entries):
            inAliases { aliases, core in aliases.release(command, name, entries, &core) }
        case .members(let name): inAliases { aliases, core in aliases.members(command, name, &core) }
        case .takeToken(let name, let claimant, let lost):
            inAliases { aliases, core in aliases.takeToken(command, name, claimant, lost: lost, &core) }
        case .count(let expression, let first, let stride): count(command, expression, first: first, stride: stride)
        case .setAlias(let cid, let name, let stamp):
            onDevice(command, cid) { $0.setAlias($1, name, stamp: stamp) }
        case .clearAlias(let cid, let name, let stamp):
            onDevice(command, cid) { $0.clearAlias($1, name, stamp: stamp) }
        case .holds(let cid, let name, let stamp):
            onDevice(command, cid) { shard, slot in
                shard.profile(slot).names.held(name) != nil ? .held : shard.notHeld(stamp)
            }
        case .replaceTags(let cid, let tags): onDevice(command, cid) { $0.replaceTags($1, tags) }
        case .addTags(let cid, let tags): onDevice(command, cid) { $0.addTags($1, tags) }
        case .removeTags(let cid, let tags): onDevice(command, cid) { $0.removeTags($1, tags) }
        case .setBlacklisted(let cid, let isOn): setBlacklisted(command, cid, isOn)
        case .setBadge(let cid, let change): onDevice(command, cid) { $0.setBadge($1, change) }
        case .describe(let cid, let readsAttributes):
            describe(command, cid, readsAttributes: readsAttributes ?? false)
        case .loseToken(let cid, let name, let stamp):
            onDevice(command, cid) { $0.loseToken($1, name, stamp: stamp) }
        case .confirmToken(let cid, let name, let stamp):
            onDevice(command, cid) { $0.confirmToken($1, name, stamp: stamp) }
        }
    }

    mutating func inAliases(_ work: (inout AliasTable, inout ShardCore) -> Void) {
        work(&aliases, &core)
        finishPart()
    }

    private mutating func onDevice(
        _ command: DirectoryCommand, _ cid: DeviceID, _ step: @escaping (inout Shard, DeviceSlot) -> DirectoryReply
    ) {
        let origin = command.origin
        onDevice(
            command, cid,
            replying: { shard, slot in
                let reply = step(&shard, slot)
                shard.reply(origin, reply)
            })
    }

    /// Runs a step that sends its own reply.
    private mutating func onDevice(
        _ command: DirectoryCommand, _ cid: DeviceID, replying step: @escaping (inout Shard, DeviceSlot) -> Void
    ) {
        let (origin, app) = (command.origin, command.app)
        whenReady(deviceSlot(cid, bucket: command.bucket)) { shard, slot, readiness in
            switch readiness {
            case .unknown: shard.reply(origin, .unknown)
            case .failed, .crowded: shard.reply(origin, .failed)
            case .ready:
                let device = shard.devices.at(slot)
                guard shard.apps[Int(device.value.appIndex)].key == app else {
                    shard.reply(origin, .unknown)
                    return
                }
                device.value.touch()
                step(&shard, slot)
            }
        }
    }

    // MARK: Alias

    private mutating func setAlias(_ slot: DeviceSlot, _ name: AliasName, stamp: GatewayTime) -> DirectoryReply {
        // The check for stale reservations relies on this: a device never takes an expired reservation.
        guard now <= stamp + limits.aliasReservationLifetime else { return .late }
        var profile = profile(slot)
        // A later reservation of the alias was set, given up and released. That release also removed this reservation's entry.
        guard !profile.names.isOvertaken(name, stamp: stamp) else { return .overtaken }
        if let held = profile.names.held(name) {
            profile.names.take(name, stamp: max(held.stamp, stamp))
            save(profile, slot)
            return .aliasSet(previous: nil, stamp: 0)
        }
        let previous = profile.names.alias(ofType: name.type)
        guard previous != nil || profile.names.aliases.count < Limits.aliasesPerDevice else { return .tooMany }
        if previous != nil {
            profile.names.giveUpAlias(
                ofType: name.type, forgettingBefore: now - limits.aliasReservationLifetime)
        }
        profile.names.take(name, stamp: stamp)
        save(profile, slot)
        return .aliasSet(previous: previous?.name, stamp: previous?.stamp ?? 0)
    }

    private mutating func clearAlias(_ slot: DeviceSlot, _ name: AliasName, stamp: GatewayTime) -> DirectoryReply {
        var profile = profile(slot)
        guard let given = profile.names.held(name) else { return notHeld(stamp) }
        profile.names.giveUpAlias(ofType: name.type, forgettingBefore: now - limits.aliasReservationLifetime)
        save(profile, slot)
        return .aliasCleared(stamp: given.stamp)
    }

    private func notHeld(_ stamp: GatewayTime) -> DirectoryReply {
        .notHeld(isStale: now > stamp + limits.aliasReservationLifetime)
    }

    // MARK: Tags

    private mutating func replaceTags(_ slot: DeviceSlot, _ tags: [TagName]) -> DirectoryReply {
        var profile = profile(slot)
        guard fits(tags) else { return .tooMany }
        let today = CountersRow.day(of: now)
        let count = profile.names.replacementDay == today ? profile.names.replacementCount : 0
        guard limits.tagReplacementsPerDay == 0 || Int(count) < limits.tagReplacementsPerDay else { return .tooOften }
        (profile.names.replacementDay, profile.names.replacementCount) = (today, count == .max ? .max : count + 1)
        change(&profile, to: tags, slot)
        return .done
    }

    private mutating func addTags(_ slot: DeviceSlot, _ added: [TagName]) -> DirectoryReply {
        var profile = profile(slot)
        var tags = profile.names.tags
        for tag in added where !tags.contains(tag) { tags.append(tag) }
        guard tags.count > profile.names.tags.count else { return .done }
        guard fits(tags) else { return .tooMany }
        change(&profile, to: tags, slot)
        return .done
    }

    private mutating func removeTags(_ slot: DeviceSlot, _ removed: [TagName]) -> DirectoryReply {
        var profile = profile(slot)
        let tags = profile.names.tags.filter { !removed.contains($0) }
        guard tags.count < profile.names.tags.count else { return .done }
        change(&profile, to: tags, slot)
        return .done
    }

    private func fits(_ tags: [TagName]) -> Bool {
        tags.count <= limits.tagsPerDevice
            && tags.reduce(0) { $0 + $1.text.unicodeScalars.count } <= limits.tagCharactersPerDevice
    }

    /// Writes the device row and the rows of added and removed tags, in one batch.
    private mutating func change(_ profile: inout DeviceProfile, to tags: [TagName], _ slot: DeviceSlot) {
        let device = devices.at(slot)
        let (old, new) = (Set(profile.names.tags), Set(tags))
        profile.names.tags = tags
        devices.changeProfile(slot, to: profile)
        inBatch(of: slot) { shard in
            for tag in old where !new.contains(tag) {
                shard.store.delete(shard.tagKey(device, tag.digest), prior: .maybe(wakeAt: 0))
            }
            for tag in tags where !old.contains(tag) { shard.writeTag(device, tag.digest) }
        }
    }

    // MARK: Blacklist, badge, detail

    private mutating func setBlacklisted(_ command: DirectoryCommand, _ cid: DeviceID, _ isOn: Bool) {
        let origin = command.origin
        onDevice(
            command, cid,
            replying: { shard, slot in
                shard.setBlacklisted(slot, isOn) { shard, reading in
                    shard.reply(origin, reading == .whole ? .done : .failed)
                }
            })
    }

    /// Adds the device to the blacklist, or removes it.
    ///
    /// The device's broadcasts are loaded first. If they are unreadable or the app's log is unknown, nothing changes.
    mutating func setBlacklisted(
        _ slot: DeviceSlot, _ isOn: Bool, completion: @escaping (inout Shard, Reading) -> Void
    ) {
        guard isOn != devices.at(slot).value.isBlacklisted else { return completion(&self, .whole) }
        resolveBroadcasts(slot) { shard, reading in
            if reading == .whole { shard.changeBlacklisted(slot, isOn) }
            completion(&shard, reading)
        }
    }

    private mutating func changeBlacklisted(_ slot: DeviceSlot, _ isOn: Bool) {
        let device = devices.at(slot)
        let wasReachable = device.value.isReachable
        // The old flag decides about all broadcasts sent before the change. The flag's row also has the cursor.
        evaluateAll(slot)
        device.change { $0.setBlacklisted(isOn) }
        save(slot)
        if wasReachable, !device.value.isReachable { makeAllDue(slot) }
        presenceChanged(slot)
        // Waiting messages may be sent after the change is durable.
        outbox.hold(.resume(device: slot, cid: device.value.cid))
        leaveBroadcasts(slot)
    }

    private mutating func setBadge(_ slot: DeviceSlot, _ change: BadgeChange) -> DirectoryReply {
        let device = devices.at(slot)
        device.change { device in
            switch change {
            case .set(let value): device.chooseBadge(value)
            case .add(let value): device.badge = Int32(clamping: Int64(device.badge) + Int64(value))
            }
        }
        save(slot)
        return .done
    }

    private mutating func describe(_ command: DirectoryCommand, _ cid: DeviceID, readsAttributes: Bool) {
        let origin = command.origin
        onDevice(
            command, cid,
            replying: { shard, slot in
                var detail = shard.detail(slot)
                guard readsAttributes else { return shard.reply(origin, .device(detail)) }
                shard.readAttributes(slot) { shard, found in
                    guard case .found(let attributes) = found else { return shard.reply(origin, .failed) }
                    // Without the attributes' row, the answer has only the platform, which is in memory.
                    detail.attributes = attributes ?? detail.attributes
                    shard.reply(origin, .device(detail))
                }
            })
    }

    private func detail(_ slot: DeviceSlot) -> DeviceDetail {
        let device = devices.at(slot)
        let profile = profile(slot)
        let usable = profile.tokens.filter { $0.kind == .alert && !$0.isQuarantined }
        let token = usable.first { $0.channel == .apns } ?? usable.first
        let ownTopic = apps[Int(device.value.appIndex)].topic(of: token?.channel ?? .apns) ?? ""
        let topic = token?.topic ?? ""
        var detail = DeviceDetail(
            aliases: profile.names.aliases.map(\.name), tags: profile.names.tags, badge: device.value.badge,
            isBlacklisted: device.value.isBlacklisted, isConnected: device.value.isConnected,
            isReachable: device.value.isReachable, pushModeOff: device.value.isPushModeOff,
            registeredAt: device.value.registeredAt,
            lastSeenAt: device.value.lastHeardAt,
            sessionCount: device.value.generation, token: token?.token ?? "",
            topic: topic.isEmpty ? ownTopic : topic, platform: token?.channel.platform)
        detail.attributes = profile.attributes?.known
        return detail
    }

    mutating func save(_ profile: DeviceProfile, _ slot: DeviceSlot) {
        devices.changeProfile(slot, to: profile)
        save(slot)
    }
}

extension DirectoryStep {
    var isChange: Bool {
        switch self {
        case .members, .holds, .describe, .count: false
        default: true
        }
    }
}
