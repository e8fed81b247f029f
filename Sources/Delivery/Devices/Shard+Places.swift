// Addresses of the memory that a later call will use. With many thousands of devices, none of a device's memory is in a
// cache when its turn comes. The gateway asks here for addresses, and asks the processor to prefetch them. No decision
// depends on them, and they may be stale when the gateway uses them.

internal import Structures
public import Wire

extension Shard {
    /// The likely record of a device in memory: to check it would wait for the memory to prefetch.
    public func place(of cid: DeviceID) -> UnsafeRawBufferPointer? {
        devices.likelyAddress(cid).map { Self.place($0) }
    }

    /// The record of the device whose session has this slot.
    public func place(ofSession slot: UInt32) -> UnsafeRawBufferPointer? {
        sessions.device(at: slot).map { Self.place(devices.address($0)) }
    }

    /// What the publishes that wait for `ticket` will use once it is durable: devices, then queues, then messages.
    public func visitPlaces(awaiting ticket: Ticket, _ body: (UnsafeRawBufferPointer) -> Void) {
        var count = 0
        while count < min(outbox.waitingCount, Limits.foreseenCount), outbox.waiting(at: count).pointee.ticket <= ticket
        {
            if let device = foreseenDevice(count) { body(Self.place(device)) }
            count += 1
        }
        for index in 0..<count {
            if let device = foreseenDevice(index) { body(Self.place(device.pointee.queue)) }
        }
        for index in 0..<count {
            guard let device = foreseenDevice(index), device.pointee.firstUnsent != .none else { continue }
            body(Self.place(messages.address(device.pointee.firstUnsent)))
        }
    }

    private func foreseenDevice(_ index: Int) -> UnsafeMutablePointer<Device>? {
        guard case .publish(_, _, let slot, _) = outbox.waiting(at: index).pointee.kind, slot != .none else {
            return nil
        }
        return devices.address(slot)
    }

    private static func place<Value>(_ pointer: UnsafeMutablePointer<Value>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: pointer, count: MemoryLayout<Value>.size)
    }
}
