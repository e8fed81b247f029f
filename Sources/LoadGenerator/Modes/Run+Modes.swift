internal import Synchronization

// The four modes: who is started, what is measured in which moment, what the report says.
extension Run {
    func idle(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let memory = meter?.memory()
        let kernel = ProcessMeter.kernel()
        let coordinator = Coordinator(threads: plans(.idle, devices, senders: 0, http: 0).count)
        let threads = try start(plans(.idle, devices, senders: 0, http: 0), coordinator)
        wait(.ready, coordinator, "connecting", of: devices.count)
        let begin = Clocks.now()
        let end = begin + Int64(options.hold * 1e9)
        coordinator.open(.ready, at: begin)
        let cpu = CPUSpan(meter)
        // Measured before the devices leave, late in the hold: by then what connecting had allocated is settled.
        watch(until: end - min(300_000_000, (end - begin) / 4), from: begin, coordinator, "holding \(devices.count)")
        let server = cpu.end()
        let memoryAfter = meter?.memory()
        let kernelAfter = ProcessMeter.kernel()
        let tally = try join(threads, coordinator, "ending")

        var report = Report(title: "idle: \(devices.count) connections held for \(Metric.rounded(options.hold, 0)) s")
        report.failures = tally.failures
        report.add("connections", Double(tally.connected), "connections authenticated")
        report.add("failed", Double(tally.failedDevices), "failed")
        report.add("lost", Double(tally.lostConnections), "lost while held")
        let connecting = Double(tally.connectEndedAt - tally.connectStartedAt) / 1e9
        report.add("connectRate", Double(tally.connected) / max(connecting, 1e-9), "connects a second")
        let count = Double(max(1, tally.connected))
        if let memory, let memoryAfter {
            report.add(
                "rssPerConnection", Double(memoryAfter.resident - memory.resident) / count,
                "gateway's resident memory per connection")
            report.add(
                "pssPerConnection", Double(memoryAfter.proportional - memory.proportional) / count,
                "gateway's proportional memory per connection")
        }
        report.add(
            "kernelPerConnection", Double(kernelAfter.slab - kernel.slab) / count,
            "kernel slab per connection, both ends")
        report.add(
            "socketMemoryPerConnection", Double(kernelAfter.tcp - kernel.tcp) / count,
            "kernel socket buffers per connection, both ends")
        if let server { report.add("serverCPUCores", server.cores, "gateway's CPU while held, cores") }
        report.add(latency: tally.connectLatency, as: "connect", "connect to Welcome")
        addGenerator(tally, to: &report, messages: nil)
        report.notes.append(
            "The kernel's figures are the whole machine's growth: roughly right when nothing else happens on it.")
        if meter == nil { report.notes.append("Give --pid for the gateway's memory and CPU.") }
        return (report, tally)
    }

    func live(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let plans = plans(.live, devices, senders: options.senders, http: 0)
        let coordinator = Coordinator(threads: plans.count)
        let threads = try start(plans, coordinator)
        wait(.ready, coordinator, "connecting", of: devices.count)
        let server = measure(coordinator, "publishing")
        let tally = try join(threads, coordinator, "draining")

        let pace =
            options.rate.map { "\(Metric.grouped($0))/s" } ?? "\(Metric.grouped(Double(options.inFlight))) in flight"
        var report = Report(
            title: "live: \(devices.count) devices, \(options.payloadByteCount) bytes, \(pace), "
                + "\(Metric.rounded(options.duration, 0)) s")
        report.failures = tally.failures
        let seconds = Double(tally.phaseEndedAt - tally.phaseStartedAt) / 1e9
        report.add("rate", Double(tally.measuredDelivered) / max(seconds, 1e-9), "messages delivered a second")
        addMessages(tally, to: &report)
        addServer(server, messages: tally.measuredAccepted, to: &report)
        report.add(latency: tally.deliverLatency, as: "deliver", "publish to deliver")
        report.add(latency: tally.resultLatency, as: "result", "publish to result")
        addGenerator(tally, to: &report, messages: tally.measuredAccepted)
        if let rate = options.rate, Double(tally.measuredAccepted) < rate * seconds * 0.99 {
            report.notes.append("The asked rate was not reached; the latencies include the time messages were held up.")
        }
        return (report, tally)
    }

    func http(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let token = try HTTPToken.fetch(credentials, timeoutSeconds: min(30, max(1, options.timeout)))
        let plans = plans(.http, devices, senders: 0, http: options.connections, token: token)
        let coordinator = Coordinator(threads: plans.count)
        let threads = try start(plans, coordinator)
        wait(.ready, coordinator, "connecting", of: options.isConnected ? devices.count : 0)
        let server = measure(coordinator, "pushing")
        let tally = try join(threads, coordinator, "ending")

        let body = HTTPRequestTemplate(credentials, token: "").bodyByteCount
        var report = Report(
            title: "http: push/single/cid of \(body) bytes, \(options.connections) connections × \(options.pipeline), "
                + "\(devices.count) \(options.isConnected ? "connected" : "absent") devices, "
                + "\(Metric.rounded(options.duration, 0)) s")
        report.failures = tally.failures
        let seconds = Double(tally.phaseEndedAt - tally.phaseStartedAt) / 1e9
        report.add("rate", Double(tally.measuredAccepted) / max(seconds, 1e-9), "accepted a second")
        report.add("accepted", Double(tally.accepted), "accepted")
        report.add("refused", Double(tally.refused), "refused")
        report.add("failed", Double(tally.failedRequests), "without an answer")
        addServer(server, messages: tally.measuredAccepted, to: &report)
        report.add(latency: tally.answerLatency, as: "answer", "request to answer")
        addGenerator(tally, to: &report, messages: tally.measuredAccepted)
        return (report, tally)
    }

    func offline(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let plans = plans(.offline, devices, senders: options.senders, http: 0)
        let coordinator = Coordinator(threads: plans.count)
        let threads = try start(plans, coordinator)
        wait(.ready, coordinator, "connecting senders", of: 0)
        let total = devices.count * options.messages
        let begin = Clocks.now()
        coordinator.open(.ready, at: begin)
        let enqueueCPU = CPUSpan(meter)
        while !coordinator.isComplete(.second) {
            watch(
                until: min(Clocks.now() + 50_000_000, begin + Int64(options.timeout * 1e9) + 1_000_000_000),
                from: begin, coordinator, "enqueueing \(total)")
            if Clocks.now() - begin > Int64(options.timeout * 1e9) + 2_000_000_000 { break }
        }
        let enqueued = Clocks.now()
        let enqueueServer = enqueueCPU.end()
        let returnAt = Clocks.now()
        coordinator.open(.second, at: returnAt)
        let drainCPU = CPUSpan(meter)
        let tally = try join(threads, coordinator, "devices return and drain", of: devices.count)
        let drainServer = drainCPU.end()

        var report = Report(
            title: "offline: \(options.messages) messages of \(options.payloadByteCount) bytes for each of "
                + "\(devices.count) absent devices, then their return")
        report.failures = tally.failures
        report.add(
            "enqueueRate", Double(tally.accepted) / max(Double(enqueued - begin) / 1e9, 1e-9), "enqueued a second")
        let draining = Double(max(0, tally.drainEndedAt - returnAt))
        report.add(
            "drainRate", Double(tally.delivered) / max(draining / 1e9, 1e-9), "drained a second, from the first connect"
        )
        report.add("drainSeconds", draining, "first connect to last message")
        addMessages(tally, to: &report)
        if let enqueueServer, tally.accepted > 0 {
            report.add(
                "enqueueServerCPU", Double(enqueueServer.used) / Double(tally.accepted),
                "gateway's CPU an enqueued message")
        }
        if let drainServer, tally.delivered > 0 {
            report.add(
                "drainServerCPU", Double(drainServer.used) / Double(tally.delivered), "gateway's CPU a drained message")
        }
        report.add(latency: tally.resultLatency, as: "result", "publish to result")
        report.add(latency: tally.connectLatency, as: "connect", "connect to Welcome")
        addGenerator(tally, to: &report, messages: tally.accepted)
        if meter == nil { report.notes.append("Give --pid for the gateway's CPU.") }
        return (report, tally)
    }

    /// Opens the gate and measures the gateway over the same window as the workers do.
    private func measure(_ coordinator: Coordinator, _ text: String) -> CPUSpan.Usage? {
        let begin = Clocks.now()
        coordinator.open(.ready, at: begin)
        let from = begin + Int64(options.warmup * 1e9)
        watch(until: from, from: begin, coordinator, "warming up")
        let cpu = CPUSpan(meter)
        watch(until: from + Int64(options.duration * 1e9), from: from, coordinator, text)
        return cpu.end()
    }

    private func addMessages(_ tally: WorkerTally, to report: inout Report) {
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

    private func addServer(_ usage: CPUSpan.Usage?, messages: Int, to report: inout Report) {
        guard let usage else {
            if meter == nil { report.notes.append("Give --pid for the gateway's CPU.") }
            return
        }
        if messages > 0 { report.add("serverCPU", Double(usage.used) / Double(messages), "gateway's CPU a message") }
        report.add("serverCPUCores", usage.cores, "gateway's CPU, cores")
    }

    private func addGenerator(_ tally: WorkerTally, to report: inout Report, messages: Int?) {
        let wall = max(1, Double(tally.phaseEndedAt - tally.phaseStartedAt))
        guard tally.threadCPU > 0, tally.phaseEndedAt > 0 else { return }
        let busy = Double(tally.threadCPU) / wall * 100
        if let messages, messages > 0 {
            let threads = Double(options.threads)
            report.add(
                "generatorCPU", Double(tally.threadCPU) * threads / Double(messages), "generator's CPU a message")
        }
        report.add("generatorBusy", busy, "busiest generator thread, share of a core")
        if busy >= 90 {
            report.notes.append(
                "The generator itself was the bottleneck (a thread used \(Metric.rounded(busy, 0)) % of a core): give "
                    + "--threads, or more cores. The gateway can do more than these figures.")
        } else if messages != nil, options.rate == nil, Double(tally.waited) < wall * 0.02 {
            report.notes.append(
                "The generator never had to wait for the gateway: the cores they share were the limit, not the gateway."
            )
        }
    }
}

/// A process's CPU between two moments.
struct CPUSpan {
    struct Usage {
        var used: Int64
        var cores: Double
    }

    private let meter: ProcessMeter?
    private let start: Int64?
    private let startedAt: Int64

    init(_ meter: ProcessMeter?) {
        self.meter = meter
        start = meter?.cpu()
        startedAt = Clocks.now()
    }

    /// - Returns: `nil` without a process to look at, or when it has gone.
    func end() -> Usage? {
        guard let start, let end = meter?.cpu() else { return nil }
        return Usage(used: end - start, cores: Double(end - start) / Double(max(1, Clocks.now() - startedAt)))
    }
}
