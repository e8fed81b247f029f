public import Wire
struct OpenBatch {}
struct WaitList {}
extension Shard {
    mutating func keepCounters(_ row: CountersRow, bucket: Bucket) {}
    mutating func release(_ effect: PendingEffect) {}
    public mutating func publish(_ command: borrowing PublishCommand, now: GatewayTime) {}
    public mutating func hello(_ command: HelloCommand, now: GatewayTime) {}
    public mutating func acknowledge(
        _ session: SessionRef, cumulative: UInt64, ranges: UnsafeBufferPointer<SequenceRange>, now: GatewayTime
    ) {}
    public mutating func reject(_ session: SessionRef, sequence: UInt64, reason: String, now: GatewayTime) {}
    public mutating func update(_ session: SessionRef, _ update: DeviceUpdate, now: GatewayTime) {}
    public mutating func feedback(_ session: SessionRef, _ feedback: Feedback, now: GatewayTime) {}
    public mutating func heard(_ session: SessionRef, now: GatewayTime) {}
    public mutating func sessionEnded(_ session: SessionRef, announced: Bool, now: GatewayTime) {}
    public mutating func lease(_ command: LeaseCommand, now: GatewayTime) {}
    public mutating func settle(_ results: [JobResult], origin: Origin, now: GatewayTime) {}
    public mutating func extend(
        _ jobs: [(job: MessageID, leaseID: (UInt64, UInt64))], milliseconds: Int64, origin: Origin, now: GatewayTime
    ) {}
    public mutating func status(of cid: DeviceID, bucket: Bucket, app: AppKey, origin: Origin, now: GatewayTime) {}
    public mutating func trace(of message: MessageID, origin: Origin, now: GatewayTime) {}
    public mutating func advance(to now: GatewayTime) {}
    public mutating func replied(_ reply: StoreReply, now: GatewayTime) {}
    public mutating func cooled(_ key: StoreKey) {}
}
