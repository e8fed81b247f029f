// Alias rows: the devices that may have an alias. A row belongs to the loop of the alias's bucket, which may know none of the
// devices. docs/build/Directory.md describes the order of steps that keeps this index consistent.

internal import Structures
internal import Wire

/// Work on an alias's row; `unreadable` also if too many commands wait for rows.
typealias AliasWork = (inout AliasTable, inout ShardCore, Found<AliasRow>) -> Void

/// The rows of this shard's aliases that are being read, with the work that waits for each in order.
struct AliasTable {
    private var waiting: [AliasName: [AliasWork]] = [:]
    private var lastStamp: GatewayTime = 0

    /// Returns a unique, increasing stamp; a release of an earlier reservation therefore never removes a later one.
    private mutating func nextStamp(_ now: GatewayTime) -> GatewayTime {
        lastStamp = max(lastStamp + 1, now)
        return lastStamp
    }

    mutating func reserve(
        _ command: DirectoryCommand, _ name: AliasName, _ cid: DeviceID, _ bucket: Bucket, _ core: inout ShardCore
    ) {
        let (origin, app) = (command.origin, command.app)
        withRow(name, origin, &core) { aliases, core, found in
            var row = found ?? AliasRow(app: app, text: name.text)
            let stamp = aliases.nextStamp(core.now)
            if let place = row.entries.firstIndex(where: { $0.cid == cid }) {
                row.entries[place].stamp = stamp
            } else {
                guard row.entries.count < core.limits.devicesPerAlias else {
                    return core.reply(origin, .full(row.entries))
                }
                row.entries.append(AliasEntry(cid: cid, bucket: bucket, stamp: stamp))
            }
            core.write(row, name)
            core.reply(origin, .reserved(stamp: stamp))
        }
    }

    mutating func release(
        _ command: DirectoryCommand, _ name: AliasName, _ entries: [AliasEntry], _ core: inout ShardCore
    ) {
        let origin = command.origin
        withRow(name, origin, &core) { _, core, found in
            if var row = found {
                let before = row.entries.count
                row.entries.removeAll { kept in entries.contains { $0.cid == kept.cid && kept.stamp <= $0.stamp } }
                if row.entries.count < before { core.write(row, name) }
            }
            core.reply(origin, .done)
        }
    }

    mutating func members(_ command: DirectoryCommand, _ name: AliasName, _ core: inout ShardCore) {
        let origin = command.origin
        withRow(name, origin, &core) { _, core, row in core.reply(origin, .members(row?.entries ?? [])) }
    }

    /// Makes the claimant the owner of a token, unless the row names another device that has not lost the token.
    mutating func takeToken(
        _ command: DirectoryCommand, _ name: AliasName, _ claimant: AliasEntry, lost: AliasEntry?,
        _ core: inout ShardCore
    ) {
        let (origin, app) = (command.origin, command.app)
        withRow(name, origin, &core) { _, core, found in
            var row = found ?? AliasRow(app: app, text: "")
            if let owner = row.entries.first, owner.cid != claimant.cid, owner != lost {
                return core.reply(origin, .tokenHeld(owner))
            }
            // A claim overtaken by a later one of the same device changes nothing.
            if row.entries.first.map({ $0.cid != claimant.cid || $0.stamp < claimant.stamp }) ?? true {
                row.entries = [claimant]
                core.write(row, name)
            }
            core.reply(origin, .tokenTaken)
        }
    }

    /// Calls `work` with the row, or answers `.failed` if the row could not be read.
    private mutating func withRow(
        _ name: AliasName, _ origin: Origin, _ core: inout ShardCore,
        _ work: @escaping (inout AliasTable, inout ShardCore, AliasRow?) -> Void
    ) {
        lookUp(name, &core) { aliases, core, found in
            switch found {
            case .found(let row): work(&aliases, &core, row)
            case .absent: work(&aliases, &core, nil)
            case .unreadable: core.reply(origin, .failed)
            }
        }
    }

    /// Finds an alias's row, in memory or by a read; work for the same row keeps its order.
    private mutating func lookUp(_ name: AliasName, _ core: inout ShardCore, _ work: @escaping AliasWork) {
        if waiting[name] != nil {
            guard core.waitingCount < core.limits.waitingInAll else { return work(&self, &core, .unreadable) }
            core.waitingCount += 1
            waiting[name]?.append(work)
            return
        }
        let key = AliasRow.key(name)
        switch core.store.young(key) {
        case .found(let location, _):
            let row = core.aliasRow(core.store.bytes(at: location), key)
            work(&self, &core, row)
        case .deleted: work(&self, &core, .absent)
        case .unknown:
            guard !core.store.isCertainlyAbsent(key) else { return work(&self, &core, .absent) }
            waiting[name] = []
            core.read([.get(key)]) { shard, reply in
                shard.inAliases { aliases, core in aliases.take(reply, name, key, first: work, &core) }
            }
        }
    }

    private mutating func take(
        _ reply: StoreReply, _ name: AliasName, _ key: StoreKey, first: @escaping AliasWork, _ core: inout ShardCore
    ) {
        let later = waiting.removeValue(forKey: name) ?? []
        core.waitingCount -= later.count
        for work in [first] + later {
            // Earlier work may have written the row.
            let found: Found<AliasRow> =
                switch core.store.young(key) {
                case .found(let location, _): core.aliasRow(core.store.bytes(at: location), key)
                case .deleted: .absent
                case .unknown:
                    switch reply.results.first {
                    case .row(let stored?)?: core.aliasRow(stored.bytes, key)
                    case .row(nil)?: .absent
                    default: .unreadable
                    }
                }
            work(&self, &core, found)
        }
    }
}

extension ShardCore {
    fileprivate mutating func aliasRow(_ bytes: LentBytes, _ key: StoreKey) -> Found<AliasRow> {
        if let row = AliasRow(bytes) { return .found(row) }
        damaged(key)
        return .unreadable
    }

    fileprivate mutating func write(_ row: AliasRow, _ name: AliasName) {
        inBatch(in: name.bucket) { core in
            let key = AliasRow.key(name)
            if row.entries.isEmpty {
                core.store.delete(key, prior: .maybe(wakeAt: 0))
            } else {
                core.store.putRow(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: row.byteCount) {
                    row.write(into: $0)
                }
            }
        }
    }

    fileprivate mutating func reply(_ origin: Origin, _ reply: DirectoryReply) {
        outbox.hold(.directoryReply(origin, reply))
    }
}
