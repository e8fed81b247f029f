internal import Glibc

/// A free list of request buffers that a loop's connections share, so that an idle connection needs none.
package final class HTTPRequestMemory {
    private var pieces: [UnsafeMutableRawPointer] = []

    package init() {}

    deinit { for piece in pieces { free(piece) } }

    /// Returns a buffer of `Limits.firstRequestByteCount` bytes from the free list, if any.
    fileprivate func take() -> UnsafeMutableRawPointer? { pieces.popLast() }

    /// - Returns: `false` if the free list is full. The caller then still owns the buffer.
    fileprivate func put(_ piece: UnsafeMutableRawPointer) -> Bool {
        guard pieces.count < Limits.keptRequestCount else { return false }
        pieces.append(piece)
        return true
    }
}

/// A request's bytes in contiguous memory: head, body and space for zero padding.
struct HTTPRequestBuffer: ~Copyable {
    private var start: UnsafeMutableRawPointer?
    private var capacity = 0
    private(set) var count = 0
    /// The total size if known, which bounds the allocation.
    private var expected = Int.max
    /// The free list, or `nil` to use only the allocator.
    private let memory: HTTPRequestMemory?

    init(_ memory: HTTPRequestMemory? = nil) { self.memory = memory }

    deinit { free(start) }

    var isBare: Bool { start == nil }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start, count: count) }

    /// Appends bytes and at least doubles the memory if it must grow; an announced body takes no memory before it arrives.
    mutating func append(_ more: UnsafeRawBufferPointer) {
        guard let source = more.baseAddress, !more.isEmpty else { return }
        reserve(count + more.count)
        guard let start else { return }
        (start + count).copyMemory(from: source, byteCount: more.count)
        count += more.count
    }

    mutating func expect(_ byteCount: Int) { expected = byteCount }

    mutating func removeLast(to newCount: Int) { count = min(count, newCount) }

    mutating func pad() {
        reserve(count)
        guard let start else { return }
        (start + count).initializeMemory(as: UInt8.self, repeating: 0, count: Limits.bodyPaddingByteCount)
    }

    /// Clears the bytes and releases the memory, because most connections are usually idle.
    mutating func removeAll() {
        count = 0
        expected = .max
        guard let piece = start else { return }
        if capacity != Limits.firstRequestByteCount || !(memory?.put(piece) ?? false) { free(piece) }
        (start, capacity) = (nil, 0)
    }

    private mutating func reserve(_ wanted: Int) {
        let needed = wanted + Limits.bodyPaddingByteCount
        guard needed > capacity else { return }
        let most = expected == .max ? Int.max : expected + Limits.bodyPaddingByteCount
        let new = max(needed, min(max(capacity * 2, Limits.firstRequestByteCount), most))
        if start == nil, new == Limits.firstRequestByteCount, let piece = memory?.take() {
            (start, capacity) = (piece, new)
            return
        }
        guard let grown = realloc(start, new) else { preconditionFailure("out of memory") }
        (start, capacity) = (grown, new)
    }
}
