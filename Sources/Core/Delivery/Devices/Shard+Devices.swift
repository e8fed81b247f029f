// Look-ups that every rule uses: a device's slot by its cid or its session, and its app's place.

internal import Structures
package import Wire

extension Shard {
    /// The device's slot, made if there is none: an unloaded slot only holds jobs and waiting commands.
    mutating func deviceSlot(_ cid: DeviceID, bucket: Bucket) -> DeviceSlot {
        if let slot = knownDevice(cid) { return slot }
        return devices.insert(cid, bucket: bucket)
    }

    /// The device's slot, if it has one.
    @inline(__always)  // A call would copy the whole shard.
    func knownDevice(_ cid: DeviceID) -> DeviceSlot? { devices.find(cid) }

    /// The device of a live session, or `nil` when this shard does not know the session (any more).
    @inline(__always)  // A call would copy the whole shard.
    func device(of session: SessionRef) -> DeviceSlot? {
        sessions.device(of: session)
    }

    /// The app and the device of a session; `nil` when the session is over.
    package func source(of session: SessionRef) -> (app: AppKey, cid: DeviceID)? {
        guard let slot = device(of: session) else { return nil }
        let device = devices.at(slot)
        return (apps[Int(device.value.appIndex)].key, device.value.cid)
    }

    /// Whether a device has a session, as far as its record is in memory, which it is then.
    package func isConnected(_ cid: DeviceID) -> Bool {
        knownDevice(cid).map { devices.at($0).value.isConnected } ?? false
    }

    /// Whether the slot still is this device's.
    func isDevice(_ slot: DeviceSlot, _ cid: DeviceID) -> Bool {
        devices.isOccupied(slot) && devices.at(slot).value.cid == cid
    }

    func profile(_ slot: DeviceSlot) -> DeviceProfile { devices.profile(slot) }

    /// Blacklisted or long inactive: a publish gets an answer but makes no message.
    ///
    /// See docs/Semantics.md, "Collapse, overflow and revoke".
    func isIgnored(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        if device.value.isBlacklisted { return true }
        guard !device.value.isConnected else { return false }
        return device.value.lastHeardAt + limits.inactiveDeviceLifetime < now
    }

    /// The app's place; an app that is not listed (any more, or yet) gets a place without settings.
    ///
    /// Apps that only the store knows share one place from `Self.unlistedAppLimit` on: their devices are served no more before a
    /// restart, and are never another app's.
    mutating func appIndex(_ key: AppKey) -> UInt16 {
        if let index = apps.index(of: key) { return UInt16(exactly: index) ?? appIndex(Self.crowdedOut) }
        guard apps.count < Self.unlistedAppLimit || key == Self.crowdedOut else { return appIndex(Self.crowdedOut) }
        addApp(AppEntry(unlisted: key, knowsAllApps: apps.areAllKnown))
        return UInt16(apps.count - 1)
    }

    /// An index of 16 bits also names the apps that are served (`ManagedApps.lifetimeAppCount`).
    static let unlistedAppLimit = 32_000
    /// No app's key.
    static let crowdedOut = AppKey(0)

    /// Adds an entry for the app to every table that is indexed by app.
    mutating func addApp(_ app: AppEntry) {
        // Before an index could exceed what a device's record names.
        if apps.count == Self.unlistedAppLimit, app.key != Self.crowdedOut, apps.index(of: Self.crowdedOut) == nil {
            addApp(AppEntry(unlisted: Self.crowdedOut, knowsAllApps: true))
        }
        core.apps.append(app, core.counters, day: CountersRow.day(of: now))
        jobs.addApp()
        sessions.addApp()
        broadcasts.setApps(apps.entries)
    }
}
