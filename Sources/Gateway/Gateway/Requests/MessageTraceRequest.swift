internal import Delivery
internal import Wire

struct MessageTraceRequest: PartitionRequest {
    static let number: UInt8 = 5
    var message: MessageID

    var busy: TraceAnswer { .unreadable }

    func isValid(in share: LoopShare) -> Bool { share.contains(message.bucket) }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.withShard { $0.trace(of: message, origin: origin, now: partition.now) }
    }
}

struct TaskMessageRequest: PartitionRequest {
    static let number: UInt8 = 14
    var task: TaskID
    var app: AppKey
    var cid: DeviceID
    var bucket: Bucket
    var digest: UInt64

    var busy: TraceAnswer { .unreadable }

    func isValid(in share: LoopShare) -> Bool { share.contains(bucket) }

    func perform(on partition: Partition, _ origin: Origin) {
        partition.withShard {
            $0.trace(of: task, app, cid: cid, bucket: bucket, digest: digest, origin: origin, now: partition.now)
        }
    }
}
