internal import APNs

enum SenderPages {
    static func metrics(
        _ sender: Sender, _ channels: ChannelCalls, _ link: GatewayLink.Figures, _ certificates: CertificateEnds,
        now: UInt64
    ) -> [UInt8] {
        var page = Page()
        let metrics = sender.metrics
        page.add("jobs_taken_total", .counter, "Handoff jobs taken.", metrics.jobsTaken)
        page.add("jobs_unreadable_total", .counter, "Jobs with a field that cannot be read.", metrics.jobsUnreadable)
        page.add("jobs_held", .gauge, "Jobs in the sender, unreported results included.", UInt64(max(0, link.held)))
        page.add("results_waiting", .gauge, "Results that wait for the gateway.", UInt64(link.waiting))
        page.add(
            "outcomes_total", .counter, "Jobs by outcome.",
            JobOutcome.Kind.allCases.map { ([("outcome", $0.rawValue)], metrics.outcomes[$0] ?? 0) })
        page.add("requests_total", .counter, "Requests to Apple, repeats included.", metrics.requests)
        page.add(
            "answers_total", .counter, "Apple's answers by reason; none for 200.",
            metrics.answers.sorted { $0.key < $1.key }.map { ([("reason", $0.key)], $0.value) })
        page.add(
            "requests_unknown_total", .counter, "Requests without an answer: Apple may have them.", metrics.unknown)
        page.add(
            "requests_repeated_total", .counter, "Requests sent again with the same ids after one without an answer.",
            metrics.repeated)
        page.add(
            "requests_refused_total", .counter, "Requests that Apple did not process, sent again.", metrics.refused)
        page.add(
            "outcomes_repeated_total", .counter, "Jobs leased again although their outcome is known; not sent again.",
            metrics.repeatedOutcomes)
        page.add(
            "hook_calls_repeated_total", .counter,
            "Repeated calls of the hook; their jobs are not sent again.",
            metrics.repeatedCalls)
        page.add("connections_opened_total", .counter, "Connections begun.", metrics.connectionsOpened)
        page.add(
            "connections_failed_total", .counter, "Connections that ended without an answer.",
            metrics.connectionsFailed)
        page.add("goodbyes_total", .counter, "Connections on which Apple sent GOAWAY.", metrics.goodbyes)
        let lanes = sender.allLanes
        func gauge(_ value: (Lane) -> Int) -> [([(String, String)], UInt64)] {
            lanes.map {
                (
                    [("credential", $0.credential.name), ("environment", $0.environment.rawValue)],
                    UInt64(max(0, value($0)))
                )
            }
        }
        page.add("connections", .gauge, "Open connections.", gauge { $0.openCount })
        page.add("streams", .gauge, "Requests under way.", gauge { $0.streamCount })
        page.add("waiting", .gauge, "Jobs that wait for a connection.", gauge { $0.waitingCount })
        page.add("resting", .gauge, "1 while a refused credential is paused.", gauge { $0.isResting(now) ? 1 : 0 })
        page.add(
            "failing", .gauge, "1 while Apple cannot be reached or does not answer.",
            gauge { $0.failsSince == nil ? 0 : 1 })
        page.add(
            "channel_requests_total", .counter, "Requests about channels, by call and result.",
            ChannelMetrics.calls.flatMap { call in
                ChannelMetrics.Result.allCases.map { result in
                    ([("call", call), ("result", result.rawValue)], channels.metrics.results[call]?[result] ?? 0)
                }
            })
        page.add(
            "channel_refusals_total", .counter, "Requests about channels that were refused, by reason.",
            channels.metrics.refusals.sorted { $0.key < $1.key }.map { ([("reason", $0.key)], $0.value) })
        page.add(
            "channel_requests_waiting", .gauge, "Requests about channels that wait or are under way.",
            UInt64(max(0, channels.callCount)))
        page.add("leases_total", .counter, "Answers of the gateway to leases.", link.leases)
        page.add("lease_failures_total", .counter, "Leases that failed.", link.leaseFailures)
        page.add("reports_total", .counter, "Results that the gateway accepted, in batches.", link.reports)
        page.add("report_failures_total", .counter, "Reports that failed.", link.reportFailures)
        page.add("outcomes_dropped_total", .counter, "Results that the gateway never accepted.", link.outcomesDropped)
        page.add(
            "verdicts_total", .counter, "Late results, by the gateway's verdict.",
            link.verdicts.sorted { $0.key < $1.key }.map { ([("verdict", $0.key)], $0.value) })
        page.add(
            "certificate_end_seconds", .gauge, "Unix time at which a certificate of a listener or a credential ends.",
            certificates.ends.flatMap { end in end.names.map { ($0, UInt64(max(0, end.time))) } }
                .sorted { $0.0 < $1.0 }.map { ([("certificate", $0.0)], $0.1) })
        page.add(
            "certificate_warning_seconds", .gauge,
            "certificateWarningDays: a certificate that ends sooner is warned of.",
            UInt64(max(0, certificates.warning)))
        page.addDelays(metrics)
        return page.bytes
    }

    private struct Page {
        enum Kind: String { case counter, gauge, histogram }
        var bytes: [UInt8] = []

        mutating func add(_ name: String, _ kind: Kind, _ help: String, _ value: UInt64) {
            add(name, kind, help, [([], value)])
        }

        mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [([(String, String)], UInt64)]) {
            head(name, kind, help)
            for (labels, value) in samples { line(name, labels, "\(value)") }
        }

        private mutating func head(_ name: String, _ kind: Kind, _ help: String) {
            bytes += "# HELP longwire_apns_\(name) \(help)\n# TYPE longwire_apns_\(name) \(kind.rawValue)\n".utf8
        }

        private mutating func line(_ name: String, _ labels: [(String, String)], _ value: String) {
            let text = labels.map { "\($0)=\"\(Self.escaped($1))\"" }.joined(separator: ",")
            bytes += "longwire_apns_\(name)\(text.isEmpty ? "" : "{\(text)}") \(value)\n".utf8
        }

        private static func escaped(_ value: String) -> String {
            var text = ""
            for scalar in value.unicodeScalars {
                switch scalar {
                case "\\", "\"": text += "\\" + String(scalar)
                case "\n": text += "\\n"
                default: text.unicodeScalars.append(scalar)
                }
            }
            return text
        }

        mutating func addDelays(_ metrics: SenderMetrics) {
            let name = "request_delay_seconds"
            head(name, .histogram, "Time from a job's due time to its request.")
            var sum: UInt64 = 0
            for (index, count) in metrics.delays.enumerated() {
                sum += count
                let isLast = index == SenderMetrics.delayBounds.count
                let bound = isLast ? "+Inf" : "\(Double(SenderMetrics.delayBounds[index]) / 1_000)"
                line(name + "_bucket", [("le", bound)], "\(sum)")
            }
            line(name + "_sum", [], "\(Double(metrics.delaySum) / 1_000)")
            line(name + "_count", [], "\(sum)")
        }
    }

    /// A shorter failure does not make the sender unready: the next connection may succeed.
    private static let failingMilliseconds: UInt64 = 10_000

    /// Returns whether the sender is ready, and the reasons if not.
    static func readiness(
        _ sender: Sender, _ link: GatewayLink.Figures, leases: Bool, now: UInt64
    ) -> (isReady: Bool, text: String) {
        if sender.isStopping { return (false, "the sender stops") }
        var problems: [String] = []
        if leases, let problem = link.problem { problems.append(problem) }
        for lane in sender.allLanes {
            if lane.isResting(now) { problems.append("\(lane.name) rests: \(lane.restReason)") }
            if let since = lane.failsSince, now >= since + failingMilliseconds {
                problems.append("\(lane.name) fails for \((now - since) / 1_000) s: \(lane.failure)")
            }
        }
        return (problems.isEmpty, problems.isEmpty ? "ready" : problems.joined(separator: "\n"))
    }
}
