// Where in memory the things lie that a later call will use. With many thousands of devices nothing of one is in a cache
// when its turn comes; the gateway, which may ask the processor for memory ahead of time, asks here for addresses. No
// decision depends on them, and they may mean nothing any more when they are used.

internal import Structures
public import Wire

extension Shard {
    /// The record of a device that is in memory; most likely, since a look at it would wait for what is to be fetched.
    public func place(of cid: DeviceID) -> UnsafeRawBufferPointer? {
        devices.likelyAddress(cid).map { Self.place($0) }
    }

    /// The record of the device whose session has this slot.
    public func place(ofSession slot: UInt32) -> UnsafeRawBufferPointer? {
        sessions.device(at: slot).map { Self.place(devices.address($0)) }
    }

    /// What the publishes that wait for `ticket` will use when it is durable: first the devices, then
    /// their queues, then their messages.
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
            guard let device = foreseenDevice(index), device.pointee.firstUnsent != .max else { continue }
            body(Self.place(messages.address(device.pointee.firstUnsent)))
        }
    }

    private func foreseenDevice(_ index: Int) -> UnsafeMutablePointer<Device>? {
        guard case .publish(_, _, let slot, _) = outbox.waiting(at: index).pointee.kind, slot != .max else {
            return nil
        }
        return devices.address(slot)
    }

    private static func place<Value>(_ pointer: UnsafeMutablePointer<Value>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: pointer, count: MemoryLayout<Value>.size)
    }
}
