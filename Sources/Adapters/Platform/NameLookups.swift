/// Address lookups on separate threads, because the system's resolver blocks for half a minute if a name server hangs.
///
/// Concurrent lookups of a name share one thread. The last addresses of a name are cached for an outage of the name server.
package final class NameLookups: Sendable {
    package typealias Outcome = Result<[RemoteAddress], RemoteAddress.Failure>

    package static let shared = NameLookups()

    /// The maximum number of concurrent lookups, each with its thread.
    package static let threadLimit = 64
    /// The maximum number of cached names; a process needs the few of its configuration and its cluster.
    private static let keptLimit = 1_024

    private struct Name: Hashable {
        let host: String
        let port: UInt16
    }

    private struct State {
        var waiting: [Name: [@Sendable (Outcome) -> Void]] = [:]
        var kept: [Name: [RemoteAddress]] = [:]
    }

    private let state = Lock(State())
    private let lookUp: @Sendable (String, UInt16) -> Outcome

    /// Creates lookups; tests pass another `lookUp`.
    package init(lookUp: @escaping @Sendable (String, UInt16) -> Outcome = NameLookups.askSystem) {
        self.lookUp = lookUp
    }

    package static func askSystem(_ host: String, _ port: UInt16) -> Outcome {
        do throws(RemoteAddress.Failure) {
            return .success(try RemoteAddress.resolve(host: host, port: port))
        } catch { return .failure(error) }
    }

    /// Looks up a host's addresses; `done` runs once: immediately for a numeric address, otherwise usually on a lookup thread.
    package func ask(host: String, port: UInt16, done: @escaping @Sendable (Outcome) -> Void) {
        if let address = RemoteAddress.numeric(host: host, port: port) { return done(.success([address])) }
        let name = Name(host: host, port: port)
        let (isFirst, hasThread) = state.withLock { state in
            let isFirst = state.waiting[name] == nil
            guard !isFirst || state.waiting.count < Self.threadLimit else { return (true, false) }
            state.waiting[name, default: []].append(done)
            return (isFirst, true)
        }
        guard hasThread else {
            return done(.failure(RemoteAddress.Failure("the name \(host) waits: too many others are being looked up")))
        }
        guard isFirst else { return }
        do throws(SystemError) {
            // The thread is detached because the system's resolver cannot be cancelled.
            try Thread(named: "lookup") { [self] in answer(name, lookUp(host, port)) }.detach()
        } catch {
            answer(name, .failure(RemoteAddress.Failure("the name \(host) cannot be looked up: \(error)")))
        }
    }

    private func answer(_ name: Name, _ outcome: Outcome) {
        let waiting = state.withLock { state in
            if case .success(let addresses) = outcome {
                if state.kept.count >= Self.keptLimit { state.kept = [:] }
                state.kept[name] = addresses
            }
            return state.waiting.removeValue(forKey: name) ?? []
        }
        for done in waiting { done(outcome) }
    }

    /// Returns the host's cached addresses, or none if no lookup succeeded.
    package func known(host: String, port: UInt16) -> [RemoteAddress] {
        state.withLock { $0.kept[Name(host: host, port: port)] ?? [] }
    }

    /// Waits for a host's addresses and returns the cached ones if the lookup fails or times out.
    ///
    /// - Throws: when the lookup fails or times out and no addresses are cached.
    package func resolve(
        host: String, port: UInt16, timeoutMilliseconds: UInt64
    ) throws(RemoteAddress.Failure) -> [RemoteAddress] {
        let answer = Monitor<Outcome?>(nil)
        ask(host: host, port: port) { outcome in answer.broadcast { $0 = outcome } }
        let outcome = answer.wait(atMostMilliseconds: timeoutMilliseconds, while: { $0 == nil }, then: { $0 })
        if case .success(let addresses) = outcome { return addresses }
        let known = known(host: host, port: port)
        guard known.isEmpty else { return known }
        if case .failure(let failure) = outcome { throw failure }
        throw RemoteAddress.Failure(
            "the name server did not answer for \(host) within \(timeoutMilliseconds) ms; look at /etc/resolv.conf")
    }
}
