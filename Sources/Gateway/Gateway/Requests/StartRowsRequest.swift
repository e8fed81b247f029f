internal import Delivery
internal import PushAPI
internal import Wire

/// Asks for the gateway's own rows that the start of a partition elsewhere needs; `nil`: no answer.
struct StartRowsRequest: PartitionRequest {
    static let number: UInt8 = 19

    struct Rows: Codable, Sendable {
        /// The days whose counters are folded.
        var folded: FoldedDays
        /// The tokens that are void.
        var revoked: [TokenID]
        /// The version of the apps.
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
