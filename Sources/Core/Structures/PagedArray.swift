/// An array of trivial values in chunks: it grows without moving what it holds and leaves no hole behind.
///
/// Every index may be read and written; what was never written is the value that the array was made with. A chunk is
/// allocated when one of its indices is written first.
public struct PagedArray<Element: BitwiseCopyable>: ~Copyable {
    @inlinable static var chunkShift: UInt32 { 9 }
    @inlinable static var chunkCount: Int { 1 << Int(chunkShift) }

    @usableFromInline let blank: Element
    // An array, not a pointer: of a generic structure all of whose fields are trivial the compiler (6.3) runs no `deinit`
    // where it is a member of another.
    @usableFromInline var chunks = [UnsafeMutablePointer<Element>?](repeating: nil, count: 16)

    @inlinable public init(repeating blank: Element) { self.blank = blank }

    deinit { for chunk in chunks { chunk?.deallocate() } }

    /// The value's place; `nil` in a chunk where nothing was ever written.
    @inlinable public func existing(_ index: UInt32) -> UnsafeMutablePointer<Element>? {
        let chunk = Int(index >> Self.chunkShift)
        guard chunk < chunks.count, let base = chunks[chunk] else { return nil }
        return base + (Int(index) & (Self.chunkCount - 1))
    }

    /// The place of a value that was written before.
    @inlinable public func known(_ index: UInt32) -> UnsafeMutablePointer<Element> {
        assert(existing(index) != nil, "never written")
        return chunks[Int(index >> Self.chunkShift)].unsafelyUnwrapped + (Int(index) & (Self.chunkCount - 1))
    }

    /// The value's place, made if need be; it never moves.
    @inlinable public mutating func at(_ index: UInt32) -> Place<Element> { unsafe Place(pointer(index)) }

    /// The same as a pointer.
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
