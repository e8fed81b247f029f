internal import Wire

// Broadcasts: the first worker sends them, one after the other; all workers count what their devices get of each.
extension Worker {
    /// The stream that broadcasts travel in.
    static var broadcastStream: UInt32 { 1 }

    /// Connects its devices, then counts deliveries until the last broadcast is over.
    mutating func runBroadcast() {
        connectDevices()
        guard tally.fatal == nil, connectHTTP() else { return }
        showProgress()
        let time = plan.options.drain * Int64(plan.options.messagesPerDevice + 1)
        guard let ready = pass(.ready) else { return }
        begin(at: ready)
        // The first broadcast leaves when all count: one that came to a worker still at its gate would pass for foreign.
        guard let start = pass(.second) else { return }
        let connected = coordinator.count(.connected)
        let end = start + time
        if httpCount > 0 {
            for _ in 0..<plan.options.messagesPerDevice where tally.fatal == nil { playRound(connected) }
        }
        // The sender counts its rounds for everybody to see.
        while coordinator.count(.settled) < plan.options.messagesPerDevice, !coordinator.hasFinished, now < end,
            tally.fatal == nil
        { turn(nanoseconds: Self.idleTurn) }
        finish()
        // A moment longer: a broadcast that comes twice does so right behind.
        let grace = now + 200_000_000
        while now < grace, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        for index in 0..<deviceCount { leave(index) }
    }

    /// One broadcast to everybody, until all that are connected have it or its time is over.
    private mutating func playRound(_ connected: Int) {
        now = Clocks.now()
        let expected = coordinator.count(.delivered) + connected
        let deadline = now + plan.options.drain
        sendBroadcast()
        while tally.fatal == nil, now < deadline,
            https[0].outstanding > 0 || coordinator.count(.delivered) < expected
        { turn(nanoseconds: Self.idleTurn) }
        tally.settled += 1
        showProgress()
    }

    private mutating func sendBroadcast() {
        broadcast.fill(run: plan.runTag, mark: UInt64(now))
        https[0].push(HTTPConnection.Request(sentAt: now, firstNumber: 0))
        tally.published += 1
        broadcast.bytes.withUnsafeBytes { sendHTTP(0, $0) }
    }

    mutating func broadcastAnswered(_ status: Int, _ body: UnsafeRawBufferPointer, _ sent: HTTPConnection.Request) {
        tally.answerLatency.record(now - sent.sentAt)
        let code = HTTPResponseScanner.code(body)
        guard status == 200, code == 0 else {
            tally.refused += 1
            let reason = HTTPResponseScanner.text("msg", body) ?? ""
            tally.fatal =
                "the gateway refused a broadcast: HTTP \(status), code \(code.map(String.init) ?? "none") \(reason); "
                + "rates of broadcasts are apps[].push.broadcastsPerMinute and .broadcastsPerDay of its configuration"
            return
        }
        tally.accepted += 1
    }

    /// A Deliver of stream 1; its mark is the time it was sent at.
    @inline(__always)
    mutating func broadcastDelivered(_ index: Int, _ deliver: DeliverView, _ payload: UnsafeRawBufferPointer) {
        if deliver.sequence <= devices[index].lastSequence {
            tally.repeats += 1
            return
        }
        devices[index].lastSequence = deliver.sequence
        guard let mark = Payload.mark(of: payload), mark <= UInt64(now),
            mark >= UInt64(max(0, tally.phaseStartedAt)), isMeasuring
        else {
            tally.foreign += 1
            return
        }
        let sentAt = Int64(mark)
        if tally.rounds.last?.sentAt != sentAt {
            BroadcastRound.merge(&tally.rounds, [BroadcastRound(sentAt: sentAt)])
        }
        // Nearly always the last one: broadcasts come in order.
        let place = tally.rounds.lastIndex { $0.sentAt == sentAt } ?? 0
        tally.rounds[place].deliveries += 1
        tally.rounds[place].lastAt = now
        tally.delivered += 1
        tally.deliverLatency.record(now - sentAt)
    }
}
