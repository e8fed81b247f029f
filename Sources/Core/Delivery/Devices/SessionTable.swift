internal import Structures
internal import Wire

/// The devices of this shard's sessions by session slot, and the number of open sessions per app.
struct SessionTable: ~Copyable {
    private struct Place: BitwiseCopyable {
        /// The shard is checking the Hello and the connection is still open.
        static var awaited: DeviceSlot { .none }
        static var over: DeviceSlot { DeviceSlot(number: .max - 1) }

        var stamp: UInt32 = 0
        /// The device's slot, or `awaited` or `over`.
        var device = over

        var hasDevice: Bool { device.number < Self.over.number }
    }

    private var places = PagedArray(repeating: Place())
    /// The highest session slot used so far, plus one.
    private(set) var slotCount = 0
    private(set) var count = 0
    private var countByApp: [Int]

    init(appCount: Int) { countByApp = Array(repeating: 0, count: appCount) }

    mutating func addApp() { countByApp.append(0) }

    func count(ofApp index: Int) -> Int { countByApp[index] }

    /// Returns the device of a session; `nil` if the session has ended or is unknown.
    @inline(__always)
    func device(of session: SessionRef) -> DeviceSlot? {
        let place = places[session.slot]
        return place.stamp == session.stamp && place.hasDevice ? place.device : nil
    }

    @inline(__always)
    func device(at slot: UInt32) -> DeviceSlot? {
        let place = places[slot]
        return place.hasDevice ? place.device : nil
    }

    /// Records a connection whose Hello is being checked, because the connection may close before the check ends.
    mutating func expect(_ session: SessionRef) {
        places.at(session.slot).value = Place(stamp: session.stamp, device: Place.awaited)
        slotCount = max(slotCount, Int(session.slot) + 1)
    }

    /// Returns whether the connection of an expected session is still open.
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

    mutating func forget(_ session: SessionRef) {
        if places[session.slot].stamp == session.stamp { places.at(session.slot).value.device = Place.over }
    }
}
