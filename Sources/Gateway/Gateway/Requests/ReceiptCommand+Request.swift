internal import Delivery
internal import PushAPI
internal import Wire

/// Records a device's report over HTTPS; the answer follows once it is durable.
extension ReceiptCommand: PartitionRequest {
    typealias Answer = ReceiptAnswer
    static let number: UInt8 = 6
    var busy: ReceiptAnswer { .busy }
    static var isRefusedWhenFull: Bool { true }

    func isValid(in share: LoopShare) -> Bool {
        share.contains(bucket) && events.count <= PushAPI.Limits.receiptEventCount
    }

    func perform(on partition: Partition, _ origin: Origin) {
        var command = self
        command.origin = origin
        partition.withShard { $0.receipt(command, now: partition.now) }
    }
}
