internal import Cryptography
package import Delivery
internal import MessageStore
package import PushAPI
internal import Wire

/// The gateway's own few facts in the store: what must be the same after a restart, or after the data moved to another
/// machine.
package struct MetaRows: Sendable {
    /// Raw values are stored.
    enum Kind: UInt64 { case tokenKey = 1, queueEpoch, clock, revokedToken }

    package private(set) var tokenKey: [UInt8] = []
    package private(set) var queueEpoch: UInt64 = 0
    package private(set) var clock: ClockRecord?
    package private(set) var revoked: Set<TokenID> = []
    private var isNew = false

    /// Reads the table's rows; what cannot be read is made anew.
    ///
    /// - Parameter store: of the shard that owns bucket 0, before its first write.
    /// - Throws: `.database` when a row cannot be read.
    init(loading store: EmbeddedShardStore) throws(StoreError) {
        try store.loadAll(table: .meta) { take($0) }
    }

    /// Knows nothing yet.
    package init() {}

    /// Takes over what one row of the table says; a row of a kind that this version does not know is passed over.
    package mutating func take(_ row: StoredRow) {
        switch Kind(rawValue: row.key.ownerHigh) {
        case .tokenKey: tokenKey = Array(row.value)
        case .queueEpoch:
            if row.value.count == 8 { queueEpoch = UInt64(bigEndian: row.value.loadUnaligned(as: UInt64.self)) }
        case .clock: clock = ClockRecord(bytes: row.value)
        case .revokedToken:
            revoked.insert(TokenID(expiresAt: Int64(bitPattern: row.key.item), random: row.key.ownerLow))
        case nil: break
        }
    }

    /// Makes up what is missing: the first start.
    mutating func complete() {
        if tokenKey.count != 32 {
            tokenKey = SecureRandom.bytes(32)
            isNew = true
        }
        if queueEpoch == 0 {
            queueEpoch = SecureRandom.word() | 1
            isNew = true
        }
    }

    /// Writes what `complete` made up.
    ///
    /// The gateway is ready when it is durable: tokens signed with a key that is lost
    /// would all die with the process.
    func write(on loop: GatewayLoop) {
        guard isNew else { return loop.context.setReady() }
        let epoch = (0..<8).map { UInt8(truncatingIfNeeded: queueEpoch >> UInt64(56 - 8 * $0)) }
        loop.putMeta(high: Kind.tokenKey.rawValue, low: 0, item: 0, tokenKey) {}
        loop.putMeta(high: Kind.queueEpoch.rawValue, low: 0, item: 0, epoch) { loop.context.setReady() }
    }

    static func write(_ record: ClockRecord, on loop: GatewayLoop, done: @escaping () -> Void = {}) {
        loop.putMeta(high: Kind.clock.rawValue, low: 0, item: 0, record.bytes, done: done)
    }

    static func write(_ token: TokenID, on loop: GatewayLoop, done: @escaping () -> Void) {
        loop.putMeta(
            high: Kind.revokedToken.rawValue, low: token.random, item: UInt64(bitPattern: token.expiresAt), [1],
            done: done)
    }
}
