internal import Delivery
internal import PushAPI
internal import Wire

/// Asks part 0's owner for the rows that a gateway needs to open a partition; the answer is `nil` if the owner is unavailable.
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
