internal import Cryptography
internal import Delivery
internal import TestKit
internal import Wire

final class Loop: ShardStoreObserver {
    let index: Int
    let life: Int
    let store: any WorldStore
    unowned let world: World
    private var ownShard: Shard
    /// Calls deferred until all effects are performed.
    private var waitingCalls: [(inout Shard) -> Void] = []
    private var isPerforming = false
    var sessions = SessionTable()
    /// Apps that the gateway has not sent to this loop yet.
    var unknownApps: Set<AppKey>
    /// The time of the current tick; ticks at other times are stale.
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

    /// The shard; a call invalidates the pointers of the previous effects, so none may happen while effects are performed.
    var shard: Shard {
        _read { yield ownShard }
        _modify {
            if isPerforming { world.fail(.fencing, "an effect calls the shard amid the effects of its last call") }
            yield &ownShard
        }
    }

    /// Calls the shard and performs its effects; defers the call while effects are performed.
    ///
    /// For calls that follow from an answer. The gateway defers a loop's own answers in the same way.
    func call(_ body: @escaping (inout Shard) -> Void) {
        guard !isPerforming else { return waitingCalls.append(body) }
        body(&shard)
        perform()
    }

    /// Performs the shard's effects, then the deferred calls.
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

/// Verifies proofs as the gateway does.
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
