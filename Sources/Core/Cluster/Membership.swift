/// The membership logic of one gateway: it decides which partitions to claim, serve and hand over.
///
/// Its inputs are the time, the register and reports of the caller; its outputs are actions. Gateways agree only through the
/// register. Each gateway reads the members, computes the same placement (`Placement`), and claims its own partitions by
/// compare-and-set. The register can be wrong after a Redis failover lost its last change. In that case the partitions' logs
/// decide: they accept only the owner with the highest epoch.
///
/// A partition of this gateway passes through `Ownership.Phase`: opening, open, closing. The rules:
/// - A partition is opened only under an epoch that the register assigned to this node. An epoch that is reported as taken or
///   lost is never used again.
/// - An open partition is given up if its log accepted a successor, the register shows a higher epoch, or the placement names
///   another node (handover). An unreachable register is not a reason.
/// - A partition without a live owner is claimed at once by the node that the placement names. Other nodes claim it after a delay
///   that grows with their rank, in case the named node fails to claim it.
package struct Membership: Sendable {
    package let node: NodeID
    package let instance: UInt64
    package let timing: ClusterTiming
    /// The data to publish with the next renewal.
    package private(set) var info: MemberInfo
    package private(set) var view: RegisterSnapshot
    /// This node's monotonic time before the last call that renewed the lease.
    package private(set) var renewedAt: Int64
    package private(set) var hasLeft = false

    package struct Ownership: Hashable, Sendable {
        package enum Phase: Hashable, Sendable {
            case opening
            case open
            /// The next open attempt is at this time.
            case waiting(until: Int64)
            /// The shard is closing; with `isGift` the partition is released afterwards, for `heir` if there is one.
            case closing(heir: NodeID?, isGift: Bool)
        }
        package var epoch: UInt64
        package var phase: Phase
        package var failureCount = 0
        /// The previous owner, and whether it handed the partition over to this node.
        var origin: NodeID?
        var wasGiven = false
    }

    package private(set) var seats: [Int: Ownership] = [:]

    package enum Link: Hashable, Sendable { case up, down, refused }
    package private(set) var links: [NodeID: Link] = [:]

    /// Server time minus local time, at the last reply.
    private var serverOffset: Int64
    private var routes: [NodeID?]
    private var requestedLinks: [NodeID: String] = [:]
    /// The highest epoch that each partition's log is known to have reached under another owner.
    private var takenEpochs: [Int: UInt64] = [:]
    /// The times until which this node does not claim or open a partition.
    private var blocked: [Int: Int64] = [:]
    /// The number of consecutive opens of each partition on this node that found a damaged log; kept while another node tries.
    private var damageCounts: [Int: Int] = [:]
    /// The last known owner of each partition, other than this node.
    private var lastOwners: [NodeID?]
    /// The entry that each partition had before this node claimed it.
    private var origins: [Int: PartEntry] = [:]
    /// Closed partitions whose release is not yet written to the register.
    private var unreleased: [Int: PartEntry] = [:]
    /// Partitions released to a successor that does not serve them yet, with the time at which this node stops waiting.
    private var handed: [Int: (heir: NodeID, until: Int64)] = [:]
    /// Partitions without an owner: the entry, and the time at which this node first saw it.
    private var orphans: [Int: (entry: PartEntry, since: Int64)] = [:]
    /// Partitions with a change in flight to the register.
    private var changing: Set<Int> = []
    /// Whether `view` may be outdated, such as after a change with an unknown outcome; changes wait for the next snapshot.
    private var isViewStale = false
    private var wantsSnapshot = false
    private var steadySince: Int64
    private var targets: [NodeID?] = []
    /// Whether nothing is pending; ticks and unchanged renewals need no work then.
    private var isAtRest = false
    private var actions: [MembershipAction] = []

    /// Creates the state from the register's reply to the join; `sentAt` is this node's monotonic time before that call.
    package init(
        _ joined: JoinReply, instance: UInt64, info: MemberInfo, timing: ClusterTiming = ClusterTiming(),
        sentAt: Int64, now: Int64
    ) {
        (node, self.instance, self.info, self.timing) = (joined.node, instance, info, timing)
        (view, renewedAt, steadySince) = (joined.snapshot, sentAt, now)
        serverOffset = joined.snapshot.serverTime - now
        routes = Array(repeating: nil, count: joined.snapshot.entries.count)
        lastOwners = routes
        // Version 0 makes the first renewal return a snapshot, which is processed like every later one.
        view.version = 0
    }

    package var partCount: Int { view.entries.count }

    /// The version to send with the next renewal; 0 requests a snapshot.
    package var seenVersion: UInt64 { wantsSnapshot || isViewStale ? 0 : view.version }

    /// Returns the time of the next renewal, unless an earlier event triggers it.
    package func nextRenewal() -> Int64 {
        if isViewStale { return renewedAt + timing.shortestRenewal }
        let isUnsettled = wantsSnapshot || !orphans.isEmpty || !handed.isEmpty || !isPlaced
        return renewedAt + (isUnsettled ? timing.fastInterval(memberCount: view.members.count) : timing.renewal)
    }

    package mutating func take(_ input: MembershipInput, now: Int64) -> [MembershipAction] {
        actions.removeAll(keepingCapacity: true)
        guard !hasLeft else { return [] }
        switch input {
        case .snapshot(let snapshot, let isRecreated, let sentAt): take(snapshot, isRecreated, sentAt, now)
        case .unchanged(let serverTime, let sentAt):
            (renewedAt, serverOffset) = (sentAt, serverTime - now)
        case .linkUp(let node): links[node] = .up
        case .linkDown(let node): if links[node] != .refused { links[node] = .down }
        case .linkRefused(let node): links[node] = .refused
        case .changed(let changes, let entries): changed(changes, entries)
        case .changeFailed(let changes):
            changing.subtract(changes.map(\.part))
            isViewStale = true
        case .opened(let part, let epoch): opened(part, epoch)
        case .epochTaken(let part, let epoch, let top): epochTaken(part, epoch, top, now)
        case .openFailed(let part, let epoch, let isDamaged): openFailed(part, epoch, now, isDamaged: isDamaged)
        case .lost(let part, let epoch): lost(part, epoch, now)
        case .closed(let part, let epoch): closed(part, epoch, now)
        case .leave: info.isLeaving = true
        case .tick: break
        }
        switch input {
        case .tick, .unchanged: if isAtRest { return actions }
        default: break
        }
        wantsSnapshot = links.contains { $0.value == .refused && view.members[$0.key] != nil }
        revise(now)
        return actions
    }

    // MARK: The register's news

    private mutating func take(_ snapshot: RegisterSnapshot, _ isRecreated: Bool, _ sentAt: Int64, _ now: Int64) {
        guard snapshot.entries.count == partCount else { return }
        let old = view
        (view, renewedAt, serverOffset, isViewStale) = (snapshot, sentAt, snapshot.serverTime - now, false)
        changing.removeAll()
        if isRecreated {
            info.lapseCount += 1
            steadySince = now
            actions.append(.tell(.leaseLapsed(count: info.lapseCount)))
        } else if info.lapseCount > 0, now - steadySince > timing.lapseMemory {
            info.lapseCount = 0
        }
        for (node, member) in view.members where old.members[node] == nil && node != self.node {
            actions.append(
                .tell(.memberJoined(node, address: member.info.address, release: member.info.release)))
        }
        for (node, member) in old.members where view.members[node] == nil && node != self.node {
            links[node] = nil
            actions.append(.tell(.memberLeft(node, address: member.info.address)))
        }
        // A refused connection alone proves little, because firewalls also refuse. Together with a missing renewal it proves that
        // the process ended.
        for (node, member) in view.members.sorted(by: { $0.key < $1.key }) where links[node] == .refused {
            let silence = view.serverTime - (member.leaseEnd - timing.lease)
            guard silence > timing.renewal + timing.lateness else { continue }
            actions.append(.expire(node, leaseEnd: member.leaseEnd))
            actions.append(.tell(.memberExpired(node)))
            links[node] = .down
            isViewStale = true
        }
    }

    private mutating func changed(_ changes: [PartChange], _ entries: [PartEntry]) {
        for (change, entry) in zip(changes, entries) {
            changing.remove(change.part)
            if entry != change.to { isViewStale = true }
            view.entries[change.part] = entry
            if entry == change.to, case .claimed(node) = entry.state { origins[change.part] = change.from }
            if entry == change.to, case .open(node) = entry.state, let seat = seats[change.part], seat.wasGiven,
                let giver = seat.origin, giver != node
            {
                actions.append(.nudge(giver))
            }
            if let entry = unreleased[change.part], entry == change.from, case .released(let heir) = change.to.state {
                unreleased[change.part] = nil
                actions.append(.tell(.partGiven(part: change.part, epoch: change.to.epoch, to: heir)))
                if let heir { actions.append(.nudge(heir)) }
            }
        }
    }

    // MARK: The seats' news

    private mutating func opened(_ part: Int, _ epoch: UInt64) {
        guard var seat = seats[part], seat.epoch == epoch, seat.phase == .opening else { return }
        (seat.phase, seat.failureCount) = (.open, 0)
        seats[part] = seat
        damageCounts[part] = nil
        actions.append(
            .tell(.partTaken(part: part, epoch: epoch, from: seat.origin, wasPlanned: seat.wasGiven)))
    }

    private mutating func epochTaken(_ part: Int, _ epoch: UInt64, _ top: UInt64, _ now: Int64) {
        guard let seat = seats[part], seat.epoch == epoch else { return }
        // No epoch above `top` is left to claim, so the open counts as failed.
        guard top < PartEntry.highestEpoch - 1 else { return openFailed(part, epoch, now) }
        takenEpochs[part] = max(takenEpochs[part] ?? 0, top, epoch)
        seats[part] = nil
        actions.append(.tell(.epochTaken(part: part, epoch: epoch, top: top)))
    }

    private mutating func openFailed(_ part: Int, _ epoch: UInt64, _ now: Int64, isDamaged: Bool = false) {
        guard var seat = seats[part], seat.epoch == epoch, seat.phase == .opening else { return }
        actions.append(.tell(.openFailed(part: part, epoch: epoch)))
        seat.failureCount += 1
        var delay = min(timing.longestOpenRetry, timing.openRetry << Int64(min(seat.failureCount - 1, 8)))
        if isDamaged {
            let count = damageCounts[part] ?? 0
            damageCounts[part] = count + 1
            delay = min(timing.longestDamagedRetry, timing.damagedRetry << Int64(min(count, 16)))
        }
        seat.phase = .waiting(until: now + delay)
        seats[part] = seat
    }

    private mutating func lost(_ part: Int, _ epoch: UInt64, _ now: Int64) {
        guard let seat = seats[part], seat.epoch == epoch else { return }
        takenEpochs[part] = max(takenEpochs[part] ?? 0, epoch + 1)
        blocked[part] = now + timing.lossDelay
        isViewStale = true
        if case .closing(_, isGift: true) = seat.phase {
            seats[part]?.phase = .closing(heir: nil, isGift: false)
        } else if seat.phase == .open {
            close(part, seat, heir: nil, isGift: false)
            actions.append(.tell(.partLost(part: part, epoch: epoch)))
        }
    }

    private mutating func closed(_ part: Int, _ epoch: UInt64, _ now: Int64) {
        guard let seat = seats[part], seat.epoch == epoch else { return }
        seats[part] = nil
        guard case .closing(let heir, let isGift) = seat.phase else {
            // The shard closed without a request. Its epoch cannot be used again.
            takenEpochs[part] = max(takenEpochs[part] ?? 0, epoch)
            return
        }
        guard isGift, view.entries[part].owner == node, view.entries[part].epoch == epoch else { return }
        unreleased[part] = view.entries[part]
        if let heir { handed[part] = (heir, now + timing.handoverTimeout) }
    }

    private mutating func close(_ part: Int, _ seat: Ownership, heir: NodeID?, isGift: Bool) {
        seats[part]?.phase = .closing(heir: heir, isGift: isGift)
        actions.append(.unseat(part: part, epoch: seat.epoch))
    }

    // MARK: Placement and routes

    /// Recomputes placement, changes, routes and links; this is cheap when nothing changed.
    private mutating func revise(_ now: Int64) {
        noteOrphans(now)
        let candidates = self.candidates(now)
        targets = placement(candidates, now)
        var changes: [PartChange] = []
        for part in view.entries.indices where !changing.contains(part) {
            if let change = settle(part, candidates, now) { changes.append(change) }
        }
        giveAway(candidates, now, &changes)
        if !changes.isEmpty {
            changing.formUnion(changes.map(\.part))
            actions.append(.change(changes))
        }
        showRoutes()
        showLinks()
        isAtRest =
            actions.isEmpty && orphans.isEmpty && handed.isEmpty && unreleased.isEmpty && changing.isEmpty
            && blocked.isEmpty
            && !isViewStale && !wantsSnapshot && !info.isLeaving && view.version != 0
            && seats.values.allSatisfy { $0.phase == .open } && candidates.allSatisfy(\.mayGain) && isPlaced
        if info.isLeaving, seats.isEmpty, unreleased.isEmpty, changes.isEmpty, view.version != 0,
            !view.entries.contains(where: { $0.owner == node })
        {
            hasLeft = true
            actions.append(.leave)
            actions.append(.tell(.left))
        }
    }

    private func isThere(_ node: NodeID) -> Bool { node == self.node || view.members[node] != nil }

    private func hasOwner(_ part: Int) -> Bool { view.entries[part].owner.map(isThere) ?? false }

    private mutating func noteOrphans(_ now: Int64) {
        for part in view.entries.indices {
            let entry = view.entries[part]
            if let owner = entry.owner, owner != node { lastOwners[part] = owner }
            if hasOwner(part) {
                orphans[part] = nil
            } else if orphans[part]?.entry != entry {
                orphans[part] = (entry, now)
            }
            if let given = handed[part] {
                let isTaken = entry.owner.map { $0 != node } ?? false
                if now >= given.until || isTaken && (entry.isOpen || entry.owner != given.heir) { handed[part] = nil }
            }
        }
    }

    /// Returns the nodes that may own partitions: the members that are not leaving and not drained.
    ///
    /// If all staying members are drained, they are the candidates. Nodes on probation may not gain partitions.
    private func candidates(_ now: Int64) -> [Placement.Candidate] {
        var all: [NodeID: MemberInfo] = view.members.mapValues(\.info)
        all[node] = info
        let staying = all.filter { !$0.value.isLeaving }
        let willing = staying.filter { !view.drained.contains($0.key) }
        let serverTime = now + serverOffset
        return (willing.isEmpty ? staying : willing).map { node, info in
            let since = view.members[node]?.since ?? serverTime
            return Placement.Candidate(
                node, mayGain: serverTime - since >= timing.probation(lapseCount: info.lapseCount))
        }
    }

    private func placement(_ candidates: [Placement.Candidate], _ now: Int64) -> [NodeID?] {
        var avoided: [Int: NodeID] = [:]
        let holders = view.entries.indices.map { part -> NodeID? in
            let entry = view.entries[part]
            switch entry.state {
            case .claimed(let node), .open(let node): return node
            case .released(let heir?):
                guard let orphan = orphans[part], now - orphan.since < timing.heirDelay else { return nil }
                return heir
            case .failed(let node):
                avoided[part] = node
                return nil
            case .unclaimed, .released(nil): return nil
            }
        }
        return Placement.targets(holders: holders, pins: view.pins, avoided: avoided, candidates: candidates)
    }

    /// Whether every partition is open on the node that the placement names.
    private var isPlaced: Bool {
        zip(view.entries, targets).allSatisfy { $0.isOpen && $0.owner == $1 }
    }

    /// Reconciles one partition's local state with its entry; returns the register change that is needed, if any.
    private mutating func settle(_ part: Int, _ candidates: [Placement.Candidate], _ now: Int64) -> PartChange? {
        // After a failed call the next renewal comes first, because it also recreates an expired lease.
        guard !isViewStale else { return nil }
        let entry = view.entries[part]
        if let given = unreleased[part] {
            guard entry == given else {
                unreleased[part] = nil
                return nil
            }
            let heir = handed[part]?.heir
            return PartChange(
                part: part, from: entry,
                to: PartEntry(epoch: entry.epoch, state: .released(heir: heir.flatMap { isThere($0) ? $0 : nil })))
        }
        guard let seat = seats[part] else {
            if entry.owner == node { return takeUp(part, entry, now) }
            return hasOwner(part) ? nil : claim(part, entry, candidates, now)
        }
        switch seat.phase {
        case .closing: return nil
        case .open:
            if entry.owner == node, entry.epoch == seat.epoch {
                return entry.isOpen
                    ? nil : PartChange(part: part, from: entry, to: .init(epoch: seat.epoch, state: .open(node)))
            }
            if seat.epoch > entry.epoch {
                // The log accepts this owner, and its epoch is higher than the register's: the register lost a change.
                actions.append(.tell(.registerCorrected(part: part, epoch: seat.epoch)))
                return PartChange(part: part, from: entry, to: .init(epoch: seat.epoch, state: .open(node)))
            }
            // The register assigned the same epoch twice. The log accepted this owner first and rejects the other one.
            if entry.epoch == seat.epoch, entry.owner != nil { return nil }
            close(part, seat, heir: nil, isGift: false)
            actions.append(.tell(.partLost(part: part, epoch: seat.epoch)))
            return nil
        case .opening:
            // An open whose claim was lost is not cancelled, because the log rejects it in any case.
            guard seat.epoch > entry.epoch else { return nil }
            return PartChange(part: part, from: entry, to: .init(epoch: seat.epoch, state: .claimed(node)))
        case .waiting(let until):
            guard entry.owner == node, entry.epoch == seat.epoch else {
                seats[part] = nil
                return nil
            }
            if seat.failureCount >= ClusterTiming.openTryCount, candidates.contains(where: { $0.node != node }) {
                seats[part] = nil
                return PartChange(part: part, from: entry, to: .init(epoch: entry.epoch, state: .failed(by: node)))
            }
            if now >= until {
                seats[part]?.phase = .opening
                actions.append(.seat(part: part, epoch: seat.epoch))
            }
            return nil
        }
    }

    /// Handles an entry that names this node as owner although the partition is not open here.
    private mutating func takeUp(_ part: Int, _ entry: PartEntry, _ now: Int64) -> PartChange? {
        if let until = blocked[part] {
            guard now >= until else { return nil }
            blocked[part] = nil
        }
        if info.isLeaving {
            unreleased[part] = entry
            return PartChange(part: part, from: entry, to: .init(epoch: entry.epoch, state: .released(heir: nil)))
        }
        if let taken = takenEpochs[part], taken >= entry.epoch {
            return PartChange(part: part, from: entry, to: .init(epoch: taken + 1, state: .claimed(node)))
        }
        seat(part, entry)
        return nil
    }

    private mutating func seat(_ part: Int, _ entry: PartEntry) {
        var seat = Ownership(epoch: entry.epoch, phase: .opening, origin: lastOwners[part])
        if case .released(let heir?) = origins.removeValue(forKey: part)?.state { seat.wasGiven = heir == node }
        seats[part] = seat
        takenEpochs[part] = nil
        actions.append(.seat(part: part, epoch: entry.epoch))
    }

    // MARK: Claiming

    private func claim(
        _ part: Int, _ entry: PartEntry, _ candidates: [Placement.Candidate], _ now: Int64
    ) -> PartChange? {
        guard let orphan = orphans[part], !info.isLeaving, view.version != 0 else { return nil }
        if let until = blocked[part], now < until { return nil }
        let claimed = PartEntry(epoch: max(entry.epoch, takenEpochs[part] ?? 0) + 1, state: .claimed(node))
        let change = PartChange(part: part, from: entry, to: claimed)
        if case .released(let heir?) = entry.state, heir == node { return change }
        guard candidates.contains(where: { $0.node == node }), !isSettling(now) else { return nil }
        if targets[part] == node { return change }
        var delay = timing.claimDelay
        if case .released(.some) = entry.state { delay += timing.heirDelay }
        let rank = Placement.rank(of: node, for: part, among: candidates)
        delay += timing.claimDelay * Int64(min(rank, ClusterTiming.lowestRank))
        return now - orphan.since >= delay ? change : nil
    }

    private func isSettling(_ now: Int64) -> Bool {
        guard !info.address.isEmpty, view.entries.indices.allSatisfy({ !hasOwner($0) }) else { return false }
        let eldest = view.members.values.map(\.since).min() ?? now + serverOffset
        return now + serverOffset - eldest < timing.settling
    }

    // MARK: Giving away

    private mutating func giveAway(
        _ candidates: [Placement.Candidate], _ now: Int64, _ changes: inout [PartChange]
    ) {
        guard !isViewStale else { return }
        let isGoing = info.isLeaving || !candidates.contains { $0.node == node }
        // No handover starts while a partition lacks an owner, unless that partition was released to a successor.
        if !isGoing {
            let isBroken = orphans.contains { if case .released(.some) = $0.value.entry.state { false } else { true } }
            if isBroken { return }
        }
        let limit = isGoing ? ClusterTiming.leavingHandoverCount : ClusterTiming.handoverCount
        var count = Set(handed.keys).union(unreleased.keys).count
        for (part, seat) in seats { if case .closing(_, isGift: true) = seat.phase, handed[part] == nil { count += 1 } }
        for part in view.entries.indices {
            guard let seat = seats[part] else { continue }
            let heir = targets[part]
            guard heir != node else { continue }
            if heir == nil {
                // No successor exists. The released partitions wait in the register for the next gateway.
                guard info.isLeaving else { continue }
            } else if let heir, links[heir] == .refused {
                continue
            } else {
                guard count < limit else { continue }
            }
            switch seat.phase {
            // An opening partition may depend on the owner of partition 0, which may be this node. A leaving node therefore does
            // not wait for the open.
            case .opening where info.isLeaving, .open:
                guard view.entries[part].owner == node, view.entries[part].epoch == seat.epoch else { continue }
                close(part, seat, heir: heir, isGift: true)
                count += 1
            case .waiting where info.isLeaving:
                seats[part] = nil
                let entry = view.entries[part]
                guard entry.owner == node, !changing.contains(part), !changes.contains(where: { $0.part == part })
                else { continue }
                changes.append(
                    PartChange(part: part, from: entry, to: .init(epoch: entry.epoch, state: .released(heir: nil))))
            case .opening, .waiting, .closing: continue
            }
        }
    }

    // MARK: Routes and links

    private mutating func showRoutes() {
        for part in view.entries.indices {
            let owner = view.entries[part].owner.flatMap { isThere($0) ? $0 : nil }
            guard routes[part] != owner else { continue }
            routes[part] = owner
            actions.append(.route(part: part, to: owner))
        }
    }

    private mutating func showLinks() {
        var wish: [NodeID: String] = [:]
        for (node, member) in view.members where node != self.node && !member.info.address.isEmpty {
            wish[node] = member.info.address
        }
        guard wish != requestedLinks else { return }
        requestedLinks = wish
        actions.append(.link(wish))
    }
}

extension Membership {
    package enum Health: Hashable, Sendable {
        case serves
        /// The lease has expired by this gateway's clock because the register is unreachable.
        case registerUnreachable
        /// Partitions are assigned to this gateway, but none is open yet.
        case ownsNothing
        case drains
    }

    package func health(now: Int64) -> Health {
        if now - renewedAt > timing.lease { return .registerUnreachable }
        if hasLeft || info.isLeaving || view.drained.contains(node) { return .drains }
        let isOwed = view.version == 0 || targets.contains(node)
        let hasOpen = seats.values.contains { $0.phase == .open }
        return isOwed && !hasOpen ? .ownsNothing : .serves
    }

    package var openCount: Int { seats.values.count { $0.phase == .open } }

    /// Returns the server time that corresponds to `now`, by the offset of the last reply.
    package func serverTime(now: Int64) -> Int64 { now + serverOffset }
}
