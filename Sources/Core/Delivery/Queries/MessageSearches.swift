internal import Structures
internal import Wire

struct MemorySearch {
    var message: MessageID
    var origin: Origin
    var next = MessageSlot.first
}

/// A search on disk for a message by id, because no row leads from the id to the device.
struct MessageSearch {
    var message: MessageID
    var bucket: Bucket
    var origin: Origin
}

/// Searches for messages by id alone: in memory a slice per turn, on disk one at a time.
struct MessageSearches {
    private static let waitingCount = 64

    /// The number of messages in memory compared per turn.
    var sliceCount: UInt32 = 16_384
    private(set) var inMemory: [MemorySearch] = []
    private(set) var isSearching = false
    private var searches: [MessageSearch] = []

    var hasMemorySearches: Bool { !inMemory.isEmpty }
    mutating func popMemorySearch() -> MemorySearch? { inMemory.isEmpty ? nil : inMemory.removeFirst() }

    /// Queues a search; returns false if too many wait.
    mutating func wait(_ search: MemorySearch) -> Bool {
        guard inMemory.count < Self.waitingCount else { return false }
        inMemory.append(search)
        return true
    }

    enum Admission { case now, later, tooManyWait }

    mutating func admit(_ search: MessageSearch) -> Admission {
        guard isSearching else {
            isSearching = true
            return .now
        }
        guard searches.count < Self.waitingCount else { return .tooManyWait }
        searches.append(search)
        return .later
    }

    /// Ends the running search.
    ///
    /// - Returns: the next search, which then counts as running.
    mutating func searched() -> MessageSearch? {
        guard !searches.isEmpty else {
            isSearching = false
            return nil
        }
        return searches.removeFirst()
    }
}
