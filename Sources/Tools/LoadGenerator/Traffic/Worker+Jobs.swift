// The workers' jobs, one function each. Every loop has a deadline.
extension Worker {
    static var idleTurn: Int64 { 5_000_000 }

    /// Connects all devices and counts failures; if no device can connect, the run ends.
    mutating func connectDevices() {
        beginConnecting()
        let deadline = now + plan.options.timeout
        while isConnecting, now < deadline, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        if isConnecting {
            fail("connecting did not end within the time of --timeout")
            tally.failedDevices += deviceCount - tally.connected - tally.failedDevices
            // Pending attempts are dropped, so that they do not disturb the measurement.
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

    /// Keeps `inFlight` messages in flight; each is due when it is encoded.
    private mutating func publishClosed() -> Int64 {
        now = Clocks.now()
        while outstanding < plan.inFlight {
            guard let device = randomReadyDevice(), publish(to: device, dueAt: now, isMeasured: isMeasuring) else {
                break
            }
        }
        // The sockets report when there is room again.
        return Self.idleTurn
    }

    /// Publishes all messages that are due and before `end`.
    ///
    /// Latencies count from the due time, even if this call is late. Returns the time until the next message is due.
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
        // The gateway is far behind. The further delay is the gateway's, not the generator's.
        if isMeasuring { tally.stalls += 1 }
        return Limits.tickNanoseconds
    }

    private mutating func randomReadyDevice() -> Int? {
        // With nearly all devices connected, a few random picks find one. The limit prevents an endless loop if all are gone.
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

    /// Opens all HTTP connections; returns false when the run is over.
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
        // Waits for outstanding answers and deliveries, so that none is missing here or disturbs the next run.
        let grace = now + plan.options.drain
        while now < grace, tally.fatal == nil {
            let isAnswered = !(0..<httpCount).contains { https[$0].outstanding > 0 }
            guard !isAnswered || (waitsForDelivery && tally.delivered < tally.accepted) else { break }
            turn(nanoseconds: Self.idleTurn)
        }
    }

    /// Enqueues `messagesPerDevice` messages for each disconnected device.
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
        // The generator's CPU is measured for the second half, which needs more CPU.
        begin(at: returnAt)
        connectDevices()
        let end = returnAt + plan.options.drain
        while tally.delivered < tally.accepted, now < end, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        finish()
        // A duplicate follows its original shortly, so 200 ms are enough to count it.
        let grace = now + 200_000_000
        while now < grace, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        for index in 0..<deviceCount { leave(index) }
    }

    /// Registers the devices' tokens, creates their jobs, and drains them through the admin listener.
    mutating func runHandoff() {
        connectDevices()
        guard tally.fatal == nil, enqueue() else { return }
        openAdmins()
        let deadline = Clocks.now() + plan.options.timeout
        while readyAdmins < adminCount, now < deadline, tally.fatal == nil { turn(nanoseconds: Self.idleTurn) }
        if readyAdmins < adminCount, tally.fatal == nil { tally.fatal = "the admin listener did not answer" }
        // All jobs must be counted before any worker compares the totals.
        showProgress()
        guard tally.fatal == nil, let start = pass(.second) else { return }
        begin(at: start)
        for index in 0..<adminCount { lease(index) }
        let end = start + plan.options.drain
        while coordinator.count(.settled) < coordinator.count(.accepted), now < end, tally.fatal == nil {
            turn(nanoseconds: Self.idleTurn)
        }
        finish()
        // A second lease of a job follows shortly, so 200 ms are enough to count it.
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

enum Pace {
    /// Returns the due time of the `number`-th message in nanoseconds from the start, rounded up to the end of its tick.
    @inline(__always)
    static func due(_ number: UInt64, rate: Double) -> Int64 {
        let exact = Int64(Double(number) * 1e9 / rate)
        return (exact + Limits.tickNanoseconds - 1) / Limits.tickNanoseconds * Limits.tickNanoseconds
    }
}
