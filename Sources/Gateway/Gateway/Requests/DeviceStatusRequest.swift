internal import Delivery
internal import Wire

struct DeviceStatusRequest: PartitionRequest {
    static let number: UInt8 = 4
    var device: DeviceAddress
    /// Whether the answer needs the device's attributes; absent in requests of earlier releases.
    var readsAttributes: Bool?

    var busy: DeviceAnswer { .unreadable }

    func isValid(in share: LoopShare) -> Bool { share.contains(device.bucket) }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.withShard {
            $0.status(
                of: device.cid, bucket: device.bucket, app: device.app, readsAttributes: readsAttributes ?? false,
                origin: origin, now: partition.now)
        }
    }
}
