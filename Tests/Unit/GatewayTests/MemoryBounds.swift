import Delivery
import EventLoops
import PushAPI

@testable import Gateway

/// The maximum memory that peers can make one gateway hold within its limits, one line per use.
///
/// docs/use/Operations.md, "The most memory", has the lines and the sum for the defaults and two loops.
struct MemoryBounds {
    struct Line {
        let name: String
        let byteCount: Int
    }

    let lines: [Line]

    var byteCount: Int { lines.reduce(0) { $0 + $1.byteCount } }

    /// - Parameters:
    ///   - limits: the current limits.
    ///   - loops: the number of event loops.
    init(_ limits: GatewayLimits, loops: Int) {
        let rules = limits.peerRules
        let requests = limits.httpConnections + limits.adminConnections
        let all = limits.connections + limits.senderConnections + requests
        lines = [
            Line(name: "requests", byteCount: rules.requests),
            Line(name: "smallRequests", byteCount: requests * Self.smallRequestByteCount),
            Line(name: "upstream", byteCount: rules.upstream),
            // A loop closes streams at the end of its turn.
            Line(name: "streams", byteCount: rules.streams + loops * EventLoops.Limits.readByteCountPerTurn),
            Line(name: "connections", byteCount: all * Self.connectionByteCount),
            Line(name: "tls", byteCount: all * Self.tlsByteCount),
            Line(
                name: "waitingCommands",
                byteCount: loops * limits.shardLimits.waitingInAll
                    * (RowBounds.byteCount(of: .message, limits.shardLimits) ?? 0)),
            Line(name: "uncommitted", byteCount: limits.uncommittedBytes),
            Line(name: "youngMessages", byteCount: Int(limits.journalBytes)),
            Line(name: "devices", byteCount: loops * limits.shardLimits.cachedDeviceCount * Self.deviceByteCount),
            Line(name: "parsing", byteCount: loops * Self.parserByteCount),
            Line(
                name: "reports",
                byteCount: Self.reportByteCount
                    * (loops * Self.reportsPerLoop + limits.connections * Self.reportsInAnyCase)),
            Line(name: "proofs", byteCount: ReplayGuard.proofLimit * Self.proofByteCount),
            Line(name: "voidTokens", byteCount: loops * PushAPI.Limits.revokedTokens * Self.tokenByteCount),
        ]
    }

    /// A request outside all budgets: its head and its body have 4 KiB each, in buffers that double.
    private static let smallRequestByteCount = 4 * EventLoops.Limits.freeBodyByteCount
    /// Measured: 450 bytes for a device, 1 KiB for an HTTP connection.
    private static let connectionByteCount = 1_024
    /// Measured for an idle connection.
    private static let tlsByteCount = 14 << 10
    private static let deviceByteCount = 256
    /// simdjson uses about 14 bytes for each byte of a document, and the largest body has 8 MiB.
    private static let parserByteCount = 14 * (8 << 20)
    /// The limits of `ReportLanes`: a loop's reports that wait for the disk, and the minimum for each session.
    private static let reportsPerLoop = 65_536
    private static let reportsInAnyCase = 16
    private static let reportByteCount = 64
    /// An accepted Hello of a registration or a sender in `ReplayGuard`.
    private static let proofByteCount = 24
    /// The size in a set that has just doubled.
    private static let tokenByteCount = 64
}
