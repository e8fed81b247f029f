internal import Delivery
internal import PushAPI
internal import Wire

/// Voids a token of the push API; true once that is durable and every loop of the answering gateway knows it.
struct RevokeToken: PartitionRequest {
    static let number: UInt8 = 16
    var token: TokenID

    var busy: Bool { false }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows }

    func perform(on loop: GatewayLoop, _ origin: Origin) {
        guard loop.publicHandler.hasRoomForRevoked, loop.store.acceptsWrites else {
            return loop.replyBusy(to: origin)
        }
        MetaRows.write(token, on: loop) { [unowned loop] in
            loop.context.tellEveryGateway(.tokenRevoked(token))
            // Behind the revocation in every loop's queue, the asking one's included.
            loop.inNextTurn { $0.reply(true, to: origin) }
        } failed: { [unowned loop] in
            loop.replyBusy(to: origin)
        }
    }
}
