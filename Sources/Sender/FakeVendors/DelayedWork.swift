/// Work of a fake for a later time, such as an answer that a script delays.
package struct DelayedWork {
    private var entries: [(at: UInt64, work: () -> Void)] = []

    package init() {}

    package mutating func add(at time: UInt64, _ work: @escaping () -> Void) { entries.append((time, work)) }

    /// Removes the work that is due, and returns it in the order of `add`.
    package mutating func takeDue(_ now: UInt64) -> [() -> Void] {
        guard entries.contains(where: { $0.at <= now }) else { return [] }
        defer { entries.removeAll { $0.at <= now } }
        return entries.filter { $0.at <= now }.map(\.work)
    }
}
