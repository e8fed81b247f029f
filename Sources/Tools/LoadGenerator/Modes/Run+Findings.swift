extension Run {
    func addConnections(_ tally: WorkerTally, to report: inout Report) {
        report.add("connections", Double(tally.connected), "connections authenticated")
        report.add("failed", Double(tally.failedDevices), "failed")
        report.add("lost", Double(tally.lostConnections), "lost while held")
    }

    func addMessages(_ tally: WorkerTally, to report: inout Report) {
        report.add("accepted", Double(tally.accepted), "accepted in all")
        report.add("delivered", Double(tally.delivered), "delivered in all")
        report.add("acks", Double(tally.acks), "acks sent, one a read")
        report.add("refused", Double(tally.refused), "refused")
        report.add("unanswered", Double(tally.remainder.unanswered), "without a result")
        report.add("loss", Double(tally.remainder.undelivered), "lost: accepted and never delivered")
        report.add("repeats", Double(tally.repeats), "repeated")
        report.add("disordered", Double(tally.disordered), "out of order")
        if tally.failedDevices > 0 { report.notes.append("\(tally.failedDevices) devices could not connect.") }
        if tally.lostConnections > 0 {
            report.notes.append("\(tally.lostConnections) connections ended during the run.")
        }
        if tally.foreign > 0 {
            report.notes.append("\(tally.foreign) deliveries were of other publishers or earlier runs.")
        }
        if tally.malformed > 0 { report.notes.append("\(tally.malformed) frames could not be understood.") }
    }

    func addBusy(_ tally: WorkerTally, to report: inout Report) {
        report.add("busy", Double(tally.busy), "refused as busy, and sent again")
    }

    func addServer(
        _ usage: CPUSpan.Usage?, messages: Int, to report: inout Report, what: String = "a message"
    ) {
        guard let usage else { return }
        if messages > 0 { report.add("serverCPU", Double(usage.used) / Double(messages), "gateway's CPU \(what)") }
        report.add("serverCPUCores", usage.cores, "gateway's CPU, cores")
    }

    /// Adds the generator's CPU and the bottleneck; `messages` is `nil` in modes that publish none.
    func addGenerator(
        _ tally: WorkerTally, _ server: CPUSpan.Usage?, to report: inout Report, messages: Int?, isPaceKept: Bool = true
    ) {
        if !credentials.secureListeners.isEmpty {
            report.add("handshakes", Double(tally.handshakes), "TLS handshakes")
            report.add("failedHandshakes", Double(tally.failedHandshakes), "TLS handshakes that failed")
        }
        if meter == nil {
            report.notes.append(
                "The gateway's process was not found on this machine: give --server-pid for its CPU and memory.")
        }
        guard tally.measuredTime > 0 else { return }
        if let messages, messages > 0 {
            report.add("generatorCPU", Double(tally.totalCPU) / Double(messages), "generator's CPU a message")
        }
        var facts = Bottleneck.Facts(busiest: tally.busiest, isPaced: options.rate != nil, isPaceKept: isPaceKept)
        facts.generatorCores = Double(tally.totalCPU) / Double(tally.measuredTime)
        facts.serverCores = server?.cores
        facts.usedCores = server?.machineCores
        facts.machineCores = Double(ProcessMeter.coreCount())
        facts.sendLag = tally.sendLag.percentile(99)
        facts.stalls = tally.stalls
        facts.waited = Double(tally.waited) / Double(max(1, tally.phaseEndedAt - tally.phaseStartedAt))
        report.add("generatorBusy", tally.busiest * 100, "busiest generator thread, share of a core")
        report.add("generatorCPUCores", facts.generatorCores, "generator's CPU, cores")
        guard messages != nil else { return }
        let bottleneck = Bottleneck(facts)
        report.bottleneck = bottleneck
        if let note = bottleneck.note(facts) { report.notes.append(note) }
    }
}

struct CPUSpan {
    struct Usage {
        var used: Int64
        var cores: Double
        /// The cores in use on this machine, or `nil` for too short a time.
        var machineCores: Double?
    }

    private let meter: ProcessMeter?
    private let start: Int64?
    private let startedAt: Int64
    private let machine = ProcessMeter.machine()

    init(_ meter: ProcessMeter?) {
        self.meter = meter
        start = meter?.cpu()
        startedAt = Clocks.now()
    }

    /// Returns the CPU used since the start.
    ///
    /// `idle` nanoseconds of waiting are subtracted from the time.
    ///
    /// - Returns: `nil` if there is no process or it has ended.
    func end(idle: Int64 = 0) -> Usage? {
        guard let start, let end = meter?.cpu() else { return nil }
        let time = max(1, Clocks.now() - startedAt - idle)
        return Usage(
            used: end - start, cores: Double(end - start) / Double(time),
            machineCores: ProcessMeter.machine().coresUsed(since: machine, of: Double(ProcessMeter.coreCount())))
    }
}
