internal import Glibc
internal import Platform

/// Sends whole requests, frames and configurations through a running gateway, from connection bytes to the rows of the embedded
/// store and back.
///
/// The gateway is the server's own (`SteppedGateway`): HTTP reader, both APIs, fronts, loops, shards, journal, RocksDB. Excluded
/// are listening sockets, TLS, the hook, signals and the control thread's clock. The gateway outlives an input, so an input costs
/// only its requests. After several inputs it is closed, its folder is checked, and it is reopened.
///
/// Input: a byte for the initial configuration, a byte for the cost limit of the input, then a script of requests, frames,
/// reloads and pauses.
package enum GatewayFuzz {
    /// The admin listener's bearer tokens: one with all permissions, one that may only view the second app.
    static let bearers = ["0123456789abcdef", "fedcba9876543210"]

    private static let world = Lock<GatewayWorld?>(nil)
    private static let counts = Lock((requests: 0, inputs: 0))

    /// The number of inputs before a gateway is closed, checked and reopened.
    ///
    /// Each fourth time its folder is new. Opening costs as much as hundreds of requests, so a run without the fuzzer uses a
    /// higher number.
    package static var inputsPerOpening: Int {
        get { openings.withLock { $0 } }
        set { openings.withLock { $0 = newValue } }
    }
    private static let openings = Lock(64)

    /// The number of requests and publishes answered since the process started.
    package static var requestCount: Int { counts.withLock { $0.requests } }

    static func run(_ input: [UInt8]) throws {
        try world.withLock { world in
            var script = Script(input)
            do {
                let inputs = counts.withLock { counts in
                    counts.inputs += 1
                    return counts.inputs
                }
                let share = inputsPerOpening
                if inputs % (4 * share) == 0 {
                    try world?.finish()
                    world = nil
                }
                let isNew = world == nil
                let current = try world ?? GatewayWorld()
                world = current
                note(input, isFirst: isNew)
                if inputs % share == 0 { try current.reopen(round: inputs / share) }
                try current.play(&script)
                counts.withLock { $0.requests += current.takeRequestCount() }
            } catch {
                world?.abandon()
                world = nil
                throw error
            }
        }
    }

    /// Appends an input to the gateway's history, because one input alone may not reproduce a failure.
    private static func note(_ input: [UInt8], isFirst: Bool) {
        guard let path = getenv("LONGWIRE_FUZZ_HISTORY"), let file = fopen(path, isFirst ? "w" : "a") else { return }
        fputs(Corpus.encode(input) + "\n", file)
        fclose(file)
    }

    /// Closes the gateway, checks its folder and removes it.
    static func finish() throws {
        try world.withLock { world in
            defer { world = nil }
            try world?.finish()
        }
    }

    /// The number of answers by code since the process started, which shows how far requests get.
    package static var answers: [String: Int] { tally.withLock { $0 } }
    static let tally = Lock<[String: Int]>([:])
}
