internal import Delivery
internal import PushAPI
internal import Wire

/// Revokes a token of the push API; the answer is `true` once the row is durable and all loops here are notified.
struct RevokeToken: PartitionRequest {
    static let number: UInt8 = 16
    var token: TokenID

    var busy: Bool { false }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows }

    func perform(on partition: Partition, _ origin: Origin) {
        guard partition.host.publicHandler.hasRoomForRevoked, partition.store.acceptsWrites else {
            return partition.replyBusy(to: origin)
        }
        MetaRows.write(token, on: partition) { [host = partition.host] in
            host.context.tellEveryGateway(.tokenRevoked(token))
            // Every loop, the asking loop included, receives the news before the answer.
            host.inNextTurn { $0.reply(true, to: origin) }
        } failed: { [host = partition.host] in
            host.replyBusy(to: origin)
        }
    }
}
