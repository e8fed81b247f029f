// What a worker does from its start to its end, one function a job. Each ends by itself: every loop has a deadline.
extension Worker {
    static var idleTurn: Int64 { 5_000_000 }

    /// Connects all devices; those that fail are counted, and a gateway that nobody answers for ends the run.
    mutating func connectDevices() {
        beginConnecting()
        let deadline = now + plan.options.timeout
        while isConnecting, now < deadline, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        if isConnecting {
            fail("connecting did not end within the time of --timeout")
            tally.failedDevices += deviceCount - tally.connected - tally.failedDevices
            // What is still under way is not started again behind the measurement's back.
            nextDevice = deviceCount
            again.removeAll()
        }
        if tally.connected == 0, deviceCount > 0, tally.fatal == nil {
            let reason = tally.failures.max { $0.value < $1.value }?.key ?? "no answer"
            tally.fatal = "no device could connect: \(reason)"
        }
    }

    private mutating func connectSenders() {
        guard tally.fatal == nil else { return }
        openSenders()
        let deadline = now + plan.options.timeout
        while readySenders < senderCount, now < deadline, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        if readySenders < senderCount, tally.fatal == nil { tally.fatal = "the senders' listener did not answer" }
    }

    mutating func runRegister() { connectDevices() }

    mutating func runIdle() {
        connectDevices()
        guard tally.fatal == nil, let start = pass(.ready) else { return }
        begin(at: start)
        let end = start + plan.options.hold
        while now < end, tally.fatal == nil { turn(nanoseconds: min(Self.idleTurn * 4, end - now)) }
        finish()
    }

    mutating func runLive() {
        connectDevices()
        connectSenders()
        guard tally.fatal == nil, let start = pass(.ready) else { return }
        let measureFrom = start + plan.options.warmup
        let end = measureFrom + plan.options.duration
        var paced: UInt64 = 0
        while now < end, tally.fatal == nil {
            if !isMeasuring, now >= measureFrom { begin(at: now) }
            let wait = plan.rate.map { publishPaced(start, $0, &paced, before: end) } ?? publishClosed()
            flushSenders()
            turn(nanoseconds: max(0, min(wait, end - now)))
        }
        finish()
        drain(until: now + plan.options.drain)
    }

    /// Keeps `inFlight` messages under way; each is due when it is encoded.
    private mutating func publishClosed() -> Int64 {
        now = Clocks.now()
        while outstanding < plan.inFlight {
            guard let device = randomReadyDevice(), publish(to: device, dueAt: now, isMeasured: isMeasuring) else {
                break
            }
        }
        // The sockets tell when there is room again.
        return Self.idleTurn
    }

    /// Publishes all that is due by now and before `end`, each with the time it was due at, however late this comes.
    ///
    /// Returns how long until the next is due.
    private mutating func publishPaced(
        _ start: Int64, _ rate: Double, _ count: inout UInt64, before end: Int64
    ) -> Int64 {
        now = Clocks.now()
        while outstanding < Limits.outstandingCount {
            let dueAt = start + Pace.due(count, rate: rate)
            guard dueAt < end else { return Self.idleTurn }
            guard dueAt <= now else { return dueAt - now }
            guard let device = randomReadyDevice(), publish(to: device, dueAt: dueAt, isMeasured: isMeasuring) else {
                if isMeasuring { tally.stalls += 1 }
                return Limits.tickNanoseconds
            }
            if isMeasuring { tally.sendLag.record(now - dueAt) }
            count += 1
        }
        // The gateway is a long way behind: what follows is its delay, not ours.
        if isMeasuring { tally.stalls += 1 }
        return Limits.tickNanoseconds
    }

    private mutating func randomReadyDevice() -> Int? {
        // With nearly all devices there, a few throws find one; a fleet that is gone must not hang the thread.
        for _ in 0..<32 {
            let index = randomIndex(below: deviceCount)
            if devices[index].phase == .ready { return index }
        }
        return (0..<deviceCount).first { devices[$0].phase == .ready }
    }

    private mutating func drain(until deadline: Int64) {
        while outstanding > 0, now < deadline, tally.fatal == nil {
            flushSenders()
            turn(nanoseconds: Self.idleTurn)
        }
    }

    /// Opens all HTTP connections; false when the run is over.
    mutating func connectHTTP() -> Bool {
        openHTTP()
        let deadline = Clocks.now() + plan.options.timeout
        while readyHTTP < httpCount, now < deadline, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        if readyHTTP < httpCount, tally.fatal == nil { tally.fatal = "the push API did not answer" }
        return tally.fatal == nil
    }

    mutating func runHTTP() {
        waitsForDelivery = plan.options.connectsDevices
        if plan.options.connectsDevices { connectDevices() }
        guard tally.fatal == nil, connectHTTP(), let start = pass(.ready) else { return }
        publishesHTTP = true
        for index in 0..<httpCount { sendRequests(index) }
        let measureFrom = start + plan.options.warmup
        let end = measureFrom + plan.options.duration
        while now < end, tally.fatal == nil {
            if !isMeasuring, now >= measureFrom { begin(at: now) }
            turn(nanoseconds: max(0, min(Self.idleTurn, end - now)))
        }
        finish()
        publishesHTTP = false
        // Let what is under way be answered and delivered, so that nothing is missing and the next run does not meet it.
        let grace = now + plan.options.drain
        while now < grace, tally.fatal == nil {
            let isAnswered = !(0..<httpCount).contains { https[$0].outstanding > 0 }
            guard !isAnswered || (waitsForDelivery && tally.delivered < tally.accepted) else { break }
            turn(nanoseconds: Self.idleTurn)
        }
    }

    /// Enqueues `messagesPerDevice` for each device, which are all absent.
    ///
    /// - Returns: false when the run is over.
    private mutating func enqueue() -> Bool {
        waitsForDelivery = false
        connectSenders()
        guard tally.fatal == nil, let start = pass(.ready) else { return false }
        begin(at: start)
        let total = deviceCount * plan.options.messagesPerDevice
        let deadline = start + plan.options.timeout
        var next = 0
        sendsAgain = true
        while tally.accepted + tally.refused < total || outstanding > 0, now < deadline, tally.fatal == nil {
            now = Clocks.now()
            while now >= pausedUntil, tally.accepted + tally.refused + outstanding < total,
                outstanding < plan.inFlight, publish(to: next % deviceCount, dueAt: now, isMeasured: true)
            { next += 1 }
            flushSenders()
            turn(nanoseconds: Self.idleTurn)
        }
        if tally.accepted + tally.refused < total { fail("enqueueing did not end within the time of --timeout") }
        finish()
        return tally.fatal == nil
    }

    mutating func runOffline() {
        guard enqueue(), let returnAt = pass(.second) else { return }
        // What the generator itself used is counted for the half that asks more of it.
        begin(at: returnAt)
        connectDevices()
        let end = returnAt + plan.options.drain
        while tally.delivered < tally.accepted, now < end, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        finish()
        // A moment longer: a message that comes twice does so right behind.
        let grace = now + 200_000_000
        while now < grace, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        for index in 0..<deviceCount { leave(index) }
    }

    /// Tells the gateway the devices' tokens, makes their jobs, and drains them over the admin listener.
    mutating func runHandoff() {
        connectDevices()
        guard tally.fatal == nil, enqueue() else { return }
        openAdmins()
        let deadline = Clocks.now() + plan.options.timeout
        while readyAdmins < adminCount, now < deadline, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        if readyAdmins < adminCount, tally.fatal == nil { tally.fatal = "the admin listener did not answer" }
        // Everybody's jobs are counted before anybody asks whether all are settled.
        showProgress()
        guard tally.fatal == nil, let start = pass(.second) else { return }
        begin(at: start)
        for index in 0..<adminCount { lease(index) }
        let end = start + plan.options.drain
        while coordinator.count(.settled) < coordinator.count(.accepted), now < end, tally.fatal == nil {
            turn(nanoseconds: Self.idleTurn)
        }
        finish()
        // A moment longer: a job that is leased twice comes right behind.
        let grace = now + 200_000_000
        while now < grace, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        for index in 0..<adminCount where tally.fatal == nil { closeAdmin(index) }
    }

    mutating func begin(at time: Int64) {
        isMeasuring = true
        tally.phaseStartedAt = time
        tally.waited = 0
        cpuAtStart = Clocks.threadCPU()
    }

    mutating func finish() {
        guard isMeasuring else { return }
        isMeasuring = false
        tally.phaseEndedAt = Clocks.now()
        let used = Clocks.threadCPU() - cpuAtStart
        let time = max(1, tally.phaseEndedAt - tally.phaseStartedAt)
        tally.totalCPU += used
        tally.measuredTime += time
        tally.busiest = max(tally.busiest, Double(used) / Double(time))
    }
}

/// When the messages of a fixed rate fall due.
enum Pace {
    /// Nanoseconds from the start for the `number`-th message, moved up to the end of its tick.
    @inline(__always)
    static func due(_ number: UInt64, rate: Double) -> Int64 {
        let exact = Int64(Double(number) * 1e9 / rate)
        return (exact + Limits.tickNanoseconds - 1) / Limits.tickNanoseconds * Limits.tickNanoseconds
    }
}
