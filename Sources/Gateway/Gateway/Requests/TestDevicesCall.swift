internal import Delivery
internal import PushAPI
internal import Wire

/// Changes or lists an app's test devices, on the partition of bucket 0; the answer is `nil` if nothing was done.
struct TestDevicesCall: PartitionRequest {
    static let number: UInt8 = 15
    var request: TestDeviceRequest
    var known: Set<DeviceID>
    var limit: Int

    var busy: TestDeviceResult? { nil }

    func isValid(in share: LoopShare) -> Bool { share.hasGatewayRows && request.isSound && limit >= 0 }

    /// Carries out requests one after another.
    ///
    /// A request may read changes of an earlier one that are not durable yet. Each answer therefore waits until all changes are
    /// durable.
    func perform(on partition: Partition, _ origin: Origin) {
        guard request.isQuestion || partition.store.acceptsWrites else { return partition.replyBusy(to: origin) }
        let (changes, result) = partition.context.testDevices.perform(
            request, known: known, limit: limit, now: partition.now)
        for change in changes { MetaRows.write(change, app: request.app, on: partition) }
        partition.afterMeta { [host = partition.host] in
            host.reply(Optional(result), to: origin)
        } failed: { [host = partition.host] in
            host.replyBusy(to: origin)
        }
    }
}
