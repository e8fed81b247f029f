internal import Cryptography
internal import Delivery
internal import TestKit
internal import Wire

/// One event loop of the simulated gateway: a real shard over the simulated store.
final class Loop: ShardStoreObserver {
    let index: Int
    let life: Int
    let store: any WorldStore
    unowned let world: World
    var shard: Shard
    var sessions = SessionTable()
    /// Apps that the gateway has not sent to this loop yet.
    var unknownApps: Set<AppKey>
    /// The time of the tick that counts; others are stale.
    var tickAt: Int64 = .max
    private var effects: [Effect] = []

    init(
        index: Int, life: Int, store: any WorldStore, world: World, apps: [AppSettings], counters: [StoredRow],
        broadcasts: BroadcastStart, now: GatewayTime
    ) {
        (self.index, self.life, self.store, self.world) = (index, life, store, world)
        unknownApps = Set(world.plan.apps.map(\.key)).subtracting(apps.map(\.key))
        var start = CounterStart(now: now)
        for row in counters { start.take(row) }
        shard = Shard(
            limits: world.plan.limits, apps: apps, store: store, verifier: Verifier(world), encoder: TestFrames(),
            queueEpoch: World.queueEpoch, history: world.history, counters: start, broadcasts: broadcasts,
            knowsAllApps: unknownApps.isEmpty, now: now)
        store.observer = self
    }

    func storeCommitted(upTo ticket: Ticket) {
        shard.committed(upTo: ticket, now: world.gatewayNow)
        perform()
    }

    func storeReplied(_ reply: StoreReply) {
        shard.replied(reply, now: world.gatewayNow)
        perform()
    }

    func storeCooled(_ key: StoreKey) { shard.cooled(key) }

    /// Performs the shard's effects.
    ///
    /// An answer may lead to another question of the shard, whose effects are performed amid these: each call has its own array.
    func perform() {
        guard shard.hasEffects else { return }
        var taken: [Effect] = []
        swap(&taken, &effects)
        shard.takeEffects(into: &taken)
        for effect in taken { world.perform(effect, of: self) }
        taken.removeAll(keepingCapacity: true)
        effects = taken
        world.oracle.checkOverflowed()
    }
}

/// The gateway's way to check a proof.
private final class Verifier: ProofVerifier {
    private unowned let world: World
    init(_ world: World) { self.world = world }

    func isProof(_ proof: [UInt8], of transcript: [UInt8], secret: [UInt8]) -> Bool {
        HMACSHA256.isCode(proof, of: transcript, key: secret)
    }

    func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64 { world.broadcastDigest(of: task, for: cid) }

    func tokenName(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) -> AliasName {
        testTokenName(app: app, channel: channel, kind: kind, token: token)
    }
}
