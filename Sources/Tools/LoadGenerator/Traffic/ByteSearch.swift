internal import Glibc

/// A search for short texts in large answers, based on memchr.
enum ByteSearch {
    /// Returns the offset after the first occurrence of `pattern` at or after `offset`.
    @inline(__always)
    static func find(_ pattern: StaticString, in bytes: UnsafeRawBufferPointer, from offset: Int = 0) -> Int? {
        find(
            UnsafeRawBufferPointer(start: pattern.utf8Start, count: pattern.utf8CodeUnitCount), in: bytes, from: offset)
    }

    static func find(_ pattern: UnsafeRawBufferPointer, in bytes: UnsafeRawBufferPointer, from offset: Int = 0) -> Int?
    {
        guard let base = bytes.baseAddress, let wanted = pattern.baseAddress, bytes.count - offset >= pattern.count
        else { return nil }
        // memchr searches for a byte that is rare in JSON. Only at its occurrences is the pattern compared.
        let anchor = pattern.firstIndex(where: isSeldom) ?? pattern.count / 2
        var start = offset + anchor
        let end = bytes.count - pattern.count + anchor
        while start <= end {
            guard let hit = memchr(base + start, CInt(pattern[anchor]), end - start + 1) else { return nil }
            let place = UnsafeRawPointer(hit) - base
            if memcmp(base + place - anchor, wanted, pattern.count) == 0 { return place - anchor + pattern.count }
            start = place + 1
        }
        return nil
    }

    private static func isSeldom(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "v"), UInt8(ascii: "w"), UInt8(ascii: "x"): true
        default: false
        }
    }
}
