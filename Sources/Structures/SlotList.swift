/// A value's neighbours in a list of slots; `.max` where there is none.
@frozen public struct SlotLinks: BitwiseCopyable, Sendable {
    public var next = UInt32.max
    public var previous = UInt32.max

    @inlinable public init() {}
}

/// The ends of a list of slots: its values stand in a `Slab` and hold their `SlotLinks` themselves.
@frozen public struct SlotEnds: BitwiseCopyable, Sendable, Equatable {
    public var first = UInt32.max
    public var last = UInt32.max

    @inlinable public init() {}
    @inlinable public var isEmpty: Bool { first == .max }
}

/// A kind of list: where an element has its links of it.
///
/// An element may stand in lists of several kinds.
public protocol SlotChain {
    associatedtype Element
    static func links(_ element: UnsafeMutablePointer<Element>) -> UnsafeMutablePointer<SlotLinks>
}

extension Slab {
    /// Puts a value behind another one of the list, or, behind `.max`, at its head.
    ///
    /// - Parameters:
    ///   - slot: a value that stands in no list of this kind.
    ///   - earlier: one that stands in this list, or `.max`.
    ///   - ends: the list's.
    ///   - chain: its kind.
    @inlinable
    public func link<Chain: SlotChain>(
        _ slot: UInt32, behind earlier: UInt32, in ends: inout SlotEnds, of chain: Chain.Type
    ) where Chain.Element == Element {
        let links = chain.links(pointer(slot))
        let later = earlier == .max ? ends.first : chain.links(pointer(earlier)).pointee.next
        links.pointee.previous = earlier
        links.pointee.next = later
        if earlier == .max { ends.first = slot } else { chain.links(pointer(earlier)).pointee.next = slot }
        if later == .max { ends.last = slot } else { chain.links(pointer(later)).pointee.previous = slot }
    }

    /// Takes a value out of its list.
    @inlinable
    public func unlink<Chain: SlotChain>(
        _ slot: UInt32, from ends: inout SlotEnds, of chain: Chain.Type
    ) where Chain.Element == Element {
        let links = chain.links(pointer(slot))
        let (next, previous) = (links.pointee.next, links.pointee.previous)
        if next == .max { ends.last = previous } else { chain.links(pointer(next)).pointee.previous = previous }
        if previous == .max { ends.first = next } else { chain.links(pointer(previous)).pointee.next = next }
        links.pointee = SlotLinks()
    }
}
