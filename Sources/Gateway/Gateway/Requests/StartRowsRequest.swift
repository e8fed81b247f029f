internal import Delivery
internal import PushAPI
internal import Wire

/// Asks for the gateway's own rows that another gateway needs to open a partition; `nil` without an answer.
struct StartRowsRequest: PartitionRequest {
    static let number: UInt8 = 19

    struct Rows: Codable, Sendable {
        var folded: FoldedDays
        var revoked: [TokenID]
        var appsVersion: UInt64
    }

    var busy: Rows? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows }

    func perform(on partition: Partition, _ origin: Origin) {
        let rows = Rows(
            folded: partition.ownRows?.counters.folded ?? FoldedDays(),
            revoked: partition.host.publicHandler.revokedTokens,
            appsVersion: partition.context.apps.version)
        partition.reply(Optional(rows), to: origin)
    }
}
