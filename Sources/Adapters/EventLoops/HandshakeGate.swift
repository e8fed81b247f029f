package import Cryptography
internal import Structures

/// The outcome of a TLS handshake on the server side, without connections that use a pre-shared key.
package enum HandshakeEvent {
    case done
    /// The handshake was queued at the gate.
    case waits
    /// The wait at the gate would exceed, or has exceeded, its limit.
    case refused
    /// The longest stalled handshake was ended to free its place.
    case displaced
    case timedOut
    case failed(TLSSession.Failure, text: String, from: SocketAddress?, listener: String)
}

/// A limit on a loop's TLS handshakes: the number in progress, the rate per second and the steps per turn.
///
/// A handshake costs as much as several hundred messages, and any client can start one. A stream above the limits is queued
/// before OpenSSL allocates anything, so it needs only a descriptor and a slot. If its wait would exceed
/// `Rules.waitMilliseconds`, it is ended immediately.
///
/// While `Rules.atOnce` handshakes are in progress, a new stream ends the oldest handshake if it is at least a second old. The
/// oldest is ended immediately if its address has more than a quarter of the places, and more than the new stream's address.
///
/// Starting a handshake is cheap, because the signature is computed when the ClientHello is read. The steps per turn are
/// therefore limited, too, and further streams continue in a later turn.
///
/// Devices do not pass the gate: `AdmissionController` limits their handshakes by the measured cost. Confined to its loop.
package final class HandshakeGate {
    package struct Rules: Equatable, Sendable {
        /// The maximum number of handshakes in progress, which need about 40 KiB each.
        package var atOnce: Int
        package var perSecond: Int
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

    /// The maximum number of handshakes started in a turn, and of handshake steps in a turn; it bounds the delay of messages.
    private static let turnCount = 8
    /// The time for which a handshake in progress cannot be displaced: a few round trips of a mobile network.
    private static let protectedMilliseconds: UInt64 = 1_000

    package var rules: Rules
    // Unowned: the loop owns the gate.
    private unowned(unsafe) let loop: EventLoop
    private var waiting = Ring<Waiting>()
    /// Streams with input for their handshake that exceeded the turn's steps.
    private var late = Ring<ByteStream>()
    private var stepRest = HandshakeGate.turnCount
    /// The started handshakes, oldest first; some may have finished.
    private var begun = Ring<Begun>()
    /// The number of entries in `begun` by network.
    private var crowds: [UInt64: Int] = [:]
    /// The token bucket: the handshakes that may start now, in thousandths.
    private var credit: Int
    private var seenAt: UInt64
    private var turnRest = HandshakeGate.turnCount
    package private(set) var underWayCount = 0

    /// The number of streams that wait, without ended streams that are still in `waiting`.
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

    /// Returns the token bucket's capacity: two ticks, because an idle loop turns only once per tick.
    private static func burst(_ rules: Rules) -> Int {
        max(1_000, rules.perSecond * Int(2 * Limits.tickMilliseconds))
    }

    func arrive(_ stream: ByteStream, _ context: TLSContext) {
        refill()
        if waitingCount == 0, take(for: stream) { return begin(stream, context, hasWaited: false) }
        let expected = UInt64(waitingCount) * 1_000 / UInt64(max(1, rules.perSecond))
        guard expected < rules.waitMilliseconds else { return refuse(stream) }
        waiting.append(Waiting(stream: stream, context: context, until: loop.now + rules.waitMilliseconds))
        waitingCount += 1
        loop.streams.pointee.onHandshake?(.waits)
    }

    func finished() { underWayCount -= 1 }

    func left() { waitingCount = max(0, waitingCount - 1) }

    /// Returns whether a stream's handshake may continue in this turn; otherwise the gate continues it in a later turn.
    func takeStep(_ stream: ByteStream) -> Bool {
        // New streams must not overtake queued ones.
        if late.isEmpty, stepRest > 0 {
            stepRest -= 1
            return true
        }
        late.append(stream)
        loop.turnAgain()
        return false
    }

    /// Continues deferred handshakes and starts queued ones, then resets the turn's limits.
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

    /// Returns whether another handshake may be in progress; may end the oldest stalled one.
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
            oldest.stream.endHandshake("too many handshakes were under way, and this one was idle for the longest time")
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
