internal import Structures
internal import Wire

private final class ChangeUnderWay {
    let change: DeviceChange
    var result = DeviceChangeResult(count: 0)
    init(_ change: DeviceChange) { self.change = change }
}

extension Shard {
    private static var changePageRowCount: Int { 128 }

    fileprivate mutating func changePage(
        _ work: ChangeUnderWay, _ slot: DeviceSlot, table: StoreKey.Table, from item: UInt64,
        completion: @escaping (inout Shard, Reading) -> Void
    ) {
        scan(slot, table: table, from: item, rowLimit: Self.changePageRowCount, byteLimit: 1 << 20) { shard, page in
            guard case .rows(let rows, let isLast) = page else { return completion(&shard, .unreadable) }
            shard.inBatches(of: slot) { shard in
                for row in rows {
                    switch work.change {
                    case .purge: shard.purge(row, slot, &work.result)
                    case .replay: shard.replay(row, slot, &work.result)
                    case .disconnect, .unblacklist: break
                    }
                }
            }
            if !isLast, let last = rows.last {
                shard.changePage(work, slot, table: table, from: last.facts.item &+ 1, completion: completion)
            } else if table == .message {
                shard.changePage(work, slot, table: .vendorMessage, from: 0, completion: completion)
            } else {
                completion(&shard, .whole)
            }
        }
    }

    /// Ends a message that is neither in flight nor leased; a purged message is thus never also delivered.
    private mutating func purge(_ row: Scanned, _ slot: DeviceSlot, _ result: inout DeviceChangeResult) {
        let known = listedMessage(table: row.facts.table, item: row.facts.item, of: slot)
        let message = known ?? adoptMessage(row, device: slot)
        guard mayDrop(message) else {
            if known == nil { leaveToStore(message) }
            result.leftCount += 1
            return
        }
        nextChange()
        let entry = messages.at(message)
        end(entry.value.facts, .revoked, reason: "purged", message: message, job: entry.value.job)
        result.count += 1
    }

    private mutating func replay(_ row: Scanned, _ slot: DeviceSlot, _ result: inout DeviceChangeResult) {
        guard row.isJobStored, let state = row.job, state.state == .due, state.dueAt > now else { return }
        let job = jobs.find(row.facts.message) ?? adoptJob(of: row)
        guard job != .none else { return }
        let entry = jobs.at(job)
        guard entry.value.row.state == .due, entry.value.row.dueAt > now, entry.value.place != .leasing else { return }
        nextChange()
        entry.value.row.dueAt = now
        writeJob(job)
        placeJob(job)
        result.count += 1
    }
}

/// Carries out an operator's command for one device.
package struct ChangeDevice: ShardQuestion {
    package var device: DeviceAddress
    package var change: DeviceChange
    package init(_ device: DeviceAddress, _ change: DeviceChange) { (self.device, self.change) = (device, change) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Found<DeviceChangeResult>>) {
        let work = ChangeUnderWay(change)
        shard.withDevice(device, reply) { shard, slot in
            if change == .disconnect {
                if shard.devices.at(slot).value.isConnected {
                    work.result.count = 1
                    shard.close(slot, .goodbye, "an operator ended the session")
                }
                return shard.answer(reply, .found(work.result))
            }
            guard shard.store.acceptsWrites else { return shard.answerBusy(reply) }
            if change == .unblacklist {
                work.result.count = shard.devices.at(slot).value.isBlacklisted ? 1 : 0
                return shard.setBlacklisted(slot, false) { shard, reading in
                    if reading == .whole { shard.answer(reply, .found(work.result)) } else { shard.answerBusy(reply) }
                }
            }
            shard.whileBusy(slot) { shard, done in
                shard.changePage(work, slot, table: .message, from: 0, completion: done)
            } then: { shard, reading in
                // Completed changes remain. The caller may repeat the command.
                if reading == .whole { shard.answer(reply, .found(work.result)) } else { shard.answerBusy(reply) }
                shard.pump(slot)
            }
        }
    }
}
