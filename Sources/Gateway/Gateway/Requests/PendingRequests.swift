/// The questions that wait for their answers, on one loop.
struct PendingRequests {
    /// The most pending questions of one kind, so that no kind crowds out the others; further ones are answered as busy.
    ///
    /// All types of `ShardQuestion` together are one kind (`PartitionRequest.kind`).
    static let kindLimit = 1 << 16
    static let limit = 1 << 18

    /// A class, so that a slot takes one word.
    private final class Pending {
        let kind: UInt8
        let complete: ((any Sendable)?) -> Void
        init(_ kind: UInt8, _ complete: @escaping ((any Sendable)?) -> Void) {
            (self.kind, self.complete) = (kind, complete)
        }
    }

    private var table = StampedTable<Pending>(limit: PendingRequests.limit)
    /// The number of pending questions by kind.
    private var counts = [Int](repeating: 0, count: Int(UInt8.max) + 1)

    var count: Int { table.count }

    /// Adds a question; `nil` if too many are pending.
    mutating func insert<Request: PartitionRequest>(
        _ request: Request, completion: @escaping (Request.Answer) -> Void
    ) -> (slot: UInt32, stamp: UInt32)? {
        let (busy, kind) = (request.busy, Int(Request.kind))
        guard counts[kind] < Self.kindLimit else { return nil }
        let place = table.insert(
            Pending(Request.kind) { answer in completion(answer as? Request.Answer ?? busy) })
        if place != nil { counts[kind] += 1 }
        return place
    }

    /// Removes a question; the caller runs the returned completion.
    mutating func remove(_ route: Route) -> (((any Sendable)?) -> Void)? {
        guard let pending = table.remove(route.slot, route.stamp) else { return nil }
        counts[Int(pending.kind)] -= 1
        return pending.complete
    }
}
