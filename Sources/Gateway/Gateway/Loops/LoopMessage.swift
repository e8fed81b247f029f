internal import Configuration
internal import Quotas
internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// A message from one host to another, in this process or over a link.
enum LoopMessage: Sendable {
    case publishes(CommandBatch)
    /// A question, and the origin that its answer returns to.
    case request(any PartitionRequest, Origin)
    /// The devices of a list that belong to one partition.
    case list(Fanout)

    case answers(AnswerBatch)
    /// A connection whose Hello names a device of one of the host's partitions.
    case adopt(AdoptedConnection)
    case news(GatewayNews)
}

struct Mail: Sendable {
    var message: LoopMessage
    /// The partition that receives the message; ignored for a message to the host.
    var partition: Int

    init(_ message: LoopMessage, partition: Int = 0) { (self.message, self.partition) = (message, partition) }
}

/// News for all hosts of all gateways, independent of their partitions.
enum GatewayNews: Sendable, Codable, Hashable {
    /// A partition has due jobs of a channel for an app that had no such jobs in the partition before.
    case jobsAvailable(VendorChannel, part: Int)
    /// A cached record of the task is outdated.
    case taskChanged(TaskID)
    /// The broadcast is closed: its home has recorded the end for all its devices.
    case broadcastEnded(TaskID, AppKey)
    /// The push API must reject this token.
    case tokenRevoked(TokenID)
    /// The admin API changed apps; the number is the new version of the app list.
    case appsChanged(UInt64)
    /// The cluster register has a change that the receiving gateway's membership must read.
    case registerChanged
}

/// An answer that returns to the asking loop; the rare case `answered` is indirect, so that `published` stays cheap to copy.
enum LoopAnswer: Sendable {
    case published(Origin, PublishOutcome)
    /// A `PartitionRequest`'s `Answer`; `nil` if there is no answer, in which case the caller gets the request's `busy` value.
    indirect case answered(Origin, (any Codable & Sendable)?)

    var origin: Origin {
        switch self {
        case .published(let origin, _), .answered(let origin, _): origin
        }
    }

    /// Returns the answer for a publish that its owner did not accept; the caller retries later.
    static func busy(_ command: borrowing PublishCommand) -> LoopAnswer {
        .published(command.origin, PublishOutcome(code: .busy, cid: command.cid, task: command.task))
    }
}

/// A connection after its Hello, on its way from the accepting host to the host of its device's partition.
struct AdoptedConnection: Sendable {
    var connection: DetachedConnection
    var isSecure: Bool
    var hello: AdoptedHello
    /// Whether another gateway accepted the connection and relays the device; this gateway has not counted the device yet.
    var isRelayed = false

    /// The data sent with the connection if its descriptor must be copied to another descriptor table.
    struct Cargo: Sendable {
        var isSecure: Bool
        var hello: AdoptedHello
    }
}

/// The fields of a `HelloCommand` that are known before the session has a slot.
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
    /// Whether the message needs no answer because its sender repeats it.
    var isNotice: Bool {
        if case .request(let request, _) = self { type(of: request).isNotice } else { false }
    }

    /// Returns the partition whose broadcasts a notice is about.
    func home(of partitionCount: Int) -> Int? {
        if case .request(let request, _) = self { request.home(of: partitionCount) } else { nil }
    }

    /// Whether a full mailbox refuses the message at once; other messages wait for room.
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
        // A device whose connection is dropped reconnects after its own backoff.
        case .adopt, .answers, .news: break
        }
    }

    var busyAnswers: [LoopAnswer] {
        var answers: [LoopAnswer] = []
        forEachBusyAnswer { answers.append($0) }
        return answers
    }

    /// Sets the asking gateway in the origin of every question in the message.
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
