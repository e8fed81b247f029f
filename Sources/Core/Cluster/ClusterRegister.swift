/// What is the same for all gateways of a cluster, made by the first one that joins.
package struct ClusterConstants: Hashable, Sendable {
    /// Of the keys and records in Redis; a gateway joins only a cluster of its own format.
    package var format: Int
    package var partCount: Int
    /// Signs the tokens of the push API: 32 bytes.
    package var tokenKey: [UInt8]
    package var queueEpoch: UInt64
    /// The store's at the join; a later one is in the snapshots.
    package var history: ClusterHistory

    package init(
        format: Int, partCount: Int, tokenKey: [UInt8], queueEpoch: UInt64,
        history: ClusterHistory = ClusterHistory(id: 1, began: 0)
    ) {
        (self.format, self.partCount, self.tokenKey, self.queueEpoch) = (format, partCount, tokenKey, queueEpoch)
        self.history = history
    }
}

/// The history of the cluster's store as the register has it; `StoreHistory` in Delivery gives it its meaning.
package struct ClusterHistory: Hashable, Sendable {
    /// Random.
    package var id: UInt64
    /// In microseconds since 1970; 0 for a store whose content never went back.
    package var began: UInt64

    package init(id: UInt64, began: UInt64) { (self.id, self.began) = (id, began) }
}

/// The register at one moment.
package struct RegisterSnapshot: Hashable, Sendable {
    /// Another one with each change of members, parts or wishes; not ordered.
    package var version: UInt64
    /// The server's clock, in milliseconds since 1970.
    package var serverTime: Int64
    /// The highest gateway time that any gateway wrote.
    package var clockFloor: Int64
    package var members: [NodeID: Member]
    /// One for each part.
    package var entries: [PartEntry]
    /// Gateways that an operator told to give their parts away.
    package var drained: Set<NodeID>
    /// Parts that an operator placed, while the gateway is there.
    package var pins: [Int: NodeID]
    package var history: ClusterHistory

    /// The highest gateway time as far as it can be believed.
    package var soundClockFloor: Int64 { Self.soundClockFloor(clockFloor, serverTime: serverTime) }

    /// 0 for a time that no gateway can have; such a one never becomes another's time.
    package static func soundClockFloor(_ floor: Int64, serverTime: Int64) -> Int64 {
        (0...ClusterTiming.latestTime).contains(floor) && floor - serverTime <= ClusterTiming.clockStep ? floor : 0
    }

    package init(
        version: UInt64, serverTime: Int64, clockFloor: Int64, partCount: Int,
        history: ClusterHistory = ClusterHistory(id: 1, began: 0)
    ) {
        self.history = history
        (self.version, self.serverTime, self.clockFloor) = (version, serverTime, clockFloor)
        (members, drained, pins) = ([:], [], [:])
        entries = Array(repeating: PartEntry(), count: partCount)
    }
}

package struct JoinRequest: Hashable, Sendable {
    package var instance: UInt64
    package var info: MemberInfo
    /// In force if the cluster is new; otherwise format and number of parts must be the cluster's.
    package var constants: ClusterConstants
    package init(instance: UInt64, info: MemberInfo, constants: ClusterConstants) {
        (self.instance, self.info, self.constants) = (instance, info, constants)
    }
}

package struct JoinReply: Hashable, Sendable {
    package var node: NodeID
    package var constants: ClusterConstants
    package var snapshot: RegisterSnapshot
    package init(node: NodeID, constants: ClusterConstants, snapshot: RegisterSnapshot) {
        (self.node, self.constants, self.snapshot) = (node, constants, snapshot)
    }
}

package enum RenewReply: Hashable, Sendable {
    /// Nothing has changed since the version that the caller has.
    case unchanged(serverTime: Int64, clockFloor: Int64)
    /// `isRecreated`: the caller's lease had run out, and a new one has begun.
    case changed(RegisterSnapshot, isRecreated: Bool)
}

/// What an operator asks of the cluster; each is kept in the register until it is undone or its gateway has left.
package enum RegisterRequest: Hashable, Sendable {
    case drain(NodeID)
    case undrain(NodeID)
    /// Places a part; `nil`: the cluster chooses again.
    case move(part: Int, to: NodeID?)
}

package enum RegisterError: Error, Hashable, Sendable, CustomStringConvertible {
    /// No answer, or one that says to try again; what was asked may have been done.
    case unavailable(String)
    /// The answer makes no sense: another program uses these keys.
    case malformed(String)
    /// Another gateway has this number: its join was lost, or this one's was. Join again.
    case replaced
    /// The caller's lease has run out; it must renew first.
    case expired
    case formatDiffers(Int)
    case partCountDiffers(Int)
    /// A gateway without a listener for links is the only one of its cluster.
    case worksAlone(address: String)
    /// A living gateway has the caller's address.
    case addressTaken(NodeID, address: String)
    case isFull
    case unknownNode(NodeID)
    /// `longwire store copy` works on the cluster, or was cut off while it wrote to it.
    case isCopied(isTarget: Bool, other: String)

    package var description: String {
        switch self {
        case .unavailable(let reason): "the cluster's register cannot be reached: \(reason)"
        case .malformed(let what): "the cluster's register holds what no gateway of this release wrote: \(what)"
        case .replaced: "another gateway has this gateway's number"
        case .expired: "this gateway's lease has run out"
        case .formatDiffers(let format):
            "the cluster's data has format \(format), and this release reads another; run the release that wrote it, or use another cluster.name"
        case .partCountDiffers(let count):
            "cluster.parts is \(count) since the cluster's first start; set it so, or use another cluster.name"
        case .worksAlone(let address):
            "another gateway\(address.isEmpty ? "" : " at \(address)") has this cluster.name; gateways work as one when each has cluster.listen"
        case .addressTaken(let node, let address):
            "cluster.advertise: gateway \(node) has the address \(address), too; give each gateway an address of its own, or stop the other one"
        case .isFull:
            "all 1023 numbers of gateways are in use, or were within a day by gateways that did not stop cleanly; stop what starts gateways over and over, and wait: a number is free a day after its gateway ended"
        case .isCopied(isTarget: true, let other):
            "the cluster gets a copy of \(other) that has not ended: wait for longwire store copy, or, if it was cut off, run it again with --replace"
        case .isCopied(isTarget: false, let other):
            "the cluster is being copied to \(other): this ends with longwire store copy, or a minute after it was cut off"
        case .unknownNode(let node): "no gateway with the number \(node) is in the cluster"
        }
    }
}

/// Where gateways agree on who owns which part.
///
/// Each call is one step that runs whole or not at all, by the server's clock. A call that throws `.unavailable` may have
/// run: the next snapshot tells. One thread at a time calls it.
package protocol ClusterRegister: AnyObject {
    func join(_ request: JoinRequest) throws(RegisterError) -> JoinReply
    /// Keeps the caller's lease, and brings it back if it ran out.
    ///
    /// `clock` is the caller's gateway time, `seen` the version that it has; 0: it wants a snapshot in any case.
    func renew(
        _ node: NodeID, instance: UInt64, info: MemberInfo, clock: Int64, seen: UInt64
    ) throws(RegisterError) -> RenewReply
    /// Compares and sets; returns the entry of each change's part afterwards, so a change was made if it equals `to`.
    func change(_ node: NodeID, instance: UInt64, _ changes: [PartChange]) throws(RegisterError) -> [PartEntry]
    /// Ends the lease of a member that did not renew since `leaseEnd` was read.
    func expire(_ node: NodeID, leaseEnd: Int64) throws(RegisterError)
    /// Ends the caller's lease and gives back what it owns.
    func leave(_ node: NodeID, instance: UInt64) throws(RegisterError)
    func wish(_ wish: RegisterRequest) throws(RegisterError)
    /// Begins another history: Redis has lost what was durable. `id` is random.
    func renewHistory(id: UInt64) throws(RegisterError)
}
