extension Run {
    func http(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let token = try HTTPToken.fetch(credentials, timeoutSeconds: min(options.timeout, 30))
        var plans = plans(.http, devices, http: options.connections)
        for index in plans.indices { plans[index].httpToken = token }
        let coordinator = try start(plans)
        wait(.ready, coordinator, "connecting", .connected, of: options.isConnected ? devices.count : 0)
        let server = measure(coordinator, "pushing")
        let tally = try join(coordinator, "draining")

        let template = HTTPRequestTemplate(credentials, token: token, batch: options.batch)
        var report = Report(
            title: "http: push/single/\(options.batch > 1 ? "batch/" : "")cid over \(options.connections) connections, "
                + "\(options.pipeline) outstanding on each, \(options.batch) messages in a body of "
                + "\(template.bodyByteCount) bytes, \(devices.count) \(options.isConnected ? "connected" : "absent") devices"
        )
        report.failures = tally.failures
        let seconds = max(Double(tally.phaseEndedAt - tally.phaseStartedAt) / 1e9, 1e-9)
        report.add("rate", Double(tally.measuredAccepted) / seconds, "messages accepted a second")
        report.add("requestRate", Double(tally.measuredAnswers) / seconds, "requests answered a second")
        if options.isConnected {
            addMessages(tally, to: &report)
        } else {
            report.add("accepted", Double(tally.accepted), "accepted in all")
            report.add("refused", Double(tally.refused), "refused")
            report.add("unanswered", Double(tally.published - tally.accepted - tally.refused), "without an answer")
        }
        report.add("failed", Double(tally.failedRequests), "requests whose connection ended")
        addServer(server, messages: tally.measuredAccepted, to: &report)
        report.add(latency: tally.answerLatency, as: "answer", "request to answer")
        report.add(latency: tally.deliverLatency, as: "deliver", "request to deliver")
        addGenerator(tally, server, to: &report, messages: tally.measuredAccepted)
        return (report, tally)
    }

    func handoff(_ devices: [DeviceIdentity]) throws -> (Report, WorkerTally) {
        let coordinator = try start(plans(.handoff, devices, senders: options.senders, admin: options.connections))
        wait(.ready, coordinator, "giving devices a token", .connected, of: devices.count)
        var creating = 0.0
        let createCPU = enqueue(devices.count * options.messages, coordinator, &creating)
        let begin = Clocks.now()
        coordinator.open(.second, at: begin)
        let cpu = CPUSpan(meter)
        let tally = try join(coordinator, "leasing and settling", .settled, of: coordinator.count(.accepted))
        let server = cpu.end()

        var report = Report(
            title:
                "handoff: \(options.messages) jobs for each of \(devices.count) devices, leased \(options.leaseCount) at "
                + "a time over \(options.connections) connections")
        report.failures = tally.failures
        let settling = Double(max(1, tally.drainEndedAt - begin)) / 1e9
        report.add(
            "rate", tally.settled == 0 ? 0 : Double(tally.settled) / settling, "jobs leased and settled a second")
        report.add("createRate", Double(tally.accepted) / max(creating, 1e-9), "jobs created a second")
        report.add("jobs", Double(tally.accepted), "jobs created")
        report.add("leased", Double(tally.jobs.count), "different jobs leased")
        report.add("settled", Double(tally.settled), "settlements recorded")
        report.add("stale", Double(tally.stale), "settlements answered otherwise")
        report.add("refused", Double(tally.refused), "messages refused")
        addBusy(tally, to: &report)
        report.add("unanswered", Double(tally.remainder.unanswered), "messages without a result")
        report.add("loss", Double(tally.accepted - tally.jobs.count), "lost: accepted and never leased")
        report.add("repeats", Double(tally.repeats), "leased again")
        if let createCPU, tally.accepted > 0 {
            report.add(
                "createServerCPU", Double(createCPU.used) / Double(tally.accepted), "gateway's CPU a job created")
        }
        addServer(server, messages: tally.settled, to: &report, what: "a job settled")
        report.add(latency: tally.leaseLatency, as: "lease", "lease to answer")
        report.add(latency: tally.settleLatency, as: "settle", "results to answer")
        addGenerator(tally, server, to: &report, messages: tally.settled)
        if tally.foreign > 0 {
            report.notes.append("\(tally.foreign) jobs of others or of earlier runs were settled too, as accepted.")
        }
        return (report, tally)
    }
}
