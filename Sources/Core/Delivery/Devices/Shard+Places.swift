// Addresses of memory that a later call will use, for prefetching. With many thousands of devices, a device's memory is rarely in
// a cache. The addresses are hints and may be stale. Each `unsafe` here only passes an address on: no code reads through it.

internal import Structures
package import Wire

extension Shard {
    // The functions are `mutating`, because a borrowing call from another module would copy the whole shard.

    /// Returns the likely address of a device's record; a check would stall on the memory that the caller prefetches.
    package mutating func place(of cid: DeviceID) -> UnsafeRawBufferPointer? {
        unsafe devices.likelyAddress(cid).map { unsafe $0.bytes }
    }

    package mutating func place(ofSession slot: UInt32) -> UnsafeRawBufferPointer? {
        unsafe sessions.device(at: slot).map { unsafe devices.unchecked($0).bytes }
    }

    /// Visits the memory that publishes waiting for `ticket` will use: devices, then queues, then messages.
    package mutating func visitPlaces(awaiting ticket: Ticket, _ body: (UnsafeRawBufferPointer) -> Void) {
        var count = 0
        while count < min(outbox.waitingCount, Limits.foreseenCount), outbox.ticket(at: count) <= ticket {
            if let device = foreseenDevice(count) { unsafe body(device.bytes) }
            count += 1
        }
        for index in 0..<count {
            if let device = foreseenDevice(index) { unsafe body(device.value.queue.bytes) }
        }
        for index in 0..<count {
            guard let device = foreseenDevice(index), device.value.firstUnsent != .none else { continue }
            unsafe body(messages.unchecked(device.value.firstUnsent).bytes)
        }
    }

    private func foreseenDevice(_ index: Int) -> Place<Device>? {
        let slot = outbox.publishedDevice(at: index)
        return slot == .none ? nil : devices.unchecked(slot)
    }
}
