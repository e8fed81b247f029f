internal import Platform

/// Gives memory back to the system when a burst is over.
///
/// After a storm of Hellos or a spill the allocator keeps free memory between pieces that stay, and the database keeps what
/// was read once. Both serve the next burst; if none comes for a while, they are memory that idle connections pay for. While
/// work goes on nothing is done, so that nobody waits for it.
struct QuietPeriod {
    private var disturbedAt: UInt64?
    private var readCount = 0
    private var hasCache = false

    /// Rows were moved: there will be something to give back.
    mutating func isDisturbed(at now: UInt64) { disturbedAt = now }

    /// To be called about twice a second, by the spiller's thread.
    ///
    /// `isWriting`: something is on its way to the disk now; a process that serves many messages seldom has nothing there.
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
