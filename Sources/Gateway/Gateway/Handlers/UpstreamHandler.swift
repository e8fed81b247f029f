internal import Delivery
internal import EventLoops
internal import PushAPI
internal import Wire

/// Forwards messages from one partition's devices to their app's home; each session has one message in flight, so the device's
/// order is kept.
///
/// If a message is refused with a request to retry, the session's later messages are refused, too, until the device sends the
/// refused message again. The device then sends all of them again in order.
///
/// Queued and in-flight messages count against the limits of the process, the app and the address (`PeerBudget`).
final class UpstreamHandler {
    /// The code of an `UpstreamResult` (docs/use/Errors.md, "UpdateResult and UpstreamResult codes").
    ///
    /// Codes below 100 are permanent. From 100 on, the client retries after a delay.
    enum Code: UInt32, CaseIterable {
        case taken = 0
        case noConsumer = 1
        case badPayload = 2
        case numberReused = 3
        case deviceFull = 100
        case appFull = 101
        case busy = 102

        var reason: String {
            switch self {
            case .taken: ""
            case .noConsumer: "no consumer takes upstream messages of this app"
            case .badPayload: "a payload has 1 to \(Wire.Limits.upstreamPayloadByteCount) bytes"
            case .numberReused: "the request number was another message's; give each message a new number"
            case .deviceFull: "the app's server has not read this device's earlier messages; send it again in a minute"
            case .appFull: "the app's server has too many messages to read; send it again in a minute"
            case .busy: "the gateway cannot take it now; send it again in some seconds"
            }
        }

        fileprivate var comesAgain: Bool { rawValue >= 100 }
    }

    /// A message with the memory reserved for it until its result.
    private struct Parcel {
        let upstream: Upstream
        let share: PeerBudget.UpstreamShare
    }

    /// The queue of a session, which exists while one of its messages is in flight.
    private struct Lane {
        var waiting: [Parcel] = []
    }

    /// A refused message that must be sent again before later ones of its session.
    private struct Hold {
        let request: UInt32
        let code: Code
        /// The time at which the hold expires, for clients that never send the message again.
        let endsAt: UInt64
    }

    /// The most queued messages of one session; a client that follows the protocol has fewer in flight.
    static let waitingLimit = 64

    private unowned let owner: Partition
    private var lanes: [SessionRef: Lane] = [:]
    private var holds: [SessionRef: Hold] = [:]

    /// Twice the longest retry delay of the codes.
    private static let holdMilliseconds: UInt64 = 120_000

    init(_ owner: Partition) { self.owner = owner }

    /// Processes a frame of an open session; the result is sent as a frame.
    func take(_ upstream: Upstream, of session: SessionRef) {
        guard 1...Wire.Limits.upstreamPayloadByteCount ~= upstream.payload.count else {
            return tell(session, upstream, .badPayload)
        }
        if let hold = holds[session] {
            guard hold.request == upstream.request || hold.endsAt <= owner.loop.now else {
                return tell(session, upstream, hold.code)
            }
            holds[session] = nil
        }
        guard let source = owner.core.pointee.shard.source(of: session) else {
            return refuse(upstream, of: session, .noConsumer)
        }
        if let refusal = refusal(of: source.app) { return refuse(upstream, of: session, refusal) }
        let lane = lanes[session]
        guard lane.map({ $0.waiting.count < Self.waitingLimit }) ?? true,
            let share = owner.context.peers.budget.takeUpstream(
                upstream.payload.count + Self.parcelByteCount, app: source.app.word,
                network: owner.sessions.countedNetwork(of: session))
        else { return refuse(upstream, of: session, .busy) }
        let parcel = Parcel(upstream: upstream, share: share)
        if lane == nil {
            lanes[session] = Lane()
            send(parcel, of: session)
        } else {
            lanes[session]?.waiting.append(parcel)
        }
    }

    /// The assumed memory of a message beside its payload, in bytes.
    private static let parcelByteCount = 256

    /// Returns the reason to refuse an app's messages; `nil` to accept them.
    private func refusal(of key: AppKey) -> Code? {
        // An unknown app may be served again later, so the device keeps the message.
        guard let app = owner.registry[key] else { return .busy }
        return app.takesUpstream ? nil : .noConsumer
    }

    func owesResults(_ session: SessionRef) -> Bool { !lanes.isEmpty && lanes[session] != nil }

    /// Drops the queue of a closed session; a message in flight may still be accepted.
    func forget(_ session: SessionRef) {
        if !holds.isEmpty { holds[session] = nil }
        guard !lanes.isEmpty, let lane = lanes.removeValue(forKey: session) else { return }
        for parcel in lane.waiting { owner.context.peers.budget.giveBack(parcel.share) }
    }

    private func refuse(_ upstream: Upstream, of session: SessionRef, _ code: Code) {
        if code.comesAgain { hold(session, for: upstream, code) }
        tell(session, upstream, code)
    }

    private func hold(_ session: SessionRef, for upstream: Upstream, _ code: Code) {
        holds[session] = Hold(
            request: upstream.request, code: code, endsAt: owner.loop.now + Self.holdMilliseconds)
    }

    private func send(_ parcel: Parcel, of session: SessionRef) {
        guard let source = owner.core.pointee.shard.source(of: session) else {
            return settle(unsent: parcel, of: session, .noConsumer)
        }
        if let refusal = refusal(of: source.app) { return settle(unsent: parcel, of: session, refusal) }
        let message = UpstreamMessage(
            app: source.app, cid: source.cid, request: parcel.upstream.request, payload: parcel.upstream.payload,
            task: parcel.upstream.taskID)
        // The question is sent in the next turn, because a home on this loop may answer inside the call.
        owner.host.inNextTurn { [weak self] host in
            host.feeds.ask(.upstream(message)) { answer in
                host.context.peers.budget.giveBack(parcel.share)
                self?.settle(parcel, of: session, Code(answer))
            }
        }
    }

    private func settle(unsent parcel: Parcel, of session: SessionRef, _ code: Code) {
        owner.context.peers.budget.giveBack(parcel.share)
        settle(parcel, of: session, code)
    }

    /// Reports a message's result, and sends the session's next message.
    private func settle(_ parcel: Parcel, of session: SessionRef, _ code: Code) {
        guard var lane = lanes[session] else { return }
        tell(session, parcel.upstream, code)
        if code.comesAgain {
            // This message is older than all waiting ones, so its hold replaces a hold for a later message.
            hold(session, for: parcel.upstream, code)
            for waiting in lane.waiting {
                owner.context.peers.budget.giveBack(waiting.share)
                tell(session, waiting.upstream, code)
            }
            lane.waiting = []
        }
        guard !lane.waiting.isEmpty else {
            lanes[session] = nil
            return owner.sessions.settled(session)
        }
        let next = lane.waiting.removeFirst()
        lanes[session] = lane
        send(next, of: session)
    }

    private func tell(_ session: SessionRef, _ upstream: Upstream, _ code: Code) {
        var result = UpstreamResult()
        (result.request, result.code, result.reason) = (upstream.request, code.rawValue, code.reason)
        owner.sessions.send(session, result)
    }
}

extension UpstreamHandler.Code {
    fileprivate init(_ answer: FeedAnswer?) {
        self =
            switch answer {
            case .taken: .taken
            case .refused(.numberReused): .numberReused
            case .refused(.deviceFull): .deviceFull
            case .refused(.appFull): .appFull
            // Includes `refused(.off)`: the gateway of the feed's home does not have this gateway's newer configuration yet.
            default: .busy
            }
    }
}
