/// A store for the client's state.
///
/// Calls come from one thread at a time: the client's thread, or the caller's before the start and after the stop.
public protocol StateStore: Sendable {
    /// Returns the stored state, or `nil` if none was ever stored.
    ///
    /// - Throws: when a state exists and cannot be read. Do not return `nil` in that case: the device would register anew and
    ///   lose its queue.
    func load() throws -> ClientState?

    /// Replaces the stored state.
    ///
    /// After a return the new state must survive a crash of the machine.
    ///
    /// - Throws: when the state cannot be stored. The old state must be intact then.
    func save(_ state: ClientState) throws
}

/// A store in memory, for tests and for devices that may register anew at each start.
public final class MemoryStateStore: StateStore {
    private let state: Guarded<ClientState?>

    public init(_ state: ClientState? = nil) { self.state = Guarded(state) }

    public func load() -> ClientState? { state.withValue { $0 } }
    public func save(_ newState: ClientState) { state.withValue { $0 = newState } }
}
