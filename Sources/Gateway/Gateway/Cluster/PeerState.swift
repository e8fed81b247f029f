internal import EventLoops
internal import Platform
internal import Synchronization

struct LinkFigures: Sendable, Equatable {
    var sentBytes: UInt64 = 0
    var receivedBytes: UInt64 = 0
    var refusedBatches: UInt64 = 0
}

/// The state of the links with one other node, shared by all loops.
final class PeerState: Sendable {
    let node: Int
    private let isUp = Atomic<Bool>(false)
    /// The bytes of questions that wait for the outgoing link.
    private let waiting = Atomic<Int>(0)
    private let waitingAnswers = Atomic<Int>(0)
    private let questions = Atomic<Int>(0)
    private let isAsking = Atomic<Bool>(false)
    private let peerLease = Atomic<UInt8>(0)
    private let numbers = Atomic<UInt32>(0)
    private let addresses = Lock<[RemoteAddress]>([])
    private let sent = Atomic<UInt64>(0)
    private let received = Atomic<UInt64>(0)
    private let refused = Atomic<UInt64>(0)

    init(node: Int) { self.node = node }

    // Relaxed ordering suffices because each value is a bound or a hint that may be stale. Questions that arrive after the link
    // ended are answered as busy.

    /// Returns whether the link is up and its backlog is below the limits.
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

    /// Returns the next frame's number, which wraps around after 2^32 frames.
    func nextNumber() -> UInt32 { numbers.wrappingAdd(1, ordering: .relaxed).newValue }

    // MARK: Answers to the node's own questions

    /// Whether the node's link to this gateway is up; otherwise the node has answered its questions as busy itself.
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
    func countRefused() { refused.wrappingAdd(1, ordering: .relaxed) }

    var figures: LinkFigures {
        LinkFigures(
            sentBytes: sent.load(ordering: .relaxed), receivedBytes: received.load(ordering: .relaxed),
            refusedBatches: refused.load(ordering: .relaxed))
    }

    // MARK: For relays

    func setAddresses(_ addresses: [RemoteAddress]) { self.addresses.withLock { $0 = addresses } }
    var address: RemoteAddress? { addresses.withLock { $0.first } }
}

/// The address of a node's cluster listener: `host:port`, with brackets around an IPv6 address.
struct LinkAddress: Equatable, Sendable, CustomStringConvertible {
    let host: String
    let port: UInt16

    /// Parses `host:port`; returns `nil` for invalid text.
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
