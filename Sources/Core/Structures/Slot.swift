/// The index of a value in a `Slab`: 4 bytes, typed by the kind of value.
///
/// The type prevents the use of a device's slot as a message's slot. A slot is reused, so a caller that keeps one after its value
/// was removed must verify the value.
public struct Slot<Element>: Hashable, BitwiseCopyable, Sendable {
    /// The plain number, for hash tables and timers that store integers.
    public let number: UInt32

    @_transparent public init(number: UInt32) { self.number = number }

    /// A slot that never refers to a value.
    public static var none: Slot { @_transparent get { Slot(number: .max) } }
    public static var first: Slot { @_transparent get { Slot(number: 0) } }

    // Written out because a debug build calls the synthesized operator of a generic structure instead of inlining it.
    @_transparent public static func == (left: Slot, right: Slot) -> Bool { left.number == right.number }
    @inlinable public func hash(into hasher: inout Hasher) { hasher.combine(number) }
}

extension Slot: CustomStringConvertible {
    public var description: String { self == .none ? "no slot" : "slot \(number)" }
}

public struct SlotRange<Element>: Sequence, IteratorProtocol, Sendable {
    /// The next slot to return, or `end`.
    public private(set) var first: Slot<Element>
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
