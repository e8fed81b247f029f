internal import Structures
internal import Wire

/// A search of the messages in memory, to find one by its id alone.
struct MemorySearch {
    var message: MessageID
    var origin: Origin
    /// The slot where it continues.
    var next = MessageSlot.first
}

/// A message that only a reader can find, since no row leads from it to its device.
struct MessageSearch {
    var message: MessageID
    var bucket: Bucket
    var origin: Origin
}

/// Queries for messages by id alone: searches of those in memory, a slice a turn, and one search by a reader.
struct MessageSearches {
    /// How many of each wait.
    private static let waitingCount = 64

    /// Messages in memory that one turn compares.
    var sliceCount: UInt32 = 16_384
    private(set) var inMemory: [MemorySearch] = []
    private(set) var isSearching = false
    private var searches: [MessageSearch] = []

    var hasMemorySearches: Bool { !inMemory.isEmpty }
    mutating func popMemorySearch() -> MemorySearch? { inMemory.isEmpty ? nil : inMemory.removeFirst() }

    /// False when too many wait.
    mutating func wait(_ search: MemorySearch) -> Bool {
        guard inMemory.count < Self.waitingCount else { return false }
        inMemory.append(search)
        return true
    }

    enum Admission { case now, later, tooManyWait }

    /// One search is under way at a time; the others wait in order.
    mutating func admit(_ search: MessageSearch) -> Admission {
        guard isSearching else {
            isSearching = true
            return .now
        }
        guard searches.count < Self.waitingCount else { return .tooManyWait }
        searches.append(search)
        return .later
    }

    /// The search under way has ended.
    ///
    /// - Returns: the next one, which is under way from then on.
    mutating func searched() -> MessageSearch? {
        guard !searches.isEmpty else {
            isSearching = false
            return nil
        }
        return searches.removeFirst()
    }
}
