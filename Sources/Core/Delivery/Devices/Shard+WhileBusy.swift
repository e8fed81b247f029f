// Steps of a device that may wait for the disk, or for later turns. Other commands of the device wait meanwhile, in order.
//
// `whileBusy` is the only way to hold a device: nothing else in the package can set or remove the flag. So no step can
// forget to let the device go, or to run the commands that waited for it.

internal import Structures
internal import Wire

extension Device.Flags {
    fileprivate static let busy = Device.Flags(rawValue: 4)
}

extension Device {
    /// A step of the device is under way: other commands wait.
    var isBusy: Bool { flags.contains(.busy) }
}

extension Shard {
    /// Takes a step during which other commands of the device wait, then finishes it and runs those commands.
    ///
    /// The device's record is in memory and stays there; `step` hands on the completion that it gets, at once or through
    /// a reader. A step within a step is a part of it: the device is free after the outer one.
    mutating func whileBusy<Value>(
        _ slot: DeviceSlot, _ step: (inout Shard, @escaping (inout Shard, Value) -> Void) -> Void,
        then completion: @escaping (inout Shard, Value) -> Void
    ) {
        let isOuter = hold(slot)
        step(&self) { shard, value in
            if isOuter { shard.devices.at(slot).value.flags.remove(.busy) }
            completion(&shard, value)
            if isOuter { shard.drainWaiting(slot) }
        }
    }

    /// The same for a step without a result.
    mutating func whileBusy(
        _ slot: DeviceSlot, _ step: (inout Shard, @escaping (inout Shard) -> Void) -> Void,
        then completion: @escaping (inout Shard) -> Void
    ) {
        let isOuter = hold(slot)
        step(&self) { shard in
            if isOuter { shard.devices.at(slot).value.flags.remove(.busy) }
            completion(&shard)
            if isOuter { shard.drainWaiting(slot) }
        }
    }

    /// The same for one read.
    mutating func whileBusy(_ slot: DeviceSlot, reading key: StoreKey, then completion: @escaping Continuation) {
        whileBusy(slot, { shard, done in shard.read([.get(key)], then: done) }, then: completion)
    }

    /// - Returns: false when an outer step holds the device already.
    private mutating func hold(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        guard !device.value.isBusy else { return false }
        device.value.flags.insert(.busy)
        return true
    }
}
