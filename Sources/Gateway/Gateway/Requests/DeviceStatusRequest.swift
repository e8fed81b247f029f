internal import Delivery
internal import Wire

/// Asks for what is known of a device.
struct DeviceStatusRequest: PartitionRequest {
    static let number: UInt8 = 4
    var device: DeviceAddress

    var busy: DeviceAnswer { .unreadable }

    func isValid(in share: LoopShare) -> Bool { share.contains(device.bucket) }

    func perform(on loop: GatewayLoop, _ origin: Origin) {
        loop.withShard {
            $0.status(of: device.cid, bucket: device.bucket, app: device.app, origin: origin, now: loop.now)
        }
    }
}
