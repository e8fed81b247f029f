extension Run {
    /// `devices` are all registered devices; the first `--devices` of them are connected.
    func broadcast(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let token = try HTTPToken.fetch(credentials, timeoutSeconds: min(options.timeout, 30))
        let present = Array(devices[..<options.devices])
        var plans = plans(.broadcast, present)
        for index in plans.indices { plans[index].httpToken = token }
        plans[0].httpConnections = 1
        let coordinator = try start(plans)
        wait(.ready, coordinator, "connecting", .connected, of: present.count)
        coordinator.open(.ready, at: Clocks.now())
        wait(.second, coordinator, "getting ready to count", .connected, of: present.count)
        let cpu = CPUSpan(meter)
        coordinator.open(.second, at: Clocks.now())
        var tally = try join(coordinator, "broadcasting", .settled, of: options.messages)
        let server = cpu.end(idle: 200_000_000)
        tally.devices += devices[options.devices...]

        var report = Report(
            title: "broadcast: push/all, \(options.messages) times, to \(devices.count) registered devices, "
                + "\(tally.connected) of them connected, \(options.payloadByteCount) bytes")
        report.failures = tally.failures
        addConnections(tally, to: &report)
        let seconds = Double(tally.rounds.reduce(0) { $0 + $1.nanoseconds }) / 1e9
        let slowest = tally.rounds.map(\.nanoseconds).max() ?? 0
        report.add(
            "rate", Double(tally.delivered) / max(seconds, 1e-9), "deliveries a second, from the call's first byte")
        report.add("slowestRoundSeconds", Double(slowest), "slowest broadcast, call to last delivery")
        report.add("broadcasts", Double(tally.accepted), "broadcasts accepted")
        report.add("delivered", Double(tally.delivered), "deliveries")
        report.add("acks", Double(tally.acks), "acks sent, one a read")
        report.add("loss", Double(tally.accepted * tally.connected - tally.delivered), "lost: owed and not delivered")
        report.add("repeats", Double(tally.repeats), "repeated")
        addServer(server, messages: tally.delivered, to: &report, what: "a delivery")
        report.add(latency: tally.answerLatency, as: "answer", "request to answer")
        report.add(latency: tally.deliverLatency, as: "deliver", "request to deliver")
        addGenerator(tally, server, to: &report, messages: tally.delivered)
        if tally.foreign > 0 {
            report.notes.append("\(tally.foreign) deliveries were broadcasts of others or of earlier runs.")
        }
        return (report, tally)
    }
}
