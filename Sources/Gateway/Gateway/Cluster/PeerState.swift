internal import EventLoops
internal import Platform
internal import Synchronization

/// What went over the links with one other node, both ways.
struct LinkFigures: Sendable, Equatable {
    var sentBytes: UInt64 = 0
    var receivedBytes: UInt64 = 0
    /// Batches that did not go because the link was down or full.
    var refusedBatches: UInt64 = 0
}

/// What all loops may know and change of the links with one other node.
final class PeerState: Sendable {
    let node: Int
    /// Questions may be sent.
    private let isUp = Atomic<Bool>(false)
    /// Bytes of questions that wait for the link, and of answers that wait for the other one.
    private let waiting = Atomic<Int>(0)
    private let waitingAnswers = Atomic<Int>(0)
    private let questions = Atomic<Int>(0)
    private let isAsking = Atomic<Bool>(false)
    /// The lease that the node's last heartbeat stated.
    private let peerLease = Atomic<UInt8>(0)
    private let numbers = Atomic<UInt32>(0)
    private let addresses = Lock<[RemoteAddress]>([])
    private let sent = Atomic<UInt64>(0)
    private let received = Atomic<UInt64>(0)
    private let refused = Atomic<UInt64>(0)

    init(node: Int) { self.node = node }

    // Each is a bound or a hint that may be a moment old, so no ordering is needed: what a loop sends to a link that has
    // just gone is answered as busy by the link.

    /// Takes room for a block of questions; false when the link is down or full.
    func mayAsk(byteLimit: Int) -> Bool {
        isUp.load(ordering: .relaxed) && waiting.load(ordering: .relaxed) < byteLimit
            && questions.load(ordering: .relaxed) < LinkLimits.questionCount
    }

    func enter(_ block: LinkBlock) {
        block.chargedByteCount = block.byteCount
        waiting.add(block.chargedByteCount, ordering: .relaxed)
    }

    func leave(_ block: LinkBlock) {
        waiting.subtract(block.chargedByteCount, ordering: .relaxed)
        block.chargedByteCount = 0
    }

    func setUp(_ isUp: Bool) { self.isUp.store(isUp, ordering: .relaxed) }
    func setQuestions(_ count: Int) { questions.store(count, ordering: .relaxed) }
    func setLease(_ lease: LinkFrame.Lease) { peerLease.store(lease.rawValue, ordering: .relaxed) }
    var lease: LinkFrame.Lease { LinkFrame.Lease(rawValue: peerLease.load(ordering: .relaxed)) ?? .unstated }
    var isLinkUp: Bool { isUp.load(ordering: .relaxed) }

    /// The next frame's number; it comes round after four thousand million of them.
    func nextNumber() -> UInt32 { numbers.wrappingAdd(1, ordering: .relaxed).newValue }

    // MARK: Answers to the node's own questions

    /// Whether the node's link to this gateway is there: otherwise the node has answered its questions itself.
    var hasAsker: Bool { isAsking.load(ordering: .relaxed) }
    func hasRoomForAnswers(byteLimit: Int) -> Bool { waitingAnswers.load(ordering: .relaxed) < byteLimit }

    func answersEnter(_ block: LinkBlock) {
        block.chargedByteCount = block.byteCount
        waitingAnswers.add(block.chargedByteCount, ordering: .relaxed)
    }

    func answersLeft(_ block: LinkBlock) {
        waitingAnswers.subtract(block.chargedByteCount, ordering: .relaxed)
        block.chargedByteCount = 0
    }

    func setAsking(_ isAsking: Bool) { self.isAsking.store(isAsking, ordering: .relaxed) }

    // MARK: Figures

    func countSent(_ count: Int) { sent.wrappingAdd(UInt64(count), ordering: .relaxed) }
    func countReceived(_ count: Int) { received.wrappingAdd(UInt64(count), ordering: .relaxed) }
    /// Batches that did not go because the link was down or full.
    func countRefused() { refused.wrappingAdd(1, ordering: .relaxed) }

    /// Both directions together, since the port was made.
    var figures: LinkFigures {
        LinkFigures(
            sentBytes: sent.load(ordering: .relaxed), receivedBytes: received.load(ordering: .relaxed),
            refusedBatches: refused.load(ordering: .relaxed))
    }

    // MARK: For relays

    func setAddresses(_ addresses: [RemoteAddress]) { self.addresses.withLock { $0 = addresses } }
    var address: RemoteAddress? { addresses.withLock { $0.first } }
}

/// Where a node's cluster listener is: `host:port`, with brackets around an IPv6 address.
struct LinkAddress: Equatable, Sendable, CustomStringConvertible {
    let host: String
    let port: UInt16

    /// `nil` for a text that names no host and port.
    init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]), port > 0 else {
            return nil
        }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            return nil
        }
        guard !host.isEmpty else { return nil }
        (self.host, self.port) = (String(host), port)
    }

    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}
