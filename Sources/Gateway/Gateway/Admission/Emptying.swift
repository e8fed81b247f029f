internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// A drain: the gateway closes its device sessions at a limited rate (`longwire drain`).
///
/// Each loop walks its sessions once, in its ticks, and closes as many as the pace grants. Devices that connect during a drain
/// are refused at once.
struct Emptying: Sendable {
    var pace: DrainPace
    /// The gateway named in the Close frames; empty if the operator named none.
    var alternate: String
    /// The identity of this drain, different for each drain.
    var number: Int64
    /// The number of sessions and relays closed by this drain.
    var toldCount = 0
    /// Whether a loss of Redis caused this drain; it then ends when Redis is reachable again.
    var isForCutOff = false
    /// The indices of the loops that had no session or relay left to close.
    var emptyLoops: Set<Int> = []
    var hasEnded = false

    /// The retry window of a drained device, in milliseconds; it is short because another gateway accepts the device.
    static let window: (UInt32, UInt32) = (500, 2_000)
    static let cutOffSeconds = 30
    static let lowestCutOffPace = 100
    static let reason: StaticString = "this gateway is being drained; reconnect, to another one if there is one"
}

extension GatewayContext {
    /// Carries out an operator's drain request; a repeated request continues with the new pace.
    func drain(_ request: DrainRequest, by credential: String, now: Int64) {
        switch request {
        case .begin(let pace, let alternate):
            setEmptying(
                Emptying(pace: DrainPace(pace: pace, startedAt: now), alternate: alternate, number: now))
            log.write(
                .info, .drainBegan,
                [.name: .text(credential), .pace: LogValue(pace), .devices: LogValue(connections.devices.value)])
        case .undo:
            guard isEmptying else { return }
            setEmptying(nil)
            log.write(.info, .drainUndone, [.name: .text(credential), .devices: LogValue(connections.devices.value)])
        }
    }

    /// Starts a drain when the gateway loses the cluster's Redis, and ends it when Redis is reachable again; an operator's drain
    /// is not changed.
    func followCutOff(_ isCutOff: Bool) {
        let present = emptying.withLock { $0 }
        if isCutOff, present == nil {
            let (now, devices) = (SystemClock.monotonicTime, connections.devices.value)
            // The drain takes about `cutOffSeconds`, so the other gateways see a limited connection rate.
            let pace = max(Emptying.lowestCutOffPace, devices / Emptying.cutOffSeconds)
            var emptying = Emptying(pace: DrainPace(pace: pace, startedAt: now), alternate: "", number: now)
            emptying.isForCutOff = true
            setEmptying(emptying)
            log.write(.warning, .cutOffDrainBegan, [.pace: LogValue(pace), .devices: LogValue(devices)])
        } else if !isCutOff, present?.isForCutOff == true {
            setEmptying(nil)
            log.write(.info, .cutOffDrainEnded, [.devices: LogValue(connections.devices.value)])
        }
    }

    func drainStatus(now: Int64) -> DrainStatus {
        var status = DrainStatus()
        status.connections = max(0, connections.devices.value)
        guard let emptying = emptying.withLock({ $0 }) else { return status }
        status.state = status.connections == 0 || emptying.hasEnded ? .drained : .draining
        (status.pace, status.alternate) = (emptying.pace.pace, emptying.alternate)
        status.toldCount = emptying.toldCount
        status.secondsLeft = emptying.pace.secondsLeft(for: status.connections)
        return status
    }
}

extension EventLoopHost {
    /// Closes sessions of this loop, then ends relays, up to the number that the pace grants.
    func drainSessions() {
        guard context.isEmptying, let emptying = context.emptying.withLock({ $0 }) else { return }
        var sessionCount = 0
        forEachPartition { sessionCount += $0.sessions.count }
        let relays = context.cluster?.links
        let wanted = relays == nil ? sessionCount : .max
        guard wanted > 0 else { return noteEmpty(true) }
        let now = Int64(loop.now)
        let count = context.emptying.withLock { $0?.pace.grant(wanted, now: now) ?? 0 }
        guard count > 0 else { return }
        var ended = 0
        forEachPartition { ended += $0.drainSessions(count - ended, emptying) }
        if ended < count { ended += relays?.endRelays(count - ended, on: loop) ?? 0 }
        context.emptying.withLock { emptying in
            emptying?.toldCount += ended
            // All loops ask at about the same time. The first must not keep a grant that it cannot use.
            emptying?.pace.giveBack(count - ended)
        }
        noteEmpty(ended == 0)
    }

    private func noteEmpty(_ isEmpty: Bool) {
        let isLast = context.emptying.withLock { emptying in
            guard var known = emptying, !known.hasEnded else { return false }
            if isEmpty { known.emptyLoops.insert(index) } else { known.emptyLoops.remove(index) }
            known.hasEnded = known.emptyLoops.count == context.hostCount
            emptying = known
            return known.hasEnded
        }
        if isLast { log.write(.info, .drainEnded) }
    }
}

extension Partition {
    /// Closes up to `count` sessions, starting at the position where the last call of this drain ended.
    ///
    /// - Returns: The number of closed sessions.
    fileprivate func drainSessions(_ count: Int, _ emptying: Emptying) -> Int {
        guard count > 0, sessions.count > 0 else { return 0 }
        if drain.number != emptying.number { drain = (emptying.number, 0) }
        let (next, ended) = sessions.sendAway(count, from: drain.cursor, alternate: emptying.alternate)
        drain.cursor = next
        return ended
    }
}
