internal import Glibc
internal import Platform

/// Whole requests, frames and configurations through a running gateway, from the bytes of a connection to the rows of the
/// embedded store and back.
///
/// The gateway is the server's own (`SteppedGateway`): HTTP reader, both APIs, fronts, loops, shards, journal, RocksDB. What is
/// not here: listening sockets, TLS, the hook, signals, the control thread's clock. It outlives an input, so that an input
/// costs its requests only; now and then it is closed, its folder is looked through, and it is opened again.
///
/// Input: a byte for the configuration to start with, a byte for how much the input may cost, then a script of requests,
/// frames, reloads and pauses.
package enum GatewayFuzz {
    /// The admin door's bearers: one who may do all, one who may only see the second app.
    static let bearers = ["0123456789abcdef", "fedcba9876543210"]

    private static let world = Lock<GatewayWorld?>(nil)
    private static let counts = Lock((requests: 0, inputs: 0))

    /// How many inputs a gateway takes before it is closed, looked through and opened again.
    ///
    /// Its folder is new at each fourth of these. An opening costs what hundreds of requests cost, so a run without the fuzzer takes more.
    package static var inputsPerOpening: Int {
        get { openings.withLock { $0 } }
        set { openings.withLock { $0 = newValue } }
    }
    private static let openings = Lock(64)

    /// Requests and publishes that were answered since the process began.
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

    /// Writes down what this gateway was given, since one input alone may not show again what it has found.
    private static func note(_ input: [UInt8], isFirst: Bool) {
        guard let path = getenv("LONGWIRE_FUZZ_HISTORY"), let file = fopen(path, isFirst ? "w" : "a") else { return }
        fputs(Corpus.encode(input) + "\n", file)
        fclose(file)
    }

    /// Closes the gateway, looks through its folder and removes it.
    static func finish() throws {
        try world.withLock { world in
            defer { world = nil }
            try world?.finish()
        }
    }

    /// What answers said, by code, since the process began: shows that the grammar gets past the front door.
    package static var answers: [String: Int] { tally.withLock { $0 } }
    static let tally = Lock<[String: Int]>([:])
}
