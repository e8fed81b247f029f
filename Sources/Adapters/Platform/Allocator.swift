internal import CSystem

/// Settings of the C library's allocator for large allocations.
package enum Allocator {
    /// Makes the allocator return large allocations to the system when they are freed.
    ///
    /// Must be called before threads start. By default, freeing a large allocation raises the allocator's mmap threshold. Later
    /// allocations of that size are mixed with small, long-lived ones, so the memory of one burst (rows or journal blocks waiting
    /// for the disk) is never returned.
    package static func giveLargePiecesBack() {
        longwire_fix_malloc_thresholds(CInt(Limits.mappedByteCount), CInt(Limits.keptTopByteCount))
    }

    /// Returns free whole pages to the system; allocations of other threads may block for some milliseconds.
    package static func giveFreeMemoryBack() { longwire_trim_malloc() }
}
