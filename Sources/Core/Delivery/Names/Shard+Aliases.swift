// Alias rows: the devices that may have an alias. They belong to the loop of the alias's own bucket, which may know
// none of the devices. docs/build/Directory.md gives the order of steps that makes the index reliable.

internal import Structures
internal import Wire

/// The work on an alias's row; `unreadable` also when too many commands wait for rows.
typealias AliasWork = (inout Shard, Found<AliasRow>) -> Void

extension Shard {
    mutating func reserve(_ command: DirectoryCommand, _ name: AliasName, _ cid: DeviceID, _ bucket: Bucket) {
        let (origin, app) = (command.origin, command.app)
        withAlias(name, origin) { shard, found in
            var row = found ?? AliasRow(app: app, text: name.text)
            let stamp = shard.aliasReads.nextStamp(shard.now)
            if let place = row.entries.firstIndex(where: { $0.cid == cid }) {
                row.entries[place].stamp = stamp
            } else {
                guard row.entries.count < shard.limits.devicesPerAlias else {
                    shard.reply(origin, .full(row.entries))
                    return
                }
                row.entries.append(AliasEntry(cid: cid, bucket: bucket, stamp: stamp))
            }
            shard.write(row, name)
            shard.reply(origin, .reserved(stamp: stamp))
        }
    }

    mutating func release(_ command: DirectoryCommand, _ name: AliasName, _ entries: [AliasEntry]) {
        let origin = command.origin
        withAlias(name, origin) { shard, found in
            if var row = found {
                let before = row.entries.count
                row.entries.removeAll { kept in entries.contains { $0.cid == kept.cid && kept.stamp <= $0.stamp } }
                if row.entries.count < before { shard.write(row, name) }
            }
            shard.reply(origin, .done)
        }
    }

    mutating func members(_ command: DirectoryCommand, _ name: AliasName) {
        let origin = command.origin
        withAlias(name, origin) { shard, row in shard.reply(origin, .members(row?.entries ?? [])) }
    }

    /// Calls `work` with the row; answers `.failed` itself when a reader could not read it.
    mutating func withAlias(
        _ name: AliasName, _ origin: Origin, _ work: @escaping (inout Shard, AliasRow?) -> Void
    ) {
        lookUp(name) { shard, found in
            switch found {
            case .found(let row): work(&shard, row)
            case .absent: work(&shard, nil)
            case .unreadable: shard.reply(origin, .failed)
            }
        }
    }

    /// Finds an alias's row, now or when a reader has it; work that waits for the same row keeps its order.
    private mutating func lookUp(_ name: AliasName, _ work: @escaping AliasWork) {
        if aliasReads.isUnderWay(name) {
            guard devices.reserveWait(limitOfAll: limits.waitingInAll) else {
                work(&self, .unreadable)
                return
            }
            aliasReads.wait(for: name, work)
            return
        }
        let key = AliasRow.key(name)
        switch store.young(key) {
        case .found(let location, _): give(store.bytes(at: location), key, to: work)
        case .deleted: work(&self, .absent)
        case .unknown:
            guard !store.isCertainlyAbsent(key) else {
                work(&self, .absent)
                return
            }
            aliasReads.begin(name)
            read([.get(key)]) { shard, reply in
                let waiting = shard.aliasReads.end(name)
                shard.devices.releaseWaits(waiting.count)
                for work in [work] + waiting {
                    // An earlier one of them may have written the row.
                    switch shard.store.young(key) {
                    case .found(let location, _): shard.give(shard.store.bytes(at: location), key, to: work)
                    case .deleted: work(&shard, .absent)
                    case .unknown:
                        switch reply.results.first {
                        case .row(let stored?)?: shard.give(stored.bytes, key, to: work)
                        case .row(nil)?: work(&shard, .absent)
                        default: work(&shard, .unreadable)
                        }
                    }
                }
            }
        }
    }

    private mutating func give(_ bytes: LentBytes, _ key: StoreKey, to work: AliasWork) {
        guard let row = AliasRow(bytes) else {
            damaged(key)
            return work(&self, .unreadable)
        }
        work(&self, .found(row))
    }

    mutating func write(_ row: AliasRow, _ name: AliasName) {
        inBatch(in: name.bucket) { shard in
            let key = AliasRow.key(name)
            if row.entries.isEmpty {
                shard.store.delete(key, prior: .maybe(wakeAt: 0))
            } else {
                shard.store.putRow(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: row.byteCount) {
                    row.write(into: $0)
                }
            }
        }
    }
}
