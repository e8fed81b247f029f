internal import Delivery
internal import Wire

/// The steps that bind an alias to a device (reserve, set, release the previous alias) or unbind it (clear, release).
///
/// The alias's row lists every device that has the alias, in every order of steps and after a crash between two steps
/// (docs/build/Directory.md).
struct AliasBinding: Sendable {
    private enum Phase {
        case idle
        case reserving
        /// The row was full; the operation checks whether its devices still have the alias.
        case verifying([AliasEntry], open: Int, stale: [AliasEntry])
        case pruning
        case setting(stamp: GatewayTime)
        case clearing
        /// The last step; its outcome is already known.
        case releasing(ItemOutcome)
    }

    let item: AliasItem
    private let base: UInt64
    private let binds: Bool
    private var phase = Phase.idle
    private var hasPruned = false
    private(set) var outcome: ItemOutcome?

    init(_ item: AliasItem, number: UInt64, binds: Bool) {
        (self.item, self.binds) = (item, binds)
        base = number * DirectoryOperation.stepsPerItem
    }

    mutating func start() -> [StepToSend] {
        guard binds else {
            phase = .clearing
            return [StepToSend(base, item.device.bucket, .clearAlias(item.device.cid, item.name, stamp: 0))]
        }
        return reserve()
    }

    private mutating func reserve() -> [StepToSend] {
        phase = .reserving
        return [StepToSend(base, item.name.bucket, .reserve(item.name, item.device.cid, item.device.bucket))]
    }

    private mutating func release(_ name: AliasName, stamp: GatewayTime, _ outcome: ItemOutcome) -> [StepToSend] {
        phase = .releasing(outcome)
        let entry = AliasEntry(cid: item.device.cid, bucket: item.device.bucket, stamp: stamp)
        return [StepToSend(base, name.bucket, .release(name, [entry]))]
    }

    private mutating func end(_ outcome: ItemOutcome) -> [StepToSend] {
        self.outcome = outcome
        return []
    }

    mutating func receive(_ step: UInt64, _ reply: DirectoryReply) -> [StepToSend] {
        switch (phase, reply) {
        case (.reserving, .reserved(let stamp)):
            phase = .setting(stamp: stamp)
            return [
                StepToSend(base, item.device.bucket, .setAlias(item.device.cid, item.name, stamp: stamp))
            ]
        case (.reserving, .full(let entries)):
            guard !hasPruned, !entries.isEmpty, entries.count < Int(DirectoryOperation.stepsPerItem) else {
                return end(.full)
            }
            hasPruned = true
            phase = .verifying(entries, open: entries.count, stale: [])
            return entries.enumerated().map {
                StepToSend(base + UInt64($0), $1.bucket, .holds($1.cid, item.name, stamp: $1.stamp))
            }
        case (.verifying(let entries, let open, var stale), _):
            if entries.indices.contains(Int(step)), Self.isStale(reply) { stale.append(entries[Int(step)]) }
            guard open == 1 else {
                phase = .verifying(entries, open: open - 1, stale: stale)
                return []
            }
            guard !stale.isEmpty else { return end(.full) }
            phase = .pruning
            return [StepToSend(base, item.name.bucket, .release(item.name, stale))]
        case (.pruning, .done): return reserve()
        case (.setting, .aliasSet(let previous, let stamp)):
            guard let previous else { return end(.done) }
            return release(previous, stamp: stamp, .done)
        // Later operations on the alias have completed, so this one counts as done before them.
        case (.setting, .overtaken): return end(.done)
        case (.setting(let stamp), .unknown):
            return release(item.name, stamp: stamp, .unknown)
        case (.setting(let stamp), .tooMany):
            return release(item.name, stamp: stamp, .tooMany)
        case (.clearing, .aliasCleared(let stamp)):
            return release(item.name, stamp: stamp, .done)
        case (.clearing, .notHeld): return end(.notHeld)
        case (.clearing, .unknown): return end(.unknown)
        // Entries that a release failed to delete are stale. Readers detect stale entries.
        case (.releasing(let outcome), _): return end(outcome)
        // After `late` and `failed` the reservation remains and becomes stale.
        default: return end(.failed)
        }
    }

    static func isStale(_ reply: DirectoryReply) -> Bool { reply == .notHeld(isStale: true) || reply == .unknown }
}

/// The steps that find and verify all devices of an alias, or unbind them.
struct AliasSweep: Sendable {
    private enum Phase {
        case listing
        case asking([AliasEntry], open: Int)
        case releasing
    }

    private let name: AliasName
    private let base: UInt64
    private let clears: Bool
    private var phase = Phase.listing
    private var releasable: [AliasEntry] = []
    private var hasFailed = false
    /// The devices that have the alias; after clearing, the devices that had it.
    private(set) var held: [DevicePlace] = []
    private(set) var outcome: ItemOutcome?

    init(_ name: AliasName, number: UInt64, clears: Bool) {
        (self.name, self.clears) = (name, clears)
        base = number * DirectoryOperation.stepsPerItem
    }

    mutating func start() -> [StepToSend] { [StepToSend(base, name.bucket, .members(name))] }

    mutating func receive(_ step: UInt64, _ reply: DirectoryReply) -> [StepToSend] {
        switch (phase, reply) {
        case (.listing, .members(let entries)):
            guard !entries.isEmpty, entries.count <= Int(DirectoryOperation.stepsPerItem) else {
                outcome = .done
                return []
            }
            phase = .asking(entries, open: entries.count)
            return entries.enumerated().map { index, entry in
                let step: DirectoryStep =
                    clears
                    ? .clearAlias(entry.cid, name, stamp: entry.stamp) : .holds(entry.cid, name, stamp: entry.stamp)
                return StepToSend(base + UInt64(index), entry.bucket, step)
            }
        case (.asking(let entries, let open), _):
            guard entries.indices.contains(Int(step)) else { return [] }
            take(entries[Int(step)], reply)
            phase = .asking(entries, open: open - 1)
            guard open == 1 else { return [] }
            // An unreadable device makes the sweep fail. The device must not count as absent.
            guard clears, !releasable.isEmpty else {
                outcome = hasFailed ? .failed : .done
                return []
            }
            phase = .releasing
            return [StepToSend(base, name.bucket, .release(name, releasable))]
        case (.releasing, _):
            outcome = hasFailed ? .failed : .done
            return []
        default:
            outcome = .failed
            return []
        }
    }

    private mutating func take(_ entry: AliasEntry, _ reply: DirectoryReply) {
        switch reply {
        case .held: held.append(DevicePlace(cid: entry.cid, bucket: entry.bucket))
        case .aliasCleared(let stamp):
            held.append(DevicePlace(cid: entry.cid, bucket: entry.bucket))
            releasable.append(AliasEntry(cid: entry.cid, bucket: entry.bucket, stamp: stamp))
        case .notHeld, .unknown: if AliasBinding.isStale(reply) { releasable.append(entry) }
        default: hasFailed = true
        }
    }
}
