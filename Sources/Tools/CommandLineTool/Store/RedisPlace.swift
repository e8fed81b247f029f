internal import Cryptography
internal import Delivery
internal import MessageStore
internal import Redis
internal import Wire

/// A cluster on Redis.
///
/// The gateways keep three facts of the embedded engine's table `meta` in their register: the token key, the queue epoch and
/// the highest gateway time. A copy reads them as rows, and writes them to both the rows and the register.
final class RedisPlace: CopyPlace {
    let name: String
    private let cluster: RedisCluster
    private let configuration: RedisEngine.Configuration
    private let wantedPartCount: Int?
    private let register: RegisterAccess
    private var rows: RedisRowAccess?
    private var partCount = 0
    private var now: Int64 = 0
    private var written = ClusterFacts()
    /// The cluster's history before the copy; the new history succeeds it.
    private var earlier: StoreHistory?
    private var isHeld = false
    private var isTarget = false

    /// The row numbers of the register's facts; see `MetaRows` in the gateway.
    private enum Fact: UInt64 { case tokenKey = 1, queueEpoch, clock }

    /// The number of partitions of a new cluster: the default of `cluster.parts`.
    private static let defaultPartCount = 16

    /// Creates a place without opening it.
    ///
    /// - Parameters:
    ///   - name: the operator's name for the cluster.
    ///   - cluster: the servers.
    ///   - configuration: the cluster's name and the timeouts.
    ///   - partCount: the number of partitions of a new cluster. An existing cluster with another number is refused.
    init(
        name: String, _ cluster: RedisCluster, _ configuration: RedisEngine.Configuration, partCount: Int?
    ) {
        (self.name, self.cluster, self.configuration, wantedPartCount) = (name, cluster, configuration, partCount)
        register = RegisterAccess(cluster, name: configuration.name, minReplicas: configuration.minReplicas)
    }

    func beginReading(for target: String) throws {
        try register.begin(isTarget: false, other: target, isReplacing: false)
        isHeld = true
        guard let count = register.partCount else {
            throw CopyFailure("there is no cluster \(configuration.name) at \(name)")
        }
        try open(count)
    }

    func beginWriting(from source: String, isReplacing: Bool) throws {
        // The servers must be configured to keep the data.
        let problems = try RedisSettings.check(
            cluster, name: configuration.name, minReplicas: configuration.minReplicas
        ).filter { $0.kind == .wrong || $0.kind == .passing }
        guard problems.isEmpty else {
            throw CopyFailure(problems.map(\.description).joined(separator: "\n"))
        }
        try register.begin(isTarget: true, other: source, isReplacing: isReplacing)
        (isHeld, isTarget) = (true, true)
        let found = register.partCount
        if let found, let wantedPartCount, found != wantedPartCount, !isReplacing {
            try letGo()
            throw CopyFailure(
                "cluster \(configuration.name) has \(found) parts: --parts must be \(found), or use --replace")
        }
        let count = found ?? wantedPartCount ?? Self.defaultPartCount
        let access = RedisRowAccess(cluster, configuration, partCount: count)
        defer { access.close() }
        access.tick = tick
        if try !access.isEmpty() {
            guard isReplacing else {
                try letGo()
                throw CopyFailure(
                    "\(name) is not empty: cluster \(configuration.name) has rows or log entries; nothing was copied. With "
                        + "--replace they are removed")
            }
            try access.open(above: epochs)
            try access.clear()
        }
        try open(wantedPartCount ?? found ?? Self.defaultPartCount)
        now = try time()
        earlier = register.facts.history
        // From here on, a gateway whose `cluster.parts` differs from this number cannot start.
        try register.set(ClusterFacts(), partCount: partCount)
    }

    /// Removes the mark of a copy that has changed nothing yet.
    private func letGo() throws {
        try register.end([])
        isHeld = false
    }

    private var tick: () throws(StoreError) -> Void {
        { [register] () throws(StoreError) in
            do { try register.keep() } catch { throw StoreError.redis(what: "\(error)") }
        }
    }

    private var epochs: [UInt64] {
        (0..<(register.epochs.keys.max() ?? -1) + 1).map { register.epochs[$0] ?? 0 }
    }

    private func open(_ count: Int) throws {
        guard 1...256 ~= count, count & (count - 1) == 0 else {
            throw CopyFailure("\(count) parts: the number must be a power of two up to 256")
        }
        partCount = count
        let access = RedisRowAccess(cluster, configuration, partCount: count)
        access.tick = tick
        rows = access
        try access.open(above: epochs)
    }

    private func time() throws -> Int64 { try rows?.time() ?? 0 }

    // MARK: Rows

    private static func fact(of key: StoreKey) -> Fact? {
        key.table == .meta && key.ownerLow == 0 && key.item == 0 ? Fact(rawValue: key.ownerHigh) : nil
    }

    func visitRows(_ body: (StoredRow) throws -> Void) throws {
        guard let rows else { return }
        var stored: [Fact: [UInt8]] = [:]
        try rows.visit { row in
            guard let fact = Self.fact(of: row.key) else { return try body(row) }
            stored[fact] = Array(row.value)
        }
        // Where a row and the register differ, the register's value counts, because the gateways use it.
        let facts = register.facts
        if let key = facts.tokenKey { stored[.tokenKey] = key }
        if let epoch = facts.queueEpoch { stored[.queueEpoch] = Self.bytes([epoch]) }
        if let clock = facts.clock, clock > 0, stored[.clock].flatMap(Self.clock) ?? 0 < clock {
            stored[.clock] = Self.bytes([UInt64(clock), 0, 0, 0])
        }
        for (fact, value) in stored.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            let key = StoreKey(Bucket(0), .meta, ownerHigh: fact.rawValue, ownerLow: 0)
            try value.withUnsafeBytes { try body(StoredRow(key: key, wakeAt: 0, value: $0)) }
        }
    }

    func write(_ batch: [CopiedRow]) throws {
        for row in batch {
            switch Self.fact(of: row.key) {
            case .tokenKey?: if row.value.count == 32 { written.tokenKey = row.value }
            case .queueEpoch?: if row.value.count == 8 { written.queueEpoch = Self.words(row.value)[0] }
            case .clock?: written.clock = Self.clock(row.value)
            case nil: break
            }
        }
        // The write time is not below the rows' gateway time, which may be ahead of the servers' clock.
        now = max(now, written.clock ?? 0)
        try rows?.write(batch.map { WrittenRow(key: $0.key, wakeAt: $0.wakeAt, value: $0.value) }, now: now)
    }

    func finishWriting() throws { try register.set(written, partCount: partCount) }

    func complete() throws {
        guard isHeld, let rows else { return }
        if isTarget {
            // A starting gateway needs these facts. A source that was never used lacks them, so they are created here.
            var facts = written
            facts.tokenKey = facts.tokenKey ?? SecureRandom.bytes(32)
            facts.queueEpoch = facts.queueEpoch ?? UInt64.random(in: 1 ... .max)
            // Devices and consumers may have seen newer content, and the source may continue, so the copy starts a new history.
            facts.history = (earlier ?? StoreHistory(ofNewStore: 1)).successor(
                id: SecureRandom.word(), now: try time())
            try register.set(facts, partCount: partCount)
        }
        try register.end(rows.epochs)
        isHeld = false
    }

    func close() {
        // A partly read source is unchanged, so its mark is removed. An unfinished target keeps its mark.
        if isHeld, !isTarget { try? register.end(rows?.epochs.count == partCount ? rows?.epochs ?? [] : []) }
        rows?.close()
        register.close()
    }

    // MARK: Facts as bytes

    private static func words(_ bytes: [UInt8]) -> [UInt64] {
        stride(from: 0, to: bytes.count - 7, by: 8).map { start in
            bytes[start..<start + 8].reduce(0) { $0 << 8 | UInt64($1) }
        }
    }

    private static func bytes(_ words: [UInt64]) -> [UInt8] {
        words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> UInt64(56 - 8 * $0)) } }
    }

    /// Returns the highest gateway time of a clock row, or `nil` beyond the year 9999.
    private static func clock(_ bytes: [UInt8]) -> Int64? {
        guard bytes.count == 32, let word = words(bytes).first, word <= 253_402_300_799_999 else { return nil }
        return Int64(word)
    }
}
