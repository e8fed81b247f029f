/// A name lookup; if it is slow, the addresses of an earlier lookup of the same name are used.
final class NameLookUp {
    /// Socket addresses, in order of preference.
    typealias Addresses = Result<[[UInt8]], TransportFailure>

    private let work: BackgroundWork<Addresses>?
    private let literal: [[UInt8]]?
    private let endpoint: Endpoint
    private let known: KnownAddresses
    private let due = System.now().monotonic + Limits.lookUpMilliseconds

    /// Starts the lookup on another thread, which calls `wake` at the end.
    ///
    /// `literal` is the address if the host is numeric. No lookup runs then, and `wake` is called at once.
    ///
    /// - Throws: when no thread is available and no earlier addresses are known.
    init(
        of endpoint: Endpoint, literal: [[UInt8]]?, within allowance: ThreadAllowance,
        known: KnownAddresses = .shared, resolve: @escaping @Sendable (Endpoint) -> Addresses,
        wake: @escaping @Sendable () -> Void
    ) throws(TransportFailure) {
        (self.endpoint, self.literal, self.known) = (endpoint, literal, known)
        work = literal == nil ? BackgroundWork(within: allowance, { resolve(endpoint) }, wake: wake) : nil
        if work == nil { wake() }
        guard work != nil || literal != nil || known[endpoint] != nil else {
            throw TransportFailure(reason: "cannot look up \(endpoint.host): earlier look-ups are unfinished")
        }
    }

    /// The addresses or the failure, or `nil` while the lookup runs.
    var result: Addresses? {
        if let literal { return .success(literal) }
        if let found = work?.value {
            if case .success(let addresses) = found { known.remember(addresses, of: endpoint) }
            return found
        }
        guard work == nil || System.now().monotonic >= due else { return nil }
        return known[endpoint].map { .success($0) }
    }

    /// The time when `result` falls back to earlier addresses, or `nil` if none are known.
    var deadline: Int64? { known[endpoint] == nil ? nil : due }
}

final class KnownAddresses: Sendable {
    static let shared = KnownAddresses()

    /// The entries, with the one used last at the end.
    private let list = Guarded<[(endpoint: Endpoint, addresses: [[UInt8]])]>([])

    subscript(endpoint: Endpoint) -> [[UInt8]]? {
        list.withValue { list in list.first { $0.endpoint == endpoint }?.addresses }
    }

    func remember(_ addresses: [[UInt8]], of endpoint: Endpoint) {
        list.withValue { list in
            list.removeAll { $0.endpoint == endpoint }
            list.append((endpoint, addresses))
            list.removeFirst(max(0, list.count - Limits.knownNameCount))
        }
    }
}
