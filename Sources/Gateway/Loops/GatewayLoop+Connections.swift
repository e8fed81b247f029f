internal import Delivery
internal import EventLoops
internal import Wire

// What connections have to do with their loop: being let in, timed and counted, and what their frames say to the shard.
extension GatewayLoop {
    /// Lets the log tell when this listener's accepts fail.
    func watch(_ listener: Listener) { listeners.append(listener) }

    func reportAcceptFailures() {
        let count = listeners.reduce(0) { $0 + $1.exhaustedCount }
        guard count > reportedAcceptFailures else { return }
        log.write(.error, .acceptFailed, [.loop: LogValue(index), .count: LogValue(count - reportedAcceptFailures)])
        reportedAcceptFailures = count
    }

    /// Counts a connection in; false when there are too many, or too many that shake hands.
    ///
    /// In any case `endHandshake` and `endConnection` are owed.
    func beginHandshake(_ connection: some Handshaking) -> Bool {
        let isRoom = context.connections.enter(limit: limits.connections)
        guard context.handshakes.enter(limit: limits.connectionsBeforeHello), isRoom else { return false }
        let deadline = loop.now + UInt64(limits.helloTimeoutMilliseconds)
        connection.handshakePlace = handshakes.append(connection, deadline: deadline)
        return true
    }

    func endHandshake(_ connection: some Handshaking) {
        context.handshakes.leave()
        handshakes.remove(connection.handshakePlace)
    }

    /// A connection is over; one that only moves to another loop stays counted.
    func endConnection() { context.connections.leave() }

    /// When a closed client may come back: at random in this window, which both ends at 0 leave to the client.
    func retryWindow(for code: CloseCode) -> (UInt32, UInt32) {
        switch code {
        case .overloaded: (1_000, 15_000)
        case .shuttingDown: (500, UInt32(clamping: limits.reconnectSpreadSeconds * 1_000))
        case .replaced: (30_000, 60_000)
        case .clockSkew: (0, 1_000)
        default: (0, 0)
        }
    }

    // MARK: What a session says

    func hello(_ command: HelloCommand) {
        core.pointee.shard.hello(command, now: now)
        perform()
    }

    func heard(_ session: SessionRef) {
        // Hardly ever anything; but what there is points to bytes that the next call may free.
        if core.pointee.shard.heard(session, now: now) { perform() }
    }

    func acknowledge(_ session: SessionRef, _ ack: borrowing AckView) {
        ack.withRanges { ranges in
            core.pointee.shard.acknowledge(session, cumulative: ack.sequence, ranges: ranges, now: now)
        }
        perform()
        if ack.hasBroadcasts {
            core.pointee.shard.acknowledgeBroadcasts(
                session, cumulative: ack.broadcastSequence, ranges: ack.broadcastRanges, now: now)
            perform()
        }
        for rejected in ack.rejected where rejected.stream <= 1 {
            core.pointee.shard.reject(
                session, stream: rejected.stream, sequence: rejected.sequence, reason: rejected.reason, now: now)
            perform()
        }
    }

    func update(_ session: SessionRef, _ update: DeviceUpdate) {
        core.pointee.shard.update(session, update, now: now)
        perform()
    }

    func feedback(_ session: SessionRef, _ feedback: Feedback) {
        core.pointee.shard.feedback(session, feedback, now: now)
        perform()
    }

    func sessionEnded(_ session: SessionRef, announced: Bool) {
        core.pointee.shard.sessionEnded(session, announced: announced, now: now)
        perform()
    }
}
