/// An in-memory implementation of the register for tests and the simulation.
///
/// It follows the same rules as the Redis scripts; a test compares both step by step.
package struct RegisterState: Sendable {
    package let timing: ClusterTiming
    package private(set) var constants: ClusterConstants?
    private var lastNode: UInt16 = 0
    private var clockFloor: Int64 = 0
    private var version: UInt64 = 0
    /// The server time of the last call; a gap shows that the register was unreachable.
    private var lastCall: Int64 = 0
    private var members: [NodeID: Member] = [:]
    private var entries: [PartEntry] = []
    private var drained: Set<NodeID> = []
    private var pins: [Int: NodeID] = [:]
    private var history = ClusterHistory(id: 1, began: 0)
    /// The server time at which each number was last assigned or renewed.
    private var used: [NodeID: Int64] = [:]

    package init(timing: ClusterTiming = ClusterTiming()) { self.timing = timing }

    package var drainedNodes: Set<NodeID> { drained }
    package var pinnedParts: [Int: NodeID] { pins }

    /// Assigns a number to a gateway.
    ///
    /// `nonce` becomes the version if this call changes anything; a nonce must never repeat.
    package mutating func join(_ request: JoinRequest, now: Int64, nonce: UInt64) throws(RegisterError) -> JoinReply {
        tend(now, nonce)
        if let constants {
            guard constants.format == request.constants.format else { throw .formatDiffers(constants.format) }
            guard constants.partCount == request.constants.partCount else {
                throw .partCountDiffers(constants.partCount)
            }
        }
        if let alone = members.values.first(where: { $0.info.address.isEmpty || request.info.address.isEmpty }) {
            throw .worksAlone(address: alone.info.address)
        }
        if let twin = members.first(where: {
            $0.value.info.address == request.info.address && $0.value.instance != request.instance
        }) {
            throw .addressTaken(twin.key, address: request.info.address)
        }
        if self.constants == nil { history = request.constants.history }
        var constants = constants ?? request.constants
        constants.history = history
        self.constants = constants
        if entries.isEmpty { entries = Array(repeating: PartEntry(), count: constants.partCount) }
        guard let node = freeNumber(now) else { throw .isFull }
        lastNode = node.number
        forget(node)
        members[node] = Member(
            info: request.info, instance: request.instance, since: now, leaseEnd: now + timing.lease)
        used[node] = now
        version = nonce
        return JoinReply(node: node, constants: constants, snapshot: snapshot(now))
    }

    package mutating func renew(
        _ node: NodeID, instance: UInt64, info: MemberInfo, clock: Int64, seen: UInt64, now: Int64, nonce: UInt64
    ) throws(RegisterError) -> RenewReply {
        tend(now, nonce)
        let highest = now + ClusterTiming.clockStep
        if clock <= highest, clockFloor < clock || clockFloor > highest { clockFloor = clock }
        var isRecreated = false
        if var member = members[node] {
            guard member.instance == instance else { throw .replaced }
            member.leaseEnd = now + timing.lease
            if member.info != info {
                member.info = info
                version = nonce
            }
            members[node] = member
        } else {
            members[node] = Member(info: info, instance: instance, since: now, leaseEnd: now + timing.lease)
            version = nonce
            isRecreated = true
        }
        used[node] = now
        if seen == version { return .unchanged(serverTime: now, clockFloor: clockFloor) }
        return .changed(snapshot(now), isRecreated: isRecreated)
    }

    package mutating func change(
        _ node: NodeID, instance: UInt64, _ changes: [PartChange], now: Int64, nonce: UInt64
    ) throws(RegisterError) -> [PartEntry] {
        tend(now, nonce)
        guard let member = members[node] else { throw .expired }
        guard member.instance == instance else { throw .replaced }
        var results: [PartEntry] = []
        for change in changes {
            if entries[change.part] == change.from {
                entries[change.part] = change.to
                version = nonce
            }
            results.append(entries[change.part])
        }
        return results
    }

    package mutating func expire(_ node: NodeID, leaseEnd: Int64, now: Int64, nonce: UInt64) {
        tend(now, nonce)
        guard members[node]?.leaseEnd == leaseEnd else { return }
        members[node] = nil
        version = nonce
    }

    package mutating func leave(
        _ node: NodeID, instance: UInt64, now: Int64, nonce: UInt64
    ) throws(RegisterError) {
        tend(now, nonce)
        if let member = members[node], member.instance != instance { throw .replaced }
        for part in entries.indices where entries[part].owner == node {
            entries[part].state = .released(heir: nil)
        }
        members[node] = nil
        // After a clean leave, nothing of the gateway is in flight. Its number can be reused at once.
        used[node] = nil
        forget(node)
        version = nonce
    }

    package mutating func wish(_ wish: RegisterRequest, now: Int64, nonce: UInt64) throws(RegisterError) {
        tend(now, nonce)
        switch wish {
        case .drain(let node):
            guard members[node] != nil else { throw .unknownNode(node) }
            drained.insert(node)
        case .undrain(let node): drained.remove(node)
        case .move(let part, let node):
            if let node, members[node] == nil { throw .unknownNode(node) }
            pins[part] = node
        }
        version = nonce
    }

    package mutating func renewHistory(id: UInt64, now: Int64, nonce: UInt64) {
        tend(now, nonce)
        history = ClusterHistory(id: id, began: max(UInt64(now) * 1_000, history.began + 1_000_000))
        version = nonce
    }

    /// Removes members whose leases have expired.
    ///
    /// Members renew several times per lease. Without any call for half a lease, the register itself was unreachable or its clock
    /// was set. In that case every lease restarts.
    private mutating func tend(_ now: Int64, _ nonce: UInt64) {
        if now < lastCall || now > lastCall + timing.lease / 2 {
            for node in members.keys { members[node]?.leaseEnd = now + timing.lease }
        }
        lastCall = now
        for (node, member) in members where member.leaseEnd <= now {
            members[node] = nil
            version = nonce
        }
    }

    private mutating func forget(_ node: NodeID) {
        drained.remove(node)
        for (part, pin) in pins where pin == node { pins[part] = nil }
    }

    /// Returns the next number, in round-robin order, that was unused for `numberRest`.
    private func freeNumber(_ now: Int64) -> NodeID? {
        for step in 1...NodeID.range.upperBound {
            guard let node = NodeID((lastNode + step - 1) % NodeID.range.upperBound + 1) else { return nil }
            if members[node] == nil, used[node].map({ $0 <= now - timing.numberRest }) ?? true {
                return node
            }
        }
        return nil
    }

    private func snapshot(_ now: Int64) -> RegisterSnapshot {
        var snapshot = RegisterSnapshot(version: version, serverTime: now, clockFloor: clockFloor, partCount: 0)
        (snapshot.members, snapshot.entries) = (members, entries)
        (snapshot.drained, snapshot.pins, snapshot.history) = (drained, pins, history)
        return snapshot
    }
}
