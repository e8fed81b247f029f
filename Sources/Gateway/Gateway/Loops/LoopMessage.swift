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
    /// A question, and where its answer goes.
    case request(any PartitionRequest, Origin)
    /// A list's devices of the receiving loop.
    case list(Fanout)
    /// Something that every loop of the receiving gateway is told.
    case news(GatewayNews)
}

/// What all loops of all gateways are told: their fronts, whatever shards they have.
enum GatewayNews: Sendable, Codable, Hashable {
    /// A part has due jobs of the channel where it had none of an app.
    case jobsAvailable(VendorChannel, part: Int)
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

/// An answer on its way back to the loop that asked; the rare ones are indirect, so that a publish's is cheap to copy.
enum LoopAnswer: Sendable {
    case published(Origin, PublishOutcome)
    /// A `PartitionRequest`'s `Answer`; `nil`: no answer, and the caller gets its question's `busy`.
    indirect case answered(Origin, (any Codable & Sendable)?)

    var origin: Origin {
        switch self {
        case .published(let origin, _), .answered(let origin, _): origin
        }
    }

    /// The owner took nothing; the caller retries later.
    static func busy(_ command: borrowing PublishCommand) -> LoopAnswer {
        .published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task))
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
