internal import Wire

// Broadcasts: the first worker sends them in sequence, and all workers count the deliveries to their devices.
extension Worker {
    static var broadcastStream: UInt32 { 1 }

    /// Connects the devices, then counts deliveries until the last broadcast is over.
    mutating func runBroadcast() {
        connectDevices()
        guard tally.fatal == nil, connectHTTP() else { return }
        showProgress()
        let time = plan.options.drain * Int64(plan.options.messagesPerDevice + 1)
        guard let ready = pass(.ready) else { return }
        begin(at: ready)
        // The first broadcast is sent after all workers passed the gate. Earlier deliveries would count as foreign.
        guard let start = pass(.second) else { return }
        let connected = coordinator.count(.connected)
        let end = start + time
        if httpCount > 0 {
            for _ in 0..<plan.options.messagesPerDevice where tally.fatal == nil { playRound(connected) }
        }
        while coordinator.count(.settled) < plan.options.messagesPerDevice, !coordinator.hasFinished, now < end,
            tally.fatal == nil
        { turn(nanoseconds: Self.idleTurn) }
        finish()
        // A duplicate follows its original shortly, so 200 ms are enough to count it.
        let grace = now + 200_000_000
        while now < grace, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        for index in 0..<deviceCount { leave(index) }
    }

    /// Sends one broadcast and waits until all connected devices have it, or until the timeout.
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

    /// Counts a Deliver of stream 1, whose mark is its send time.
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
        // Broadcasts arrive in order, so the last round is nearly always the right one.
        let place = tally.rounds.lastIndex { $0.sentAt == sentAt } ?? 0
        tally.rounds[place].deliveries += 1
        tally.rounds[place].lastAt = now
        tally.delivered += 1
        tally.deliverLatency.record(now - sentAt)
    }
}
