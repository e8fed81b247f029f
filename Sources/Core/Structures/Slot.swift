/// The number of a value in a `Slab`: 4 bytes, with a type of its own for each kind of value.
///
/// A device's slot where a message's is asked for does not compile. A caller that keeps a slot beyond the removal of its
/// value may find another value of that kind there, and checks.
public struct Slot<Element>: Hashable, BitwiseCopyable, Sendable {
    /// For tables that keep plain numbers inside: indices and timers.
    public let number: UInt32

    @_transparent public init(number: UInt32) { self.number = number }

    /// No value's.
    public static var none: Slot { @_transparent get { Slot(number: .max) } }
    /// The one that a slab gives first.
    public static var first: Slot { @_transparent get { Slot(number: 0) } }

    // Written out: what the compiler makes of a generic structure is called, not inlined, in a debug build.
    @_transparent public static func == (left: Slot, right: Slot) -> Bool { left.number == right.number }
    @inlinable public func hash(into hasher: inout Hasher) { hasher.combine(number) }
}

extension Slot: CustomStringConvertible {
    public var description: String { self == .none ? "no slot" : "slot \(number)" }
}

/// Slots one after the other, whether values are in them or not.
public struct SlotRange<Element>: Sequence, IteratorProtocol, Sendable {
    /// The first slot that is left; behind the last one when none is.
    public private(set) var first: Slot<Element>
    /// One behind the last.
    public let end: Slot<Element>

    @usableFromInline init(first: UInt32, end: UInt32) {
        self.first = Slot(number: first)
        self.end = Slot(number: Swift.max(first, end))
    }

    public var isEmpty: Bool { first == end }

    public mutating func next() -> Slot<Element>? {
        guard !isEmpty else { return nil }
        defer { first = Slot(number: first.number + 1) }
        return first
    }
}
