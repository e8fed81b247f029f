/// The route of the app's calls: to the mailbox of a running client, otherwise into the state store.
///
/// The store keeps taps, reports, verdicts and messages to the app's server. A tap before the start or after a stop therefore
/// survives the process. Calls that the store does not accept stay in memory, up to `Limits.keptCallCount`.
final class CallBoard: Sendable {
    private enum Phase {
        case idle
        /// A caller uses the store; the latch opens when that caller is done.
        case busy(Latch)
        case running(ClientMailbox, ended: Latch)
    }

    private struct State {
        var phase = Phase.idle
        var kept: [ClientCommand] = []
    }

    private let state = Guarded(State())
    private let store: any StateStore
    private let appID: String

    init(store: any StateStore, appID: String) { (self.store, self.appID) = (store, appID) }

    /// Returns false when the client does not run, or when its mailbox is full.
    func post(_ command: ClientCommand) -> Bool {
        state.withValue { state in
            guard case .running(let mailbox, _) = state.phase else { return false }
            return mailbox.post(command)
        }
    }

    /// Posts the commands, and keeps those that cannot be posted; returns false if there is no room to keep them.
    @discardableResult
    func postOrKeep(_ commands: [ClientCommand]) -> Bool {
        let rest = commands.filter { !post($0) }
        guard !rest.isEmpty else { return true }
        let isKept = state.withValue { state in
            guard state.kept.count + rest.count <= Limits.keptCallCount else { return false }
            state.kept += rest
            return true
        }
        storeKept()
        return isKept
    }

    var isRunning: Bool { ended != nil }

    /// A latch that opens when the running client has ended, or `nil` if no client runs.
    var ended: Latch? {
        state.withValue { if case .running(_, let ended) = $0.phase { ended } else { nil } }
    }

    /// Reads the state for a caller that has not reserved the store.
    ///
    /// - Returns: the state, or `nil` if no state was ever stored or the stored state belongs to another app.
    /// - Throws: an error if a client runs, or if the store cannot be read.
    func read() throws -> ClientState? {
        guard reserve() else {
            throw LongwireClientError(code: .wrongState, message: "the client runs, and its thread has the state")
        }
        defer { release() }
        let state = try store.load()
        return state?.appID == appID ? state : nil
    }

    // MARK: Starting and ending

    /// Reserves the store for this caller until `run` or `release`; returns false when a client runs.
    func reserve() -> Bool {
        while true {
            let (isFree, other) = state.withValue { state -> (Bool, Latch?) in
                switch state.phase {
                case .idle:
                    state.phase = .busy(Latch())
                    return (true, nil)
                case .busy(let latch): return (false, latch)
                case .running: return (false, nil)
                }
            }
            guard let other else { return isFree }
            other.wait()
        }
    }

    /// Writes the kept calls into the store.
    ///
    /// The caller must have reserved the store.
    ///
    /// - Returns: false when the store could not be read or written. All calls then stay in memory.
    @discardableResult
    func flush() -> Bool {
        let calls = state.withValue { state in
            defer { state.kept = [] }
            return state.kept
        }
        guard !calls.isEmpty else { return true }
        do {
            let old = try store.load()
            var new = old ?? ClientState(appID: appID)
            guard new.appID == appID else { throw LongwireClientError(code: .stateUnreadable, message: "another app") }
            for call in calls { new.keep(call) }
            if new != old ?? ClientState(appID: appID) { try store.save(new) }
            return true
        } catch {
            state.withValue { $0.kept.insert(contentsOf: calls, at: 0) }
            return false
        }
    }

    /// Switches to the running client and posts the kept calls to its mailbox.
    func run(_ mailbox: ClientMailbox, ended: Latch) {
        let waiting = state.withValue { state -> Latch? in
            defer { state.phase = .running(mailbox, ended: ended) }
            for call in state.kept { _ = mailbox.post(call) }
            state.kept = []
            if case .busy(let latch) = state.phase { return latch }
            return nil
        }
        waiting?.open()
    }

    /// Marks that no client runs, and stores calls that arrived too late for the client's thread.
    func release() {
        let waiting = state.withValue { state -> Latch? in
            defer { state.phase = .idle }
            if case .busy(let latch) = state.phase { return latch }
            return nil
        }
        waiting?.open()
        storeKept()
    }

    /// Stores the kept calls, unless another caller uses the store and will store them.
    private func storeKept() {
        while true {
            let mine = state.withValue { state -> Latch? in
                guard case .idle = state.phase, !state.kept.isEmpty else { return nil }
                let latch = Latch()
                state.phase = .busy(latch)
                return latch
            }
            guard let mine else { return }
            let isStored = flush()
            state.withValue { $0.phase = .idle }
            mine.open()
            // Calls that arrived during the flush are stored in the next round.
            if !isStored { return }
        }
    }
}
