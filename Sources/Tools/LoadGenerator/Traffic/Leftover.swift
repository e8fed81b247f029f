/// Bytes of one connection that had to wait: the beginning of a frame, or what a socket did not take.
///
/// Empty, it is a null pointer: an idle connection holds nothing. The owner of the connection calls `clear` when it
/// drops it.
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

    /// Copies what waits to the front of a buffer that is at least as large, and is empty then.
    ///
    /// - Returns: how many bytes.
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
