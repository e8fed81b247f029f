internal import Configuration
internal import Quotas
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// A message from one host to another, of this gateway or over a link.
enum LoopMessage: Sendable {
    // For a partition.

    /// Publishes for devices of one partition.
    case publishes(CommandBatch)
    /// A question, and where its answer goes.
    case request(any PartitionRequest, Origin)
    /// A list's devices of one partition.
    case list(Fanout)

    // For the host.

    /// Answers to what the receiving host asked.
    case answers(AnswerBatch)
    /// A connection whose Hello names a device of one of the host's partitions.
    case adopt(AdoptedConnection)
    /// News for every host of the receiving gateway.
    case news(GatewayNews)
}

/// An item of a host's mailbox.
struct Mail: Sendable {
    var message: LoopMessage
    /// The partition that the message is for; means nothing for a message to the host.
    var partition: Int

    init(_ message: LoopMessage, partition: Int = 0) { (self.message, self.partition) = (message, partition) }
}

/// News for all hosts of all gateways, whatever partitions they have.
enum GatewayNews: Sendable, Codable, Hashable {
    /// A partition has due jobs of the channel where it had none of an app.
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

/// A connection that has said Hello, between its accepting host and the host of its device's partition.
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

extension LoopMessage {
    /// Whether the message has no answer, and its sender sends it again.
    var isNotice: Bool {
        if case .request(let request, _) = self { type(of: request).isNotice } else { false }
    }

    /// The partition whose broadcasts a notice is about.
    func home(of partitionCount: Int) -> Int? {
        if case .request(let request, _) = self { request.home(of: partitionCount) } else { nil }
    }

    /// Whether a full mailbox refuses the message at once; another one waits for room.
    var isRefusedWhenFull: Bool {
        switch self {
        case .publishes, .list: true
        case .request(let request, _): type(of: request).isRefusedWhenFull
        case .answers, .adopt, .news: false
        }
    }

    /// Visits the busy answer of each question in the message.
    func forEachBusyAnswer(_ body: (LoopAnswer) -> Void) {
        switch self {
        case .publishes(let batch): batch.forEach { body(.busy($0)) }
        case .list(let fanout): fanout.forEach { body(.busy($0)) }
        case .request(_, let origin): if origin != .none { body(.answered(origin, nil)) }
        // The device reconnects after its own backoff.
        case .adopt, .answers, .news: break
        }
    }

    /// The same, gathered.
    var busyAnswers: [LoopAnswer] {
        var answers: [LoopAnswer] = []
        forEachBusyAnswer { answers.append($0) }
        return answers
    }

    /// Writes into every question of the message which other gateway asked it.
    mutating func setAsker(_ node: Int) {
        switch self {
        case .publishes(let batch): batch.setAsker(node)
        case .list(let fanout): self = .list(fanout.asked(by: node))
        case .request(let request, let origin): self = .request(request, origin.asked(by: node))
        case .answers, .adopt, .news: break
        }
    }
}

extension Fanout {
    fileprivate func asked(by node: Int) -> Fanout {
        Fanout(
            task: task, app: app, createdAt: createdAt, content: content, isBulk: isBulk,
            route: Origin(route: route, request: 0).asked(by: node).route, targets: targets)
    }
}
