// Slots of the shard's tables. Each table has its own slot type, so a slot of another table does not compile.

internal import Structures

typealias DeviceSlot = Slot<Device>
typealias MessageSlot = Slot<Message>
typealias JobSlot = Slot<JobEntry>
/// The commands that wait for one device.
typealias WaitSlot = Slot<DeviceTable.WaitList>
/// The counters of one app in a bucket on one day.
typealias CounterSlot = Slot<CountersRow>
