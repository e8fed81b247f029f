/// Where a client keeps its state.
///
/// Called by one thread at a time: the client's own, or before the start and after the stop the caller's.
public protocol StateStore: Sendable {
    /// The stored state; `nil` when there has never been one.
    ///
    /// - Throws: when there is one and it cannot be read. It must not answer `nil` then: the device would register
    ///   anew and lose its queue.
    func load() throws -> ClientState?

    /// Replaces the stored state. When this returns the new state survives a crash of the machine; when it throws,
    /// the old one does.
    func save(_ state: ClientState) throws
}

/// Keeps the state in memory: for tests, and for devices that may be new ones at each start.
public final class MemoryStateStore: StateStore {
    private let state: Guarded<ClientState?>

    public init(_ state: ClientState? = nil) { self.state = Guarded(state) }

    public func load() -> ClientState? { state.withValue { $0 } }
    public func save(_ newState: ClientState) { state.withValue { $0 = newState } }
}
