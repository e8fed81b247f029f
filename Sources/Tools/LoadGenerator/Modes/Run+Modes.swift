extension Run {
    func idle(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let memory = meter?.memory()
        let kernel = ProcessMeter.kernel()
        let coordinator = try start(plans(.idle, devices))
        wait(.ready, coordinator, "connecting", .connected, of: devices.count)
        let begin = Clocks.now()
        let end = begin + Int64(options.hold * 1e9)
        coordinator.open(.ready, at: begin)
        let cpu = CPUSpan(meter)
        // Measured before the devices disconnect and late in the hold, after the memory for connecting has settled.
        watch(until: end - min(300_000_000, (end - begin) / 4), from: begin, coordinator, "holding \(devices.count)")
        let server = cpu.end()
        let memoryAfter = meter?.memory()
        let kernelAfter = ProcessMeter.kernel()
        let tally = try join(coordinator, "ending")

        var report = Report(title: "idle: \(devices.count) connections held for \(Metric.rounded(options.hold, 0)) s")
        report.failures = tally.failures
        addConnections(tally, to: &report)
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
        addGenerator(tally, server, to: &report, messages: nil)
        report.notes.append(
            "The kernel's figures are the whole machine's growth: roughly right when nothing else happens on it.")
        return (report, tally)
    }

    func live(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let coordinator = try start(plans(.live, devices, senders: options.senders))
        wait(.ready, coordinator, "connecting", .connected, of: devices.count)
        let server = measure(coordinator, "publishing")
        let tally = try join(coordinator, "draining")

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
        report.add(latency: tally.sendLag, as: "sendLag", "due to encoded, in the generator")
        let isPaceKept = options.rate.map { Double(tally.measuredAccepted) >= $0 * seconds * 0.99 } ?? true
        addGenerator(tally, server, to: &report, messages: tally.measuredAccepted, isPaceKept: isPaceKept)
        if !isPaceKept {
            report.notes.append("The asked rate was not reached; the latencies include the time messages were held up.")
        }
        return (report, tally)
    }

    func offline(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let (tally, spans) = try absent(devices)
        var report = Report(
            title: "offline: \(options.messages) messages of \(options.payloadByteCount) bytes for each of "
                + "\(devices.count) absent devices, then their return")
        report.failures = tally.failures
        report.add(
            "enqueueRate", Double(tally.accepted) / max(spans.enqueueSeconds, 1e-9), "enqueued a second")
        let draining = Double(max(0, tally.drainEndedAt - spans.returnAt))
        report.add(
            "drainRate", Double(tally.delivered) / max(draining / 1e9, 1e-9), "drained a second, from the first connect"
        )
        report.add("drainSeconds", draining, "first connect to last message")
        addMessages(tally, to: &report)
        addBusy(tally, to: &report)
        if let used = spans.enqueue, tally.accepted > 0 {
            report.add(
                "enqueueServerCPU", Double(used.used) / Double(tally.accepted), "gateway's CPU an enqueued message")
        }
        if let used = spans.drain, tally.delivered > 0 {
            report.add("drainServerCPU", Double(used.used) / Double(tally.delivered), "gateway's CPU a drained message")
            report.add("serverCPUCores", used.cores, "gateway's CPU while draining, cores")
        }
        report.add(latency: tally.resultLatency, as: "result", "publish to result")
        report.add(latency: tally.connectLatency, as: "connect", "connect to Welcome")
        addGenerator(tally, spans.drain, to: &report, messages: tally.accepted)
        return (report, tally)
    }

    func storm(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let (tally, spans) = try absent(devices)
        var report = Report(
            title: "storm: \(devices.count) devices reconnect at once, \(options.handshakes) handshakes in flight, "
                + "\(options.messages) messages for each")
        report.failures = tally.failures
        addConnections(tally, to: &report)
        let greeting = Double(max(0, tally.connectEndedAt - spans.returnAt))
        report.add("helloRate", Double(tally.connected) / max(greeting / 1e9, 1e-9), "authenticated a second")
        report.add("authenticatedSeconds", greeting, "until all were authenticated")
        if options.messages > 0 {
            let draining = Double(max(0, tally.drainEndedAt - spans.returnAt))
            report.add("drainedSeconds", draining, "until all were drained")
            report.add("drainRate", Double(tally.delivered) / max(draining / 1e9, 1e-9), "drained a second")
        }
        addMessages(tally, to: &report)
        addBusy(tally, to: &report)
        if let used = spans.drain {
            report.add(
                "helloServerCPU", Double(used.used) / Double(max(1, tally.connected)),
                "gateway's CPU a device, its messages included")
            report.add("serverCPUCores", used.cores, "gateway's CPU during the storm, cores")
        }
        report.add(latency: tally.connectLatency, as: "connect", "connect to Welcome")
        addGenerator(tally, spans.drain, to: &report, messages: max(tally.delivered, tally.connected))
        return (report, tally)
    }

    struct AbsentSpans {
        var enqueueSeconds = 0.0
        /// The reconnect time on the monotonic clock.
        var returnAt: Int64 = 0
        var enqueue: CPUSpan.Usage?
        var drain: CPUSpan.Usage?
    }

    private func absent(_ devices: [DeviceIdentity]) throws -> (WorkerTally, AbsentSpans) {
        var spans = AbsentSpans()
        let coordinator = try start(plans(.offline, devices, senders: options.senders))
        wait(.ready, coordinator, "connecting senders", .connected, of: 0)
        spans.enqueue = enqueue(devices.count * options.messages, coordinator, &spans.enqueueSeconds)
        spans.returnAt = Clocks.now()
        coordinator.open(.second, at: spans.returnAt)
        let cpu = CPUSpan(meter)
        // After the last delivery the workers only wait for repeats; `idle` subtracts these 200 ms.
        let tally = try join(
            coordinator, "devices return and drain", options.messages > 0 ? .delivered : .connected,
            of: options.messages > 0 ? coordinator.count(.accepted) : devices.count)
        spans.drain = cpu.end(idle: 200_000_000)
        return (tally, spans)
    }

    /// Opens the first gate and waits until all messages are enqueued.
    func enqueue(_ total: Int, _ coordinator: Coordinator, _ seconds: inout Double) -> CPUSpan.Usage? {
        let begin = Clocks.now()
        coordinator.open(.ready, at: begin)
        let cpu = CPUSpan(meter)
        wait(.second, coordinator, "enqueueing", .accepted, of: total)
        seconds = Double(Clocks.now() - begin) / 1e9
        return cpu.end()
    }

    /// Opens the gate and measures the gateway in the same interval as the workers.
    func measure(_ coordinator: Coordinator, _ text: String) -> CPUSpan.Usage? {
        let begin = Clocks.now()
        coordinator.open(.ready, at: begin)
        let from = begin + Int64(options.warmup * 1e9)
        watch(until: from, from: begin, coordinator, "warming up")
        let cpu = CPUSpan(meter)
        watch(until: from + Int64(options.duration * 1e9), from: from, coordinator, text)
        return cpu.end()
    }
}
