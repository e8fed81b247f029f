/// A loop's table of pending requests; each slot has a stamp, so a late answer for an earlier occupant finds nothing.
struct StampedTable<Element> {
    private struct Slot {
        var stamp: UInt32
        var element: Element?
    }

    private var slots: [Slot] = []
    private var free: [UInt32] = []
    let limit: Int

    init(limit: Int) { self.limit = limit }

    var count: Int { slots.count - free.count }

    /// Adds an element.
    ///
    /// Returns `nil` if the table is full; the caller must then answer busy.
    mutating func insert(_ element: Element) -> (slot: UInt32, stamp: UInt32)? {
        if let slot = free.popLast() {
            slots[Int(slot)].element = element
            return (slot, slots[Int(slot)].stamp)
        }
        guard slots.count < limit else { return nil }
        slots.append(Slot(stamp: 1, element: element))
        return (UInt32(slots.count - 1), 1)
    }

    subscript(slot: UInt32, stamp: UInt32) -> Element? {
        get {
            guard Int(slot) < slots.count, slots[Int(slot)].stamp == stamp else { return nil }
            return slots[Int(slot)].element
        }
        set {
            guard Int(slot) < slots.count, slots[Int(slot)].stamp == stamp, slots[Int(slot)].element != nil else {
                return
            }
            slots[Int(slot)].element = newValue
        }
    }

    /// Returns the address of an object in the table, for a prefetch.
    func address(_ slot: UInt32) -> UnsafeRawPointer? where Element: AnyObject {
        guard Int(slot) < slots.count, let element = slots[Int(slot)].element else { return nil }
        return UnsafeRawPointer(Unmanaged.passUnretained(element).toOpaque())
    }

    @discardableResult
    mutating func remove(_ slot: UInt32, _ stamp: UInt32) -> Element? {
        guard Int(slot) < slots.count, slots[Int(slot)].stamp == stamp, let element = slots[Int(slot)].element else {
            return nil
        }
        slots[Int(slot)].element = nil
        // A route holds only the low bits of a stamp. Zero is never a valid stamp.
        let next = (stamp &+ 1) & Route.stampMask
        slots[Int(slot)].stamp = next == 0 ? 1 : next
        free.append(slot)
        return element
    }

    func forEach(_ body: (UInt32, UInt32, Element) -> Void) {
        for (index, slot) in slots.enumerated() {
            if let element = slot.element { body(UInt32(index), slot.stamp, element) }
        }
    }
}
