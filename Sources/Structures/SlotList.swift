/// A value's neighbours in a list of slots; `.none` where there is none.
@frozen public struct SlotLinks<Element>: BitwiseCopyable, Sendable {
    public var next = Slot<Element>.none
    public var previous = Slot<Element>.none

    @inlinable public init() {}
}

/// The ends of a list of slots: its values stand in a `Slab` and hold their `SlotLinks` themselves.
@frozen public struct SlotEnds<Element>: BitwiseCopyable, Sendable, Equatable {
    public var first = Slot<Element>.none
    public var last = Slot<Element>.none

    @inlinable public init() {}
    @inlinable public var isEmpty: Bool { first == .none }
}

/// A kind of list: where an element has its links of it.
///
/// An element may stand in lists of several kinds.
public protocol SlotChain {
    associatedtype Element
    static func links(_ element: UnsafeMutablePointer<Element>) -> UnsafeMutablePointer<SlotLinks<Element>>
}

extension Slab {
    /// Puts a value behind another one of the list, or, behind `.none`, at its head.
    ///
    /// - Parameters:
    ///   - slot: a value that stands in no list of this kind.
    ///   - earlier: one that stands in this list, or `.none`.
    ///   - ends: the list's.
    ///   - chain: its kind.
    @inlinable
    public func link<Chain: SlotChain>(
        _ slot: Slot<Element>, behind earlier: Slot<Element>, in ends: inout SlotEnds<Element>, of chain: Chain.Type
    ) where Chain.Element == Element {
        let links = chain.links(pointer(slot))
        let later = earlier == .none ? ends.first : chain.links(pointer(earlier)).pointee.next
        links.pointee.previous = earlier
        links.pointee.next = later
        if earlier == .none { ends.first = slot } else { chain.links(pointer(earlier)).pointee.next = slot }
        if later == .none { ends.last = slot } else { chain.links(pointer(later)).pointee.previous = slot }
    }

    /// Takes a value out of its list.
    @inlinable
    public func unlink<Chain: SlotChain>(
        _ slot: Slot<Element>, from ends: inout SlotEnds<Element>, of chain: Chain.Type
    ) where Chain.Element == Element {
        let links = chain.links(pointer(slot))
        let (next, previous) = (links.pointee.next, links.pointee.previous)
        if next == .none { ends.last = previous } else { chain.links(pointer(next)).pointee.previous = previous }
        if previous == .none { ends.first = next } else { chain.links(pointer(previous)).pointee.next = next }
        links.pointee = SlotLinks()
    }
}
