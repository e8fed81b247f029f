internal import Glibc

/// One request's bytes in one piece: its head, then its body, then room for zeros behind it.
struct HTTPRequestBuffer: ~Copyable {
    private var start: UnsafeMutableRawPointer?
    private var capacity = 0
    private(set) var count = 0
    /// What will come in all, if that is known: no more memory than that is asked for.
    private var expected = Int.max

    deinit { free(start) }

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

    /// Forgets the bytes; the memory is kept for the next request unless it is more than most need.
    mutating func removeAll() {
        count = 0
        expected = .max
        guard capacity > Limits.keptRequestByteCount else { return }
        free(start)
        (start, capacity) = (nil, 0)
    }

    private mutating func reserve(_ wanted: Int) {
        let needed = wanted + Limits.bodyPaddingByteCount
        guard needed > capacity else { return }
        let most = expected == .max ? Int.max : expected + Limits.bodyPaddingByteCount
        let new = max(needed, min(max(capacity * 2, Limits.firstRequestByteCount), most))
        guard let memory = realloc(start, new) else { preconditionFailure("out of memory") }
        (start, capacity) = (memory, new)
    }
}
