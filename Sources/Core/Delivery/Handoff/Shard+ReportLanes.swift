// The order in which a session's reports are recorded and confirmed. A Pong, or the end of a half-closed connection, is sent only
// after all earlier reports are durable.

internal import Structures
package import Wire

/// The effect to send for a lane's entry once all earlier writes are durable.
enum ReportSign {
    case nothing
    case pong(UInt64)
    case finished
}

extension Shard {
    /// Queues feedback in the session's lane until it is recorded.
    package mutating func feedback(_ session: SessionRef, _ feedback: Feedback, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else { return }
        devices.at(slot).value.lastHeardAt = self.now
        let report = DeviceReport(
            kind: feedback.kind, action: feedback.action, message: feedback.messageID, at: self.now)
        enqueue(.report(report), of: session, slot)
    }

    /// Answers a Ping, immediately or when the earlier reports are durable.
    package mutating func ping(_ session: SessionRef, nonce: UInt64, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else { return }
        devices.at(slot).value.lastHeardAt = self.now
        guard reports.has(session) else { return outbox.send(.pong(session, nonce)) }
        enqueue(.ping(nonce), of: session, slot)
    }

    /// Ends a half-closed session: `.finished` follows when everything pending is sent.
    package mutating func finish(_ session: SessionRef, now: GatewayTime) {
        begin(now)
        guard let slot = device(of: session) else { return outbox.send(.finished(session)) }
        enqueue(.end, of: session, slot)
    }

    /// Whether a Pong or the end of the session must wait.
    package func hasReports(_ session: SessionRef) -> Bool { reports.has(session) }

    /// Returns whether the shard still has to answer a frame of the session.
    package func owesAnswers(_ session: SessionRef) -> Bool {
        if reports.has(session) { return true }
        guard let slot = device(of: session), !isPlanted(.updatesNotOwed) else { return false }
        return devices.at(slot).value.gates > 0
    }

    private mutating func enqueue(_ entry: ReportLanes.Entry, of session: SessionRef, _ slot: DeviceSlot) {
        guard reports.append(entry, of: session, at: now) else {
            // Without a Pong the device repeats all its reports.
            return close(slot, .overloaded, "more reports than can be recorded now; report them again")
        }
        runLane(session, slot)
    }

    private mutating func runLane(_ session: SessionRef, _ slot: DeviceSlot) {
        guard reports.begin(session, at: now) else { return }
        whenReady(slot) { shard, slot, readiness in
            guard readiness == .ready else {
                shard.reports.rest(session, at: shard.now)
                _ = shard.reports.end(session, at: shard.now)
                return
            }
            shard.whileBusy(slot) { shard, done in
                shard.takeReports(session, slot, left: ReportLanes.sliceCount, completion: done)
            } then: { shard in
                shard.laneRan(session, slot)
            }
        }
    }

    private mutating func laneRan(_ session: SessionRef, _ slot: DeviceSlot) {
        pump(slot)
        guard reports.end(session, at: now) else { return }
        later { shard in
            guard let slot = shard.device(of: session) else { return }
            shard.runLane(session, slot)
        }
    }

    /// Handles entries of a lane in order while the device is held (`whileBusy`).
    private mutating func takeReports(
        _ session: SessionRef, _ slot: DeviceSlot, left: Int, completion: @escaping (inout Shard) -> Void
    ) {
        guard left > 0, let entry = reports.first(session) else { return completion(&self) }
        switch entry {
        case .ping(let nonce): leave(session, .pong(nonce))
        case .end: leave(session, .finished)
        case .report(let report):
            return record(report, of: slot) { shard, verdict in
                guard verdict != .retry else {
                    shard.reports.rest(session, at: shard.now)
                    return completion(&shard)
                }
                shard.leave(session, .nothing)
                shard.takeReports(session, slot, left: left - 1, completion: completion)
            }
        }
        takeReports(session, slot, left: left - 1, completion: completion)
    }

    /// Removes the first entry; its effect follows when everything written so far is durable.
    private mutating func leave(_ session: SessionRef, _ sign: ReportSign) {
        guard reports.has(session) else { return }
        reports.removeFirst(session)
        awaitDisk(session, sign)
    }

    /// Delays the session's next Pong until the last write is durable.
    mutating func awaitDisk(_ session: SessionRef, _ sign: ReportSign = .nothing) {
        reports.awaitDisk(session)
        whenDurable(.reported(session, sign))
    }

    mutating func reportsDurable(_ session: SessionRef, _ sign: ReportSign) {
        guard device(of: session) != nil else { return }
        switch sign {
        case .nothing: reports.durable(session, isPong: false)
        case .pong(let nonce):
            reports.durable(session, isPong: true)
            outbox.send(.pong(session, nonce))
        case .finished:
            reports.durable(session, isPong: false)
            outbox.send(.finished(session))
        }
    }

    /// Retries delayed reports and sends keep-alive Pings to devices whose Pong is delayed.
    mutating func tendReports() {
        let due = reports.takeDue(at: now)
        for session in due.rested {
            if let slot = device(of: session) { runLane(session, slot) }
        }
        for session in due.keepAlives { outbox.send(.keepAlive(session)) }
    }
}
