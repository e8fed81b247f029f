/// Where the app's calls go: to the client's thread while there is one; else taps, reports and verdicts go into the store.
///
/// So a tap before the start, or behind a stop, outlives the process. What no store takes waits in memory, within a bound.
final class CallBoard: Sendable {
    private enum Phase {
        case idle
        /// A caller uses the store; opens when it is done.
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

    /// False when the client does not run, or too many calls wait for its thread already.
    func post(_ command: ClientCommand) -> Bool {
        state.withValue { state in
            guard case .running(let mailbox, _) = state.phase else { return false }
            return mailbox.post(command)
        }
    }

    /// False when they can be neither told nor kept.
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

    /// Opens when the client that runs has ended; `nil`: none runs.
    var ended: Latch? {
        state.withValue { if case .running(_, let ended) = $0.phase { ended } else { nil } }
    }

    // MARK: Starting and ending

    /// Keeps everybody else from the store until `run` or `release`; false when a client runs.
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

    /// Writes what is kept into the store, if it can; only when reserved.
    ///
    /// - Returns: false when it could not, and all of it is still kept.
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
            if new != old { try store.save(new) }
            return true
        } catch {
            state.withValue { $0.kept.insert(contentsOf: calls, at: 0) }
            return false
        }
    }

    /// The client's thread is about to run; it gets what no store took.
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

    /// There is no client's thread (any more); what came too late for it is stored.
    func release() {
        let waiting = state.withValue { state -> Latch? in
            defer { state.phase = .idle }
            if case .busy(let latch) = state.phase { return latch }
            return nil
        }
        waiting?.open()
        storeKept()
    }

    /// Stores what is kept, unless another caller will.
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
            // What came meanwhile is kept, too.
            if !isStored { return }
        }
    }
}
