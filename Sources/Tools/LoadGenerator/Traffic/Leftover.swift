/// Pending bytes of one connection: an incomplete frame, or bytes that the socket did not accept.
///
/// An empty one has no allocation, so idle connections need no memory for it. The owner must call `clear` before it drops the
/// value.
struct Leftover {
    private(set) var start: UnsafeMutableRawPointer?
    private(set) var count = 0

    mutating func store(_ bytes: UnsafeRawPointer, _ byteCount: Int) {
        guard byteCount > 0 else { return clear() }
        let fresh = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: 8)
        fresh.copyMemory(from: bytes, byteCount: byteCount)
        start?.deallocate()
        (start, count) = (fresh, byteCount)
    }

    mutating func append(_ bytes: UnsafeRawPointer, _ byteCount: Int) {
        let fresh = UnsafeMutableRawPointer.allocate(byteCount: count + byteCount, alignment: 8)
        if let start { fresh.copyMemory(from: start, byteCount: count) }
        (fresh + count).copyMemory(from: bytes, byteCount: byteCount)
        start?.deallocate()
        (start, count) = (fresh, count + byteCount)
    }

    /// Moves the pending bytes to the start of a buffer, which must be large enough.
    ///
    /// - Returns: the number of bytes.
    @inline(__always)
    mutating func take(into buffer: UnsafeMutableRawPointer) -> Int {
        guard let start else { return 0 }
        let taken = count
        buffer.copyMemory(from: start, byteCount: taken)
        clear()
        return taken
    }

    mutating func drop(first byteCount: Int) {
        guard let start, byteCount < count else { return clear() }
        store(start + byteCount, count - byteCount)
    }

    mutating func clear() {
        start?.deallocate()
        (start, count) = (nil, 0)
    }
}
