internal import Delivery
internal import PushAPI
internal import Wire

/// Revokes a token of the push API; `true` once that is durable and queued on every loop of the answering gateway.
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
            // Queued after the revocation on every loop, the asking one included.
            host.inNextTurn { $0.reply(true, to: origin) }
        } failed: { [host = partition.host] in
            host.replyBusy(to: origin)
        }
    }
}
