package import Redis

package struct SimulatedNetwork: RedisNetwork {
    package let cluster: SimulatedCluster
    package init(_ cluster: SimulatedCluster) { self.cluster = cluster }

    package var seeds: [RedisAddress] {
        cluster.addresses.map { RedisAddress(host: $0.host, port: UInt16($0.port)) }
    }

    package func connect(to address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> any RedisConnection {
        do throws(CallFailure) {
            let number = try cluster.connect(host: address.host, port: Int(address.port), timeout: timeoutMilliseconds)
            return SimulatedConnection(cluster, address, number)
        } catch { throw .unreachable(address, "\(error)") }
    }

    /// Converts a reply to the type of the engine's client.
    package static func reply(_ reply: Reply) -> RedisReply { SimulatedConnection.reply(reply) }

    package var monotonicMilliseconds: UInt64 { UInt64(cluster.milliseconds) + 1_000 }
    package func sleep(milliseconds: Int) { cluster.sleep(milliseconds: milliseconds) }
}

private final class SimulatedConnection: RedisConnection {
    private let cluster: SimulatedCluster
    private let address: RedisAddress
    private let number: Int

    init(_ cluster: SimulatedCluster, _ address: RedisAddress, _ number: Int) {
        (self.cluster, self.address, self.number) = (cluster, address, number)
    }

    deinit { close() }

    func close() { cluster.close(number) }

    func run(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) -> [RedisReply] {
        do throws(CallFailure) {
            return try cluster.run(number, commands.map(\.arguments), timeout: timeoutMilliseconds).map(Self.reply)
        } catch {
            switch error {
            case .timedOut: throw .timedOut(address, milliseconds: timeoutMilliseconds)
            case .refused, .broken: throw .broken(address, "\(error)")
            }
        }
    }

    private var begun: [RedisCommand] = []

    func begin(_ commands: [RedisCommand]) { begun = commands }

    /// Runs the call that was started.
    func proceed() throws(RedisError) -> [RedisReply]? {
        try run(begun, timeoutMilliseconds: SimulatedCluster.begunMilliseconds)
    }

    var interest: RedisInterest? { nil }

    fileprivate static func reply(_ reply: Reply) -> RedisReply {
        switch reply {
        case .simple(let text): .status(text)
        case .error(let text): .error(RedisFault(text))
        case .integer(let number): .integer(number)
        case .bulk(let bytes): .bytes(bytes)
        case .null: .none
        case .array(let items): .array(items.map(Self.reply))
        }
    }
}
