internal import Structures
internal import Wire

/// Which device has which session of this loop, by the loop's session slots, and how many of each app are open.
struct SessionTable: ~Copyable {
    private struct Place: BitwiseCopyable {
        /// The shard is checking the Hello, and the gateway has not reported the connection as gone.
        static var awaited: DeviceSlot { .none }
        /// The session is over, or there never was one.
        static var over: DeviceSlot { DeviceSlot(number: .max - 1) }

        var stamp: UInt32 = 0
        /// The device's slot, or one of the two above.
        var device = over

        var hasDevice: Bool { device.number < Self.over.number }
    }

    private var places = PagedArray(repeating: Place())
    /// One above the highest slot that a session ever had.
    private(set) var slotCount = 0
    /// Open sessions, and those of each app.
    private(set) var count = 0
    private var countByApp: [Int]

    init(appCount: Int) { countByApp = Array(repeating: 0, count: appCount) }

    mutating func addApp() { countByApp.append(0) }

    /// Open sessions of an app's devices.
    func count(ofApp index: Int) -> Int { countByApp[index] }

    /// The device of a session, unless the session is over or not known.
    @inline(__always)
    func device(of session: SessionRef) -> DeviceSlot? {
        let place = places[session.slot]
        return place.stamp == session.stamp && place.hasDevice ? place.device : nil
    }

    /// The device whose session has this slot.
    @inline(__always)
    func device(at slot: UInt32) -> DeviceSlot? {
        let place = places[slot]
        return place.hasDevice ? place.device : nil
    }

    /// Remembers a connection whose Hello the shard is checking: it may close before the check ends.
    mutating func expect(_ session: SessionRef) {
        places.at(session.slot).value = Place(stamp: session.stamp, device: Place.awaited)
        slotCount = max(slotCount, Int(session.slot) + 1)
    }

    /// True until the connection of an expected session has ended.
    func isAwaited(_ session: SessionRef) -> Bool {
        let place = places[session.slot]
        return place.stamp == session.stamp && place.device != Place.over
    }

    mutating func attach(_ session: SessionRef, to device: DeviceSlot, ofApp app: Int) {
        places.at(session.slot).value.device = device
        count += 1
        countByApp[app] += 1
    }

    /// Ends the session of a device; with `keepsPlace` (a planted fault) its slot still names the device.
    mutating func detach(_ session: SessionRef, ofApp app: Int, keepsPlace: Bool) {
        if !keepsPlace { places.at(session.slot).value.device = Place.over }
        count -= 1
        countByApp[app] -= 1
    }

    /// The connection of a session without a device is gone.
    mutating func forget(_ session: SessionRef) {
        if places[session.slot].stamp == session.stamp { places.at(session.slot).value.device = Place.over }
    }
}
