/// A ring buffer used as a first-in, first-out queue; it grows by doubling and never shrinks.
public struct Ring<Element>: ~Copyable {
    @usableFromInline var storage: UnsafeMutablePointer<Element>
    @usableFromInline var capacity: Int
    @usableFromInline var head = 0

    @inlinable public var count: Int { usedCount }
    @usableFromInline var usedCount: Int = 0

    /// - Parameter capacity: the initial capacity, rounded up to a power of two.
    @inlinable public init(capacity: Int = 16) {
        var rounded = 4
        while rounded < capacity { rounded *= 2 }
        self.capacity = rounded
        storage = .allocate(capacity: rounded)
    }

    deinit {
        for index in 0..<count { (storage + ((head + index) & (capacity - 1))).deinitialize(count: 1) }
        storage.deallocate()
    }

    @inlinable public var isEmpty: Bool { count == 0 }

    @inlinable public mutating func append(_ value: consuming Element) {
        if count == capacity { grow() }
        (storage + ((head + count) & (capacity - 1))).initialize(to: value)
        usedCount += 1
    }

    @inlinable public mutating func popFirst() -> Element? {
        guard count > 0 else { return nil }
        let value = (storage + head).move()
        head = (head + 1) & (capacity - 1)
        usedCount -= 1
        return value
    }

    @inlinable public var first: Element? { count > 0 ? storage[head] : nil }

    /// The value at position `index`, counted from the oldest.
    @inlinable public subscript(index: Int) -> Element {
        // Addressors avoid a copy of a large value.
        unsafeAddress {
            precondition(index >= 0 && index < count, "no such place")
            return UnsafePointer(storage + ((head + index) & (capacity - 1)))
        }
        unsafeMutableAddress {
            precondition(index >= 0 && index < count, "no such place")
            return storage + ((head + index) & (capacity - 1))
        }
    }

    @inlinable public mutating func removeAll() {
        while popFirst() != nil {}
    }

    @inlinable mutating func grow() {
        let wider = UnsafeMutablePointer<Element>.allocate(capacity: capacity * 2)
        let front = min(count, capacity - head)
        wider.moveInitialize(from: storage + head, count: front)
        (wider + front).moveInitialize(from: storage, count: count - front)
        storage.deallocate()
        storage = wider
        head = 0
        capacity *= 2
    }
}
