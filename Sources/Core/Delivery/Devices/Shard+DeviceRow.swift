internal import Structures
internal import Wire

extension Shard {
    /// Writes the device's row in the open batch, and at the first write also its roster row.
    func writeDevice(_ device: Place<Device>) {
        if !device.value.isStored { enlist(device) }
        let row = DeviceRow(
            flags: device.value.rowFlags, badge: device.value.badge, app: apps[Int(device.value.appIndex)].key,
            generation: device.value.generation, lastTimestamp: device.value.lastTimestamp,
            reservedSequence: device.value.reservedSequence, queueEpoch: device.value.queueEpoch,
            registeredAt: device.value.registeredAt, lastSeenAt: device.value.lastHeardAt,
            broadcastSettled: settledCursor(device),
            broadcastEvaluatedBeyond: UInt16(clamping: device.value.broadcastEvaluated &- settledCursor(device)),
            badgeRound: device.value.badgeRound, dropped: device.value.dropped)
        let profile = device.value.profileBytes
        let next = min(device.value.isEstablished ? .max : forgetsAt(device), claimsAt(device))
        let wakeAt = next == .max ? 0 : next
        store.putRow(
            device.value.key, wakeAt: wakeAt,
            prior: device.value.isStored ? .maybe(wakeAt: device.value.rowWakeAt) : .none,
            byteCount: DeviceRow.headerByteCount + profile.count
        ) { row.write(profile: profile, into: $0) }
        device.value.noteWritten(wakeAt: wakeAt)
    }

    /// Returns the number up to which the device's broadcasts are settled, which is below the first pending one.
    func settledCursor(_ device: Place<Device>) -> UInt64 {
        guard device.value.flags.contains(.resolved) else { return device.value.broadcastSettled }
        guard device.value.firstBroadcast != .none else { return device.value.broadcastEvaluated }
        let first = messages.at(device.value.firstBroadcast).value.facts.item
        return max(device.value.broadcastSettled, min(first &- 1, device.value.broadcastEvaluated))
    }

    /// The minimum time in ms that a device has to reconnect after a start.
    private static let returnGrace: Int64 = 3_600_000

    /// Returns the time at which a registered device that did not reconnect is removed.
    ///
    /// A restored store lacks the logins since its backup, so the lifetime restarts at the beginning of the history. After an
    /// outage the device has at least an hour from the start.
    func forgetsAt(_ device: Place<Device>) -> GatewayTime {
        let began = min(now, GatewayTime(clamping: history.began / 1_000))
        let lifetime = limits.sessionlessDeviceLifetime
        return max(max(device.value.lastHeardAt, began) + lifetime, startedAt + min(lifetime, Self.returnGrace))
    }

    func tagKey(_ device: Place<Device>, _ digest: UInt64) -> StoreKey {
        let app = apps[Int(device.value.appIndex)].key
        return StoreKey(
            device.value.bucket, .tag, ownerHigh: app.word, ownerLow: digest, item: device.value.cid.low)
    }

    func writeTag(_ device: Place<Device>, _ digest: UInt64) {
        let high = device.value.cid.high
        store.putRow(tagKey(device, digest), wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: 8) {
            var writer = RowWriter($0)
            writer.put(high)
        }
    }

    func enlist(_ device: Place<Device>) { writeTag(device, 0) }

    /// Deletes the device's roster row, tag rows and attributes row in the open batch.
    func strike(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        let profile = profile(slot)
        for digest in [0] + profile.conditionTags.map(\.digest) {
            store.delete(tagKey(device, digest), prior: .maybe(wakeAt: 0))
        }
        guard profile.attributes != nil else { return }
        store.delete(AttributesRow.key(device.value.cid, in: device.value.bucket), prior: .maybe(wakeAt: 0))
    }

    /// Returns the next sequence of a device's live stream, from a new reserved block if needed.
    mutating func giveSequence(_ slot: DeviceSlot) -> UInt64 {
        let device = devices.at(slot)
        if device.value.nextSequence > device.value.reservedSequence {
            device.change { $0.reserveSequences(limits.sequenceBlock) }
        }
        return device.value.takeSequence()
    }
}
