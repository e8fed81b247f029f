internal import Delivery
internal import PushAPI
internal import Wire

/// Changes or lists an app's test devices, on the partition of the gateway's own rows; `nil`: nothing was done.
struct TestDevicesCall: PartitionRequest {
    static let number: UInt8 = 15
    var request: TestDeviceRequest
    var known: Set<DeviceID>
    var limit: Int

    var busy: TestDeviceResult? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows && request.isSound && limit >= 0 }

    /// Carries requests out one after another.
    ///
    /// A request may see changes of an earlier one that are not durable yet, so each answer waits until all changes are.
    func perform(on loop: GatewayLoop, _ origin: Origin) {
        guard request.isQuestion || loop.store.acceptsWrites else { return loop.replyBusy(to: origin) }
        let (changes, result) = loop.context.testDevices.perform(request, known: known, limit: limit, now: loop.now)
        for change in changes { MetaRows.write(change, app: request.app, on: loop) }
        loop.afterMeta { [unowned loop] in
            loop.reply(Optional(result), to: origin)
        } failed: { [unowned loop] in
            loop.replyBusy(to: origin)
        }
    }
}
