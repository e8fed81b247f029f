/// The settings shared by all gateways of a cluster, created by the first gateway that joins.
package struct ClusterConstants: Hashable, Sendable {
    /// The format of the keys and records in Redis; a gateway joins only a cluster of the same format.
    package var format: Int
    package var partCount: Int
    /// The key that signs the tokens of the push API, 32 bytes.
    package var tokenKey: [UInt8]
    package var queueEpoch: UInt64
    /// The store's history at the join; snapshots carry later changes.
    package var history: ClusterHistory

    package init(
        format: Int, partCount: Int, tokenKey: [UInt8], queueEpoch: UInt64,
        history: ClusterHistory = ClusterHistory(id: 1, began: 0)
    ) {
        (self.format, self.partCount, self.tokenKey, self.queueEpoch) = (format, partCount, tokenKey, queueEpoch)
        self.history = history
    }
}

/// The history of the cluster's store; see `StoreHistory` in Delivery.
package struct ClusterHistory: Hashable, Sendable {
    /// A random number.
    package var id: UInt64
    /// The start of the history in microseconds since 1970; 0 if the store's content was never rolled back.
    package var began: UInt64

    package init(id: UInt64, began: UInt64) { (self.id, self.began) = (id, began) }
}

package struct RegisterSnapshot: Hashable, Sendable {
    /// A random version that changes with every change of members, partitions or operator requests; versions are not ordered.
    package var version: UInt64
    /// The server's clock, in milliseconds since 1970.
    package var serverTime: Int64
    /// The highest gateway time that any gateway reported.
    package var clockFloor: Int64
    package var members: [NodeID: Member]
    package var entries: [PartEntry]
    /// The gateways that an operator drained: they hand over their partitions.
    package var drained: Set<NodeID>
    /// The partitions that an operator placed; a pin is removed when its gateway's number is reassigned or released.
    package var pins: [Int: NodeID]
    package var history: ClusterHistory

    /// The validated `clockFloor`; 0 if it is implausible.
    package var soundClockFloor: Int64 { Self.soundClockFloor(clockFloor, serverTime: serverTime) }

    /// Returns `floor`, or 0 if no correct gateway clock can have reported it; an invalid time must not spread to other gateways.
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
    /// The settings for a new cluster; for an existing cluster, format and partition count must match.
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
    case unchanged(serverTime: Int64, clockFloor: Int64)
    /// The register changed; `isRecreated` is true if the caller's lease had expired and a new lease began.
    case changed(RegisterSnapshot, isRecreated: Bool)
}

/// An operator's request, kept in the register until it is undone or its gateway has left.
package enum RegisterRequest: Hashable, Sendable {
    case drain(NodeID)
    case undrain(NodeID)
    /// Pins a partition to a node; with `nil` the cluster chooses again.
    case move(part: Int, to: NodeID?)
}

package enum RegisterError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The register did not answer or asked for a retry; the call may have been executed.
    case unavailable(String)
    /// The register's reply cannot be decoded: another program uses these keys.
    case malformed(String)
    /// Another process holds this number, because one of the two joins was lost; the caller must join again.
    case replaced
    /// The caller's lease has expired; it must renew first.
    case expired
    case formatDiffers(Int)
    case partCountDiffers(Int)
    /// A gateway without a link listener must be the only one of its cluster.
    case worksAlone(address: String)
    /// A live gateway already uses the caller's address.
    case addressTaken(NodeID, address: String)
    case isFull
    case unknownNode(NodeID)
    /// `longwire store copy` is copying the cluster, or was interrupted while writing to it.
    case isCopied(isTarget: Bool, other: String)

    package var description: String {
        switch self {
        case .unavailable(let reason): "the cluster's register cannot be reached: \(reason)"
        case .malformed(let what): "the cluster's register has content that no gateway of this release wrote: \(what)"
        case .replaced: "another gateway has this gateway's number"
        case .expired: "this gateway's lease has run out"
        case .formatDiffers(let format):
            "the cluster's data has format \(format), and this release reads another; run the release that wrote it, or use another cluster.name"
        case .partCountDiffers(let count):
            "cluster.parts is \(count) since the cluster's first start; set it so, or use another cluster.name"
        case .worksAlone(let address):
            "another gateway\(address.isEmpty ? "" : " at \(address)") has this cluster.name; gateways work as one when each has cluster.listen"
        case .addressTaken(let node, let address):
            "cluster.advertise: gateway \(node) has the address \(address), too; give each gateway a different address, or stop the other one"
        case .isFull:
            "all 1023 numbers of gateways are in use, or were within a day by gateways that did not stop cleanly; stop the program that starts gateways repeatedly, and wait: a number is free a day after its gateway ended"
        case .isCopied(isTarget: true, let other):
            "the cluster gets a copy of \(other) that has not ended: wait for longwire store copy, or, if it was cut off, run it again with --replace"
        case .isCopied(isTarget: false, let other):
            "the cluster is being copied to \(other): this ends with longwire store copy, or a minute after it was cut off"
        case .unknownNode(let node): "no gateway with the number \(node) is in the cluster"
        }
    }
}

/// The shared register through which gateways agree on the owner of each partition.
///
/// Each call is atomic and uses the server's clock. A call that throws `.unavailable` may have been executed; the next snapshot
/// shows the result. Only one thread at a time may call it.
package protocol ClusterRegister: AnyObject {
    func join(_ request: JoinRequest) throws(RegisterError) -> JoinReply
    /// Renews the caller's lease, or recreates it after it expired.
    ///
    /// `clock` is the caller's gateway time. `seen` is the caller's version of the register; 0 requests a full snapshot.
    func renew(
        _ node: NodeID, instance: UInt64, info: MemberInfo, clock: Int64, seen: UInt64
    ) throws(RegisterError) -> RenewReply
    /// Compares and sets entries.
    ///
    /// Returns each entry afterwards; a change succeeded if the entry equals `to`.
    func change(_ node: NodeID, instance: UInt64, _ changes: [PartChange]) throws(RegisterError) -> [PartEntry]
    /// Ends the lease of a member that has not renewed since `leaseEnd` was read.
    func expire(_ node: NodeID, leaseEnd: Int64) throws(RegisterError)
    /// Ends the caller's lease and releases its partitions.
    func leave(_ node: NodeID, instance: UInt64) throws(RegisterError)
    func wish(_ wish: RegisterRequest) throws(RegisterError)
    /// Starts a new history after Redis lost durable data; `id` must be random.
    func renewHistory(id: UInt64) throws(RegisterError)
}
