internal import Configuration
internal import Quotas
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// What one loop says to another.
enum LoopMessage: Sendable {
    /// Publishes for devices of the receiving loop.
    case publishes(CommandBatch)
    /// Answers to what the receiving loop asked.
    case answers(AnswerBatch)
    /// A connection whose Hello names a device of the receiving loop.
    case adopt(AdoptedConnection)
    case lease(LeaseCommand)
    case settle([JobResult], apps: Set<AppKey>?, Origin)
    case extend([ExtendItem], milliseconds: Int64, apps: Set<AppKey>?, Origin)
    case deviceStatus(DeviceAddress, Origin)
    case trace(MessageID, Origin)
    /// What a device reports over HTTPS.
    case receipt(ReceiptCommand)
    /// A step of an operation on aliases, tags, blacklist or badge.
    case directory(DirectoryCommand)
    /// Something about a task, for the receiving loop's shard.
    case task(TaskCommand, Origin)
    /// A list's devices of the receiving loop.
    case list(Fanout)
    /// A broadcast is out: this loop's devices are to meet it.
    case launched(TaskRecord)
    /// All that a part knows of its own apps' broadcasts, for a part that may have missed some.
    case broadcasts([AppBroadcasts], home: Int)
    /// A part has more of its apps' broadcasts than one message holds: the receiving part is to ask for them.
    case broadcastNews(home: Int)
    /// A question to the gateway itself, on the receiving loop.
    case question(GatewayQuestion, Origin)
    /// Something that every loop of the receiving gateway is told.
    case news(GatewayNews)
}

/// What all loops of all gateways are told: their fronts, whatever shards they have.
enum GatewayNews: Sendable, Codable, Hashable {
    /// A shard has due jobs of the channel where it had none.
    case jobsAvailable(VendorChannel)
    /// The task does not take devices as its cached record says.
    case taskChanged(TaskID)
    /// The broadcast's home has closed it: every device that it was for has its end.
    case broadcastEnded(TaskID, AppKey)
    /// The push API takes this token no more.
    case tokenRevoked(TokenID)
    /// The apps of the admin API have this version now.
    case appsChanged(UInt64)
    /// The cluster's register has something new for the receiving gateway's membership.
    case registerChanged
}

/// One job whose lease is to be prolonged.
struct ExtendItem: Sendable {
    var job: MessageID
    var leaseID: (UInt64, UInt64)
}

/// An answer on its way back to the loop that asked; the rare ones are indirect, so that a publish's is cheap to copy.
enum LoopAnswer: Sendable {
    case published(Origin, PublishOutcome)
    indirect case leased(Origin, [Job])
    indirect case settled(Origin, [ResultVerdict])
    indirect case deviceStatus(Origin, DeviceID, DeviceAnswer)
    indirect case trace(Origin, TraceAnswer)
    indirect case directory(Origin, DirectoryReply)
    indirect case task(Origin, TaskAnswer)
    indirect case receipt(Origin, ReceiptAnswer)
    indirect case gateway(Origin, GatewayAnswer)

    var origin: Origin {
        switch self {
        case .published(let origin, _), .leased(let origin, _), .settled(let origin, _), .trace(let origin, _),
            .deviceStatus(let origin, _, _), .directory(let origin, _), .task(let origin, _), .receipt(let origin, _),
            .gateway(let origin, _):
            origin
        }
    }
}

/// A connection that has said Hello, between its accepting loop and its device's loop.
struct AdoptedConnection: Sendable {
    var connection: DetachedConnection
    var isSecure: Bool
    var hello: AdoptedHello
    /// Another gateway took it from the device; this one has not counted it yet.
    var isRelayed = false

    /// What travels beside the connection where descriptors must be copied from table to table.
    struct Cargo: Sendable {
        var isSecure: Bool
        var hello: AdoptedHello
    }
}

/// The parts of a `HelloCommand` that are known before the session has a slot.
struct AdoptedHello: Sendable {
    var app: AppKey
    var bucket: Bucket
    var cid: DeviceID
    var newSecret: [UInt8]?
    var transcript: [UInt8]
    var hello: Hello

    func command(session: SessionRef) -> HelloCommand {
        HelloCommand(
            session: session, app: app, bucket: bucket, cid: cid, newSecret: newSecret, transcript: transcript,
            proof: hello.proof, hello: hello)
    }
}
