// Steps of a device that may wait for the disk or for later turns. Other commands of the device wait in order.
//
// Only `whileBusy` can hold a device: the flag is private to this file. Every step therefore releases the device and runs the
// waiting commands.

internal import Structures
internal import Wire

extension Device.Flags {
    fileprivate static let busy = Device.Flags(rawValue: 4)
}

extension Device {
    var isBusy: Bool { flags.contains(.busy) }
}

extension Shard {
    /// Runs a step during which other commands of the device wait, then runs those commands.
    ///
    /// The device's record must be in memory and stays there. `step` must call the completion, immediately or after a read. A
    /// nested step is part of the outer one: the device is released after the outer step.
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

    mutating func whileBusy(_ slot: DeviceSlot, reading key: StoreKey, then completion: @escaping Continuation) {
        whileBusy(slot, { shard, done in shard.read([.get(key)], then: done) }, then: completion)
    }

    /// - Returns: false if an outer step already holds the device.
    private mutating func hold(_ slot: DeviceSlot) -> Bool {
        let device = devices.at(slot)
        guard !device.value.isBusy else { return false }
        device.value.flags.insert(.busy)
        return true
    }
}
