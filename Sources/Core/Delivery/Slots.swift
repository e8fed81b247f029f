// Slots of the shard's tables. Each kind is a type of its own: a message's slot in place of a device's does not compile.

internal import Structures

typealias DeviceSlot = Slot<Device>
typealias MessageSlot = Slot<Message>
typealias JobSlot = Slot<JobEntry>
/// Of the commands that wait for one device.
typealias WaitSlot = Slot<DeviceTable.WaitList>
/// Of one app's counters of a bucket and a day.
typealias CounterSlot = Slot<CountersRow>
