internal import Structures
package import Wire

extension Shard {
    /// Returns the device's slot, and inserts an unloaded one if needed.
    mutating func deviceSlot(_ cid: DeviceID, bucket: Bucket) -> DeviceSlot {
        if let slot = knownDevice(cid) { return slot }
        return devices.insert(cid, bucket: bucket)
    }

    @inline(__always)  // A call would copy the whole shard.
    func knownDevice(_ cid: DeviceID) -> DeviceSlot? { devices.find(cid) }

    /// Returns the device of a live session; `nil` if the session has ended or is unknown.
    @inline(__always)  // A call would copy the whole shard.
    func device(of session: SessionRef) -> DeviceSlot? {
        sessions.device(of: session)
    }

    package func source(of session: SessionRef) -> (app: AppKey, cid: DeviceID)? {
        guard let slot = device(of: session) else { return nil }
        let device = devices.at(slot)
        return (apps[Int(device.value.appIndex)].key, device.value.cid)
    }

    /// Returns whether a device has a session; a connected device's record is always in memory.
    package func isConnected(_ cid: DeviceID) -> Bool {
        knownDevice(cid).map { devices.at($0).value.isConnected } ?? false
    }

    func isDevice(_ slot: DeviceSlot, _ cid: DeviceID) -> Bool {
        devices.isOccupied(slot) && devices.at(slot).value.cid == cid
    }

    func profile(_ slot: DeviceSlot) -> DeviceProfile { devices.profile(slot) }

    /// Returns whether publishes make no message because the device is blacklisted or long inactive.
    ///
    /// See docs/Semantics.md, "Collapse, overflow and revoke".
    func isIgnored(_ slot: DeviceSlot) -> Bool { devices.at(slot).value.isBlacklisted || isInactive(slot) }

    func isInactive(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        return !device.value.isConnected && device.value.lastHeardAt + limits.inactiveDeviceLifetime < now
    }

    /// Returns the app's index.
    ///
    /// An unlisted app gets an index without settings.
    ///
    /// From `unlistedAppLimit` on, further apps that only the store knows share one index. Their devices are not served before a
    /// restart and never count as another app's devices.
    mutating func appIndex(_ key: AppKey) -> UInt16 {
        if let index = apps.index(of: key) { return UInt16(exactly: index) ?? appIndex(Self.crowdedOut) }
        guard apps.count < Self.unlistedAppLimit || key == Self.crowdedOut else { return appIndex(Self.crowdedOut) }
        addApp(AppEntry(unlisted: key, knowsAllApps: apps.areAllKnown))
        return UInt16(apps.count - 1)
    }

    /// The 16-bit index must also have room for the served apps (`ManagedApps.lifetimeAppCount`).
    static let unlistedAppLimit = 32_000
    static let crowdedOut = AppKey(0)

    mutating func addApp(_ app: AppEntry) {
        // Adds the shared entry at the limit, so that its index fits into 16 bits.
        if apps.count == Self.unlistedAppLimit, app.key != Self.crowdedOut, apps.index(of: Self.crowdedOut) == nil {
            addApp(AppEntry(unlisted: Self.crowdedOut, knowsAllApps: true))
        }
        core.apps.append(app, core.counters, day: CountersRow.day(of: now))
        jobs.addApp()
        sessions.addApp()
        broadcasts.setApps(apps.entries)
    }
}
