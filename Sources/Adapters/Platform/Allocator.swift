internal import CSystem

/// How the C library's allocator treats large pieces of memory.
package enum Allocator {
    /// Makes large pieces go back to the system as soon as they are freed; to be called before there are threads.
    ///
    /// By itself the allocator takes the first large piece that is freed as a sign to keep all pieces of its size from
    /// then on. They then lie among small ones that stay. What a burst needed once (rows on their way to the disk,
    /// blocks of the journal) is never given back.
    package static func giveLargePiecesBack() {
        longwire_fix_malloc_thresholds(CInt(Limits.mappedByteCount), CInt(Limits.keptTopByteCount))
    }

    /// Gives back whole pages that are free between pieces in use; other threads' allocations may wait some milliseconds.
    package static func giveFreeMemoryBack() { longwire_trim_malloc() }
}
