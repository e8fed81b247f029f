/// An array of trivial values in chunks: growth does not move the values, so the allocator is left with no large hole.
///
/// Every index may be read and written. An index that was never written reads as the initial value. The first write to a chunk
/// allocates it.
public struct PagedArray<Element: BitwiseCopyable>: ~Copyable {
    @inlinable static var chunkShift: UInt32 { 9 }
    @inlinable static var chunkCount: Int { 1 << Int(chunkShift) }

    @usableFromInline let blank: Element
    // An array, not a pointer: the compiler (6.3) skips `deinit` of a generic structure with only trivial fields inside another
    // one.
    @usableFromInline var chunks = [UnsafeMutablePointer<Element>?](repeating: nil, count: 16)

    @inlinable public init(repeating blank: Element) { self.blank = blank }

    deinit { for chunk in chunks { chunk?.deallocate() } }

    /// Returns the value's address, or `nil` if its chunk is not allocated.
    @inlinable public func existing(_ index: UInt32) -> UnsafeMutablePointer<Element>? {
        let chunk = Int(index >> Self.chunkShift)
        guard chunk < chunks.count, let base = chunks[chunk] else { return nil }
        return base + (Int(index) & (Self.chunkCount - 1))
    }

    /// Returns the address of a value that was written before.
    @inlinable public func known(_ index: UInt32) -> UnsafeMutablePointer<Element> {
        assert(existing(index) != nil, "never written")
        return chunks[Int(index >> Self.chunkShift)].unsafelyUnwrapped + (Int(index) & (Self.chunkCount - 1))
    }

    /// Returns the value's place and allocates its chunk if needed; the place never moves.
    @inlinable public mutating func at(_ index: UInt32) -> Place<Element> { unsafe Place(pointer(index)) }

    @inlinable public mutating func pointer(_ index: UInt32) -> UnsafeMutablePointer<Element> {
        if let found = existing(index) { return found }
        return make(index)
    }

    @inlinable public subscript(index: UInt32) -> Element { existing(index)?.pointee ?? blank }

    @usableFromInline mutating func make(_ index: UInt32) -> UnsafeMutablePointer<Element> {
        let chunk = Int(index >> Self.chunkShift)
        if chunk >= chunks.count {
            var capacity = chunks.count * 2
            while capacity <= chunk { capacity *= 2 }
            chunks += [UnsafeMutablePointer<Element>?](repeating: nil, count: capacity - chunks.count)
        }
        let base = UnsafeMutablePointer<Element>.allocate(capacity: Self.chunkCount)
        base.initialize(repeating: blank, count: Self.chunkCount)
        chunks[chunk] = base
        return base + (Int(index) & (Self.chunkCount - 1))
    }
}
