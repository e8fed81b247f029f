/// The neighbors of a value in a linked list of slots, or `.none` at an end.
public struct SlotLinks<Element>: BitwiseCopyable, Sendable {
    public var next = Slot<Element>.none
    public var previous = Slot<Element>.none

    @inlinable public init() {}
    @inlinable init(next: Slot<Element>, previous: Slot<Element>) { (self.next, self.previous) = (next, previous) }
}

/// The ends of a linked list of slots; the values are in a `Slab` and store their own `SlotLinks`.
public struct SlotEnds<Element>: BitwiseCopyable, Sendable, Equatable {
    public var first = Slot<Element>.none
    public var last = Slot<Element>.none

    @inlinable public init() {}
    @inlinable public var isEmpty: Bool { first == .none }
}

/// A kind of linked list, which defines the location of the links in an element; an element may be in lists of several kinds.
public protocol SlotChain {
    associatedtype Element
    static func links(_ element: Place<Element>) -> SlotLinks<Element>
    static func setLinks(_ element: Place<Element>, _ links: SlotLinks<Element>)
}

extension Slab {
    /// Inserts a value after another one of the list, or at the head if `earlier` is `.none`.
    ///
    /// - Parameters:
    ///   - slot: a value that is in no list of this kind.
    ///   - earlier: a value of this list, or `.none`.
    ///   - ends: the ends of the list.
    ///   - chain: the kind of the list.
    @inlinable
    public func link<Chain: SlotChain>(
        _ slot: Slot<Element>, behind earlier: Slot<Element>, in ends: inout SlotEnds<Element>, of chain: Chain.Type
    ) where Chain.Element == Element {
        let later = earlier == .none ? ends.first : chain.links(at(earlier)).next
        chain.setLinks(at(slot), SlotLinks(next: later, previous: earlier))
        if earlier == .none { ends.first = slot } else { setNext(earlier, slot, chain) }
        if later == .none { ends.last = slot } else { setPrevious(later, slot, chain) }
    }

    @inlinable
    public func unlink<Chain: SlotChain>(
        _ slot: Slot<Element>, from ends: inout SlotEnds<Element>, of chain: Chain.Type
    ) where Chain.Element == Element {
        let links = chain.links(at(slot))
        if links.next == .none { ends.last = links.previous } else { setPrevious(links.next, links.previous, chain) }
        if links.previous == .none { ends.first = links.next } else { setNext(links.previous, links.next, chain) }
        chain.setLinks(at(slot), SlotLinks())
    }

    @inlinable
    func setNext<Chain: SlotChain>(_ slot: Slot<Element>, _ next: Slot<Element>, _ chain: Chain.Type)
    where Chain.Element == Element {
        let element = at(slot)
        chain.setLinks(element, SlotLinks(next: next, previous: chain.links(element).previous))
    }

    @inlinable
    func setPrevious<Chain: SlotChain>(_ slot: Slot<Element>, _ previous: Slot<Element>, _ chain: Chain.Type)
    where Chain.Element == Element {
        let element = at(slot)
        chain.setLinks(element, SlotLinks(next: chain.links(element).next, previous: previous))
    }
}
