package import Cryptography
internal import Structures

/// What became of a TLS handshake that a client began here; without those of peers that share a key.
package enum HandshakeEvent {
    case done
    /// It has to wait for its turn at the gate.
    case waits
    /// Its turn would come too late, or came too late.
    case refused
    /// It stood still for longest and made room.
    case displaced
    /// It stood still until its time was over.
    case timedOut
    case failed(TLSSession.Failure, text: String, from: SocketAddress?, listener: String)
}

/// Bounds the TLS handshakes of one loop: how many are under way, how many begin in a second, and the steps of a turn.
///
/// A handshake costs as much as some hundred messages, and every stranger can ask for one. A stream beyond the bounds
/// waits, oldest first, before OpenSSL has anything to do for it: it is a descriptor and a slot. One whose turn would
/// come later than `Rules.waitMilliseconds` ends at once. When too many stand still, the oldest of them makes room after a
/// second. It does so at once when its address has a quarter of them and more than the newcomer's.
/// A beginning costs little: the signature is made when the ClientHello is read. So steps are counted, too, and streams
/// beyond a turn's go on in a later one.
///
/// Devices have `AdmissionController` in front of them, which measures what they cost; so they do not come here.
/// Confined to its loop.
package final class HandshakeGate {
    package struct Rules: Equatable, Sendable {
        /// Handshakes under way; each holds some 40 KiB.
        package var atOnce: Int
        /// Handshakes that begin in a second.
        package var perSecond: Int
        /// The longest that a stream waits for its turn.
        package var waitMilliseconds: UInt64

        package init(atOnce: Int = 512, perSecond: Int = 1_000, waitMilliseconds: UInt64 = 2_000) {
            (self.atOnce, self.perSecond, self.waitMilliseconds) = (atOnce, perSecond, waitMilliseconds)
        }
    }

    private struct Waiting {
        let stream: ByteStream
        let context: TLSContext
        let until: UInt64
    }

    private struct Begun {
        let stream: ByteStream
        let at: UInt64
        let network: UInt64
    }

    /// Handshakes that begin in one turn, and steps of handshakes: what a message of a session waits for behind them.
    private static let turnCount = 8
    /// A handshake under way keeps its place for so long: some round trips of a mobile network.
    private static let protectedMilliseconds: UInt64 = 1_000

    package var rules: Rules
    // Not counted: the loop holds the gate.
    private unowned(unsafe) let loop: EventLoop
    private var waiting = Ring<Waiting>()
    /// Streams that have something to read for their handshake, and had no place in the turn.
    private var late = Ring<ByteStream>()
    private var stepRest = HandshakeGate.turnCount
    /// Oldest first, with some that are over among them.
    private var begun = Ring<Begun>()
    /// Entries of `begun` by their network.
    private var crowds: [UInt64: Int] = [:]
    /// Handshakes that may begin, in thousandths.
    private var credit: Int
    private var seenAt: UInt64
    private var turnRest = HandshakeGate.turnCount
    package private(set) var underWayCount = 0

    /// Streams that wait; those that have left meanwhile, and are still in `waiting`, are none.
    package private(set) var waitingCount = 0

    package init(on loop: EventLoop, rules: Rules = Rules()) {
        (self.loop, self.rules, seenAt) = (loop, rules, loop.now)
        credit = Self.burst(rules)
        loop.onTurnEnd(.beforeFlush) { [unowned self] in turnEnds() }
        loop.onTick { [unowned self] _ in
            turnRest = Self.turnCount
            beginWaiting()
        }
        loop.onStop { [unowned self] in
            waiting.removeAll()
            late.removeAll()
            begun.removeAll()
            crowds = [:]
            waitingCount = 0
        }
    }

    /// What two ticks of the loop bring, since a loop with nothing else to do has its turns by them.
    private static func burst(_ rules: Rules) -> Int {
        max(1_000, rules.perSecond * Int(2 * Limits.tickMilliseconds))
    }

    /// Lets a stream begin its handshake now or later, or ends it.
    func arrive(_ stream: ByteStream, _ context: TLSContext) {
        refill()
        if waitingCount == 0, take(for: stream) { return begin(stream, context, hasWaited: false) }
        let expected = UInt64(waitingCount) * 1_000 / UInt64(max(1, rules.perSecond))
        guard expected < rules.waitMilliseconds else { return refuse(stream) }
        waiting.append(Waiting(stream: stream, context: context, until: loop.now + rules.waitMilliseconds))
        waitingCount += 1
        loop.streams.pointee.onHandshake?(.waits)
    }

    /// A handshake that began here is over.
    func finished() { underWayCount -= 1 }

    /// A stream ended that waited for its turn.
    func left() { waitingCount = max(0, waitingCount - 1) }

    /// Whether a stream's handshake may go on in this turn; one that may not is called again in a later one.
    func takeStep(_ stream: ByteStream) -> Bool {
        // Who comes later does not overtake.
        if late.isEmpty, stepRest > 0 {
            stepRest -= 1
            return true
        }
        late.append(stream)
        loop.turnAgain()
        return false
    }

    /// A turn has its steps from one end to the next, whatever they were asked for by.
    private func turnEnds() {
        turnRest = Self.turnCount
        while stepRest > 0, let stream = late.popFirst() {
            guard stream.isInHandshake else { continue }
            stepRest -= 1
            stream.goOnWithHandshake()
        }
        beginWaiting()
        stepRest = Self.turnCount
        if !late.isEmpty { loop.turnAgain() }
    }

    private func beginWaiting() {
        guard !waiting.isEmpty else { return }
        refill()
        while let first = waiting.first {
            if !first.stream.isOpen {
                _ = waiting.popFirst()
            } else if loop.now >= first.until {
                _ = waiting.popFirst()
                waitingCount -= 1
                refuse(first.stream)
            } else if take(for: first.stream) {
                _ = waiting.popFirst()
                waitingCount -= 1
                begin(first.stream, first.context, hasWaited: true)
            } else {
                break
            }
        }
        if !waiting.isEmpty, turnRest <= 0 { loop.turnAgain() }
    }

    private func refill() {
        let now = loop.now
        credit = min(credit + Int(min(now - min(seenAt, now), 1_000)) * rules.perSecond, Self.burst(rules))
        seenAt = now
    }

    private func take(for stream: ByteStream) -> Bool {
        guard turnRest > 0, credit >= 1_000, hasPlace(for: stream) else { return false }
        turnRest -= 1
        credit -= 1_000
        return true
    }

    /// Whether one more may be under way; the oldest that stands still makes room.
    private func hasPlace(for stream: ByteStream) -> Bool {
        while let oldest = begun.first {
            guard oldest.stream.isInHandshake else {
                forgetOldest()
                continue
            }
            guard underWayCount >= rules.atOnce else { return true }
            let own = crowds[stream.peer?.network ?? 0, default: 0]
            let isCrowd = crowds[oldest.network, default: 0] > max(1, own, rules.atOnce / 4)
            guard isCrowd || loop.now >= oldest.at + Self.protectedMilliseconds else { return false }
            forgetOldest()
            loop.streams.pointee.onHandshake?(.displaced)
            oldest.stream.endHandshake("too many handshakes were under way, and this one stood still for longest")
        }
        return underWayCount < rules.atOnce
    }

    private func forgetOldest() {
        guard let oldest = begun.popFirst() else { return }
        let rest = crowds[oldest.network, default: 0] - 1
        crowds[oldest.network] = rest > 0 ? rest : nil
    }

    private func begin(_ stream: ByteStream, _ context: TLSContext, hasWaited: Bool) {
        underWayCount += 1
        let network = stream.peer?.network ?? 0
        begun.append(Begun(stream: stream, at: loop.now, network: network))
        crowds[network, default: 0] += 1
        stream.beginServing(context, through: self, hasWaited: hasWaited)
    }

    private func refuse(_ stream: ByteStream) {
        loop.streams.pointee.onHandshake?(.refused)
        stream.endHandshake("more handshakes were asked for than are done in time")
    }
}
