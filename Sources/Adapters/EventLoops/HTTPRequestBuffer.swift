internal import Glibc

/// Pieces for requests that one loop's connections take turns with, so that an idle connection has none.
///
/// Not thread-safe: the loop alone uses it.
package final class HTTPRequestMemory {
    private var pieces: [UnsafeMutableRawPointer] = []

    package init() {}

    deinit { for piece in pieces { free(piece) } }

    /// A piece of `Limits.firstRequestByteCount`, if there is one.
    fileprivate func take() -> UnsafeMutableRawPointer? { pieces.popLast() }

    /// - Returns: false when there are enough, and the piece stays the caller's.
    fileprivate func put(_ piece: UnsafeMutableRawPointer) -> Bool {
        guard pieces.count < Limits.keptRequestCount else { return false }
        pieces.append(piece)
        return true
    }
}

/// One request's bytes in one piece: its head, then its body, then room for zeros behind it.
struct HTTPRequestBuffer: ~Copyable {
    private var start: UnsafeMutableRawPointer?
    private var capacity = 0
    private(set) var count = 0
    /// What will come in all, if that is known: no more memory than that is asked for.
    private var expected = Int.max
    /// `nil`: the allocator alone.
    private let memory: HTTPRequestMemory?

    init(_ memory: HTTPRequestMemory? = nil) { self.memory = memory }

    deinit { free(start) }

    /// It holds no memory.
    var isBare: Bool { start == nil }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start, count: count) }

    /// Appends, in memory that at least doubles, so that a body that was only announced takes none.
    mutating func append(_ more: UnsafeRawBufferPointer) {
        guard let source = more.baseAddress, !more.isEmpty else { return }
        reserve(count + more.count)
        guard let start else { return }
        (start + count).copyMemory(from: source, byteCount: more.count)
        count += more.count
    }

    /// Says how many bytes will come in all.
    mutating func expect(_ byteCount: Int) { expected = byteCount }

    mutating func removeLast(to newCount: Int) { count = min(count, newCount) }

    /// Writes the zeros behind the bytes.
    mutating func pad() {
        reserve(count)
        guard let start else { return }
        (start + count).initializeMemory(as: UInt8.self, repeating: 0, count: Limits.bodyPaddingByteCount)
    }

    /// Forgets the bytes and gives the memory back: most connections are idle most of the time.
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
