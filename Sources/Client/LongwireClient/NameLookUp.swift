/// One look-up of a name: what it brings or, when it takes too long, the addresses that an earlier one brought.
final class NameLookUp {
    /// Socket addresses, the best one first.
    typealias Addresses = Result<[[UInt8]], TransportFailure>

    private let work: BackgroundWork<Addresses>?
    private let literal: [[UInt8]]?
    private let endpoint: Endpoint
    private let known: KnownAddresses
    private let due = System.now().monotonic + Limits.lookUpMilliseconds

    /// Begins on another thread, which calls `wake` behind it.
    ///
    /// `literal` is what the name means without asking a name server; then `wake` is called here.
    ///
    /// - Throws: when there is no thread to ask on, and no earlier answer.
    init(
        of endpoint: Endpoint, literal: [[UInt8]]?, within allowance: ThreadAllowance,
        known: KnownAddresses = .shared, resolve: @escaping @Sendable (Endpoint) -> Addresses,
        wake: @escaping @Sendable () -> Void
    ) throws(TransportFailure) {
        (self.endpoint, self.literal, self.known) = (endpoint, literal, known)
        work = literal == nil ? BackgroundWork(within: allowance, { resolve(endpoint) }, wake: wake) : nil
        if work == nil { wake() }
        guard work != nil || literal != nil || known[endpoint] != nil else {
            throw TransportFailure(reason: "cannot look up \(endpoint.host): earlier look-ups have not come back")
        }
    }

    /// `nil`: not yet.
    var result: Addresses? {
        if let literal { return .success(literal) }
        if let found = work?.value {
            if case .success(let addresses) = found { known.remember(addresses, of: endpoint) }
            return found
        }
        guard work == nil || System.now().monotonic >= due else { return nil }
        return known[endpoint].map { .success($0) }
    }

    /// When `result` may have something without the look-up's end.
    var deadline: Int64? { known[endpoint] == nil ? nil : due }
}

/// The addresses that names had last, in this process.
final class KnownAddresses: Sendable {
    /// Of the whole process.
    static let shared = KnownAddresses()

    /// The last one used last.
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
