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
    private var ownShard: Shard
    /// Calls that wait until all effects are performed.
    private var waitingCalls: [(inout Shard) -> Void] = []
    private var isPerforming = false
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
        ownShard = Shard(
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

    /// The shard; a call of it ends what its last effects point to, so none may come amid them.
    var shard: Shard {
        _read { yield ownShard }
        _modify {
            if isPerforming { world.fail(.fencing, "an effect calls the shard amid the effects of its last call") }
            yield &ownShard
        }
    }

    /// Calls the shard and performs what it wants done; amid effects, once all of these are performed.
    ///
    /// For calls that an answer leads to: the gateway keeps answers of a loop for itself until then, too.
    func call(_ body: @escaping (inout Shard) -> Void) {
        guard !isPerforming else { return waitingCalls.append(body) }
        body(&shard)
        perform()
    }

    /// Performs what the shard wants done, then makes the calls that waited for the end of that.
    func perform() {
        guard !isPerforming else { return }
        performEffects()
        while !waitingCalls.isEmpty {
            waitingCalls.removeFirst()(&ownShard)
            performEffects()
        }
    }

    private func performEffects() {
        guard shard.hasEffects else { return }
        isPerforming = true
        ownShard.takeEffects(into: &effects)
        for effect in effects { world.perform(effect, of: self) }
        effects.removeAll(keepingCapacity: true)
        isPerforming = false
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
