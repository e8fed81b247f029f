// Invariants for untrusted bytes, as plain functions. The fuzzer calls them with generated inputs, the ordinary tests with the
// committed inputs.

/// An entry point for untrusted bytes, with its invariants.
package struct FuzzTarget: Sendable {
    /// The name of the target, its corpus and its dictionary.
    package let name: String
    /// The maximum length of a useful input.
    package let byteLimit: Int
    /// Runs one input; throws `FuzzFailure` if an invariant fails.
    ///
    /// A trap is a failure, too.
    package let run: @Sendable ([UInt8]) throws -> Void
    package let timeoutSeconds: Int
    /// Ends state that outlives an input; throws as `run` does.
    package let finish: @Sendable () throws -> Void
    /// The number of requests so far, for targets whose inputs make many.
    package let requestCount: (@Sendable () -> Int)?

    init(
        name: String, byteLimit: Int, timeoutSeconds: Int = 20, run: @escaping @Sendable ([UInt8]) throws -> Void,
        finish: @escaping @Sendable () throws -> Void = {}, requestCount: (@Sendable () -> Int)? = nil
    ) {
        (self.name, self.byteLimit, self.timeoutSeconds) = (name, byteLimit, timeoutSeconds)
        (self.run, self.finish, self.requestCount) = (run, finish, requestCount)
    }

    package static let all: [FuzzTarget] = [
        FuzzTarget(name: "frames", byteLimit: 4_096, run: FrameFuzz.run),
        FuzzTarget(name: "messages", byteLimit: 4_096, run: MessageFuzz.run),
        FuzzTarget(name: "http", byteLimit: 4_096, run: HTTPFuzz.run),
        FuzzTarget(name: "websocket", byteLimit: 2_048, run: WebSocketFuzz.run),
        FuzzTarget(name: "http2", byteLimit: 1_024, run: HTTP2Fuzz.run),
        FuzzTarget(name: "json", byteLimit: 4_096, run: JSONFuzz.run),
        FuzzTarget(name: "push", byteLimit: 4_096, run: PushFuzz.run),
        FuzzTarget(name: "admin", byteLimit: 4_096, run: AdminFuzz.run),
        FuzzTarget(name: "configuration", byteLimit: 4_096, run: ConfigurationFuzz.run),
        FuzzTarget(name: "rows", byteLimit: 2_048, run: RowFuzz.run),
        FuzzTarget(name: "journal", byteLimit: 2_048, run: JournalFuzz.run),
        FuzzTarget(name: "link", byteLimit: 4_096, run: LinkFuzz.run),
        FuzzTarget(name: "client", byteLimit: 1_024, run: ClientFuzz.run),
        FuzzTarget(name: "shard", byteLimit: 512, run: ShardFuzz.run),
        FuzzTarget(
            name: "gateway", byteLimit: 512, timeoutSeconds: 120, run: GatewayFuzz.run, finish: GatewayFuzz.finish,
            requestCount: { GatewayFuzz.requestCount }),
    ]

    package static func named(_ name: String) -> FuzzTarget? { all.first { $0.name == name } }
}

/// A failed invariant.
package struct FuzzFailure: Error, CustomStringConvertible {
    package let description: String
}

/// Throws if `condition` is false.
func require(_ condition: Bool, _ what: @autoclosure () -> String) throws(FuzzFailure) {
    if !condition { throw FuzzFailure(description: what()) }
}

/// An input read from the front as a script of small choices; past its end every choice is zero.
struct Script {
    private let bytes: [UInt8]
    private var offset: Int

    init(_ bytes: [UInt8]) { (self.bytes, offset) = (bytes, 0) }

    var isAtEnd: Bool { offset >= bytes.count }

    mutating func byte() -> UInt8 {
        guard offset < bytes.count else { return 0 }
        defer { offset += 1 }
        return bytes[offset]
    }

    mutating func flag() -> Bool { byte() & 1 == 1 }

    /// Returns a number below `bound`, which is at most 256.
    mutating func choice(_ bound: Int) -> Int { Int(byte()) % bound }

    mutating func pick<Element>(_ elements: [Element]) -> Element { elements[choice(elements.count)] }

    mutating func word() -> UInt64 { (0..<8).reduce(0) { word, _ in word << 8 | UInt64(byte()) } }

    /// Returns a small number, a limit of some integer width, or any other number.
    mutating func number() -> UInt64 {
        switch choice(8) {
        case 0...3: UInt64(byte())
        case 4: UInt64(byte()) << 8 | UInt64(byte())
        case 5: UInt64.max - UInt64(byte())
        case 6: UInt64(1) << UInt64(choice(64))
        default: word()
        }
    }

    mutating func bytes(upTo limit: Int) -> [UInt8] {
        let count = min(choice(256), limit, bytes.count - offset)
        defer { offset += count }
        return Array(bytes[offset..<offset + count])
    }

    mutating func text(upTo limit: Int) -> String { String(decoding: bytes(upTo: limit), as: UTF8.self) }

    mutating func rest() -> [UInt8] {
        defer { offset = bytes.count }
        return Array(bytes[min(offset, bytes.count)...])
    }
}
