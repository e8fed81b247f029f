internal import Platform

/// Returns free memory to the system after a burst.
///
/// After many Hellos or a spill, the allocator keeps free memory and the database keeps cached blocks. Both serve the next burst.
/// Between bursts they only waste memory. Nothing is released during load, so that no request waits for it.
struct QuietPeriod {
    private var disturbedAt: UInt64?
    private var readCount = 0
    private var hasCache = false

    mutating func isDisturbed(at now: UInt64) { disturbedAt = now }

    /// Releases memory after a quiet period.
    ///
    /// The spiller's thread calls this about twice a second. `isWriting` is true while bytes are being committed, which postpones
    /// the release.
    mutating func look(at database: RowDatabase, now: UInt64, isWriting: Bool) {
        if isWriting, disturbedAt != nil { disturbedAt = now }
        if database.readCount != readCount {
            readCount = database.readCount
            (disturbedAt, hasCache) = (now, true)
        }
        guard let since = disturbedAt, now > since + Limits.calmSeconds * 1_000_000_000 else { return }
        disturbedAt = nil
        if hasCache, database.cachedByteCount > Limits.keptCacheByteCount { database.emptyCache() }
        hasCache = false
        Allocator.giveFreeMemoryBack()
    }
}
