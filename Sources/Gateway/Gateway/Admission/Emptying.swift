internal import Delivery
internal import EventLoops
internal import Platform
internal import PushAPI
internal import Wire

/// A gateway that empties itself of its devices: `longwire drain`.
///
/// Each loop goes through its sessions once, in its ticks, and tells as many to go as the pace grants it. Devices that come
/// meanwhile are told so at once.
struct Emptying: Sendable {
    var pace: DrainPace
    /// Where they are told to go; empty: nowhere in particular.
    var alternate: String
    /// Tells this drain from the one before it.
    var number: Int64
    /// Sessions told to go, and relays ended.
    var toldCount = 0
    /// Redis was lost, and not an operator's request: it ends when Redis is back.
    var isForCutOff = false
    /// Loops that have no connection any more that a device made to this gateway.
    var emptyLoops: Set<Int> = []
    var hasEnded = false

    /// When a device comes back that was told to go: another gateway takes it, and the pace spreads them.
    static let window: (UInt32, UInt32) = (500, 2_000)
    static let cutOffSeconds = 30
    static let lowestCutOffPace = 100
    static let reason: StaticString = "this gateway is being emptied; come back, to another one if there is one"
}

extension GatewayContext {
    /// Carries out an operator's wish; another pace goes on from where the earlier one was.
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

    /// Empties a gateway that is cut off from the cluster, and takes devices again when it is back.
    ///
    /// An operator's drain is not changed.
    func followCutOff(_ isCutOff: Bool) {
        let present = emptying.withLock { $0 }
        if isCutOff, present == nil {
            let (now, devices) = (SystemClock.monotonicTime, connections.devices.value)
            // All are gone within half a minute, and few enough a second for those that they come to.
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
    /// Closes as many of this loop's sessions as the pace grants.
    ///
    /// If the loop has fewer, it ends relays up to the same number.
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
            // Loops ask at the same moment: the first must not keep what it has no devices for.
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
    /// Sends up to `count` sessions away, from where the last call of this drain ended.
    ///
    /// - Returns: how many.
    fileprivate func drainSessions(_ count: Int, _ emptying: Emptying) -> Int {
        guard count > 0, sessions.count > 0 else { return 0 }
        if drain.number != emptying.number { drain = (emptying.number, 0) }
        let (next, ended) = sessions.sendAway(count, from: drain.cursor, alternate: emptying.alternate)
        drain.cursor = next
        return ended
    }
}
