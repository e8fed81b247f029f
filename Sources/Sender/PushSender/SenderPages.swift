internal import APNs
internal import JSON
internal import Vendors

enum SenderPages {
    static func metrics(
        _ senders: SenderProgram.Senders, _ certificates: CertificateEnds, now: UInt64
    ) -> [UInt8] {
        var page = Page()
        page.addRegisters(senders)
        page.addMissing(senders, now)
        page.add(
            "hook_calls_repeated_total", .counter,
            "Repeated calls of the hook; their jobs are not sent again.",
            senders.intake.repeatedCalls)
        page.addApple(senders.apple, senders.channels, now)
        page.addVendors(senders.vendors, now)
        page.addLinks(senders.links)
        if let receipts = senders.receipts { page.addReceipts(receipts.intake.metrics, receipts.relay.figures) }
        page.add(
            "certificate_end_seconds", .gauge, "Unix time at which a certificate of a listener or a credential ends.",
            certificates.ends.flatMap { end in end.names.map { ($0, UInt64(max(0, end.time))) } }
                .sorted { $0.0 < $1.0 }.map { ([("certificate", $0.0)], $0.1) })
        page.add(
            "certificate_warning_seconds", .gauge,
            "certificateWarningDays: a certificate that ends sooner is warned of.",
            UInt64(max(0, certificates.warning)))
        return page.bytes
    }

    private struct Page {
        enum Kind: String { case counter, gauge, histogram }
        typealias Sample = ([(String, String)], UInt64)
        var bytes: [UInt8] = []

        mutating func add(_ name: String, _ kind: Kind, _ help: String, _ value: UInt64) {
            add(name, kind, help, [([], value)])
        }

        mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [Sample]) {
            head(name, kind, help)
            for (labels, value) in samples { line(name, labels, "\(value)") }
        }

        private mutating func head(_ name: String, _ kind: Kind, _ help: String) {
            bytes += "# HELP longwire_sender_\(name) \(help)\n# TYPE longwire_sender_\(name) \(kind.rawValue)\n".utf8
        }

        private mutating func line(_ name: String, _ labels: [(String, String)], _ value: String) {
            let text = labels.map { "\($0)=\"\(Self.escaped($1))\"" }.joined(separator: ",")
            bytes += "longwire_sender_\(name)\(text.isEmpty ? "" : "{\(text)}") \(value)\n".utf8
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

        /// The figures that every channel has.
        mutating func addRegisters(_ senders: SenderProgram.Senders) {
            var registers: [JobRegister] = []
            senders.forEach { registers.append($0.register) }
            func figure(_ value: (SenderMetrics) -> UInt64) -> [Sample] {
                registers.map { ([("channel", $0.channel.name)], value($0.metrics)) }
            }
            add("jobs_taken_total", .counter, "Handoff jobs taken.", figure { $0.jobsTaken })
            add(
                "jobs_unreadable_total", .counter, "Jobs with a field that cannot be read.",
                figure { $0.jobsUnreadable })
            add(
                "outcomes_total", .counter, "Jobs by outcome.",
                registers.flatMap { register in
                    JobOutcome.Kind.allCases.map { kind in
                        (
                            [("channel", register.channel.name), ("outcome", kind.rawValue)],
                            register.metrics.outcomes[kind] ?? 0
                        )
                    }
                })
            add("requests_total", .counter, "Requests to the vendor, repeats included.", figure { $0.requests })
            add(
                "answers_total", .counter, "The vendor's answers by reason; none for an accepted message.",
                registers.flatMap { register in
                    register.metrics.answers.sorted { $0.key < $1.key }.map {
                        ([("channel", register.channel.name), ("reason", $0.key)], $0.value)
                    }
                })
            add(
                "unknown_answers_total", .counter, "Undocumented answers of the vendor, which are retried.",
                figure { $0.unknownAnswers })
            add(
                "requests_unknown_total", .counter, "Requests without an answer: the vendor may have them.",
                figure { $0.unknown })
            add(
                "outcomes_repeated_total", .counter,
                "Jobs leased again although their outcome is known; not sent again.", figure { $0.repeatedOutcomes })
            add(
                "connections_failed_total", .counter, "Connections that ended without an answer.",
                figure { $0.connectionsFailed })
            let name = "request_delay_seconds"
            head(name, .histogram, "Time from a job's due time to its request.")
            for register in registers { addDelays(name, register) }
        }

        mutating func addMissing(_ senders: SenderProgram.Senders, _ now: UInt64) {
            var apps: [String: Set<String>] = [:]
            senders.forEach { sender in
                apps[sender.register.channel.name] = apps[sender.register.channel.name] ?? []
                for missing in sender.register.missing(now) { apps[missing.channel, default: []].insert(missing.app) }
            }
            add(
                "unserved_apps", .gauge, "Apps with jobs in the last ten minutes that no credential serves.",
                apps.sorted { $0.key < $1.key }.map { ([("channel", $0.key)], UInt64($0.value.count)) })
        }

        private mutating func addDelays(_ name: String, _ register: JobRegister) {
            let (metrics, channel) = (register.metrics, ("channel", register.channel.name))
            var sum: UInt64 = 0
            for (index, count) in metrics.delays.enumerated() {
                sum += count
                let isLast = index == SenderMetrics.delayBounds.count
                let bound = isLast ? "+Inf" : "\(Double(SenderMetrics.delayBounds[index]) / 1_000)"
                line(name + "_bucket", [channel, ("le", bound)], "\(sum)")
            }
            line(name + "_sum", [channel], "\(Double(metrics.delaySum) / 1_000)")
            line(name + "_count", [channel], "\(sum)")
        }

        mutating func addApple(_ sender: AppleSender, _ channels: ChannelCalls, _ now: UInt64) {
            let metrics = sender.metrics
            add(
                "requests_repeated_total", .counter,
                "Requests to Apple sent again with the same ids after one without an answer.", metrics.repeated)
            add(
                "requests_refused_total", .counter, "Requests that Apple did not process, sent again.", metrics.refused)
            add("connections_opened_total", .counter, "Connections to Apple begun.", metrics.connectionsOpened)
            add("goodbyes_total", .counter, "Connections on which Apple sent GOAWAY.", metrics.goodbyes)
            let lanes = sender.allLanes
            func gauge(_ value: (Lane) -> Int) -> [Sample] {
                lanes.map {
                    (
                        [("credential", $0.credential.name), ("environment", $0.environment.rawValue)],
                        UInt64(max(0, value($0)))
                    )
                }
            }
            add("connections", .gauge, "Open connections to Apple.", gauge { $0.openCount })
            add("streams", .gauge, "Requests to Apple under way.", gauge { $0.streamCount })
            add("waiting", .gauge, "Jobs that wait for a connection to Apple.", gauge { $0.waitingCount })
            add(
                "resting", .gauge, "1 while a refused credential of Apple is paused.",
                gauge { $0.isResting(now) ? 1 : 0 })
            add(
                "failing", .gauge, "1 while Apple cannot be reached or does not answer.",
                gauge { $0.failsSince == nil ? 0 : 1 })
            add(
                "channel_requests_total", .counter, "Requests about channels, by call and result.",
                ChannelMetrics.calls.flatMap { call in
                    ChannelMetrics.Result.allCases.map { result in
                        ([("call", call), ("result", result.rawValue)], channels.metrics.results[call]?[result] ?? 0)
                    }
                })
            add(
                "channel_refusals_total", .counter, "Requests about channels that were refused, by reason.",
                channels.metrics.refusals.sorted { $0.key < $1.key }.map { ([("reason", $0.key)], $0.value) })
            add(
                "channel_requests_waiting", .gauge, "Requests about channels that wait or are under way.",
                UInt64(max(0, channels.callCount)))
        }

        mutating func addVendors(_ senders: [VendorSender], _ now: UInt64) {
            let lanes = senders.flatMap(\.allLanes)
            func gauge(_ lanes: [VendorLane], _ value: (VendorLane) -> UInt64) -> [Sample] {
                lanes.map { ($0.labels, value($0)) }
            }
            add("vendor_requests", .gauge, "Requests to a vendor under way.", gauge(lanes) { UInt64($0.underWayCount) })
            add(
                "vendor_waiting", .gauge, "Jobs that wait in a vendor's lane.",
                gauge(lanes) { UInt64($0.waitingCount) })
            add(
                "vendor_lane_state", .gauge, "1 for the current state of a vendor's lane.",
                lanes.flatMap { lane in
                    let current = lane.state(now)
                    return VendorLane.State.allCases.map { state in
                        (lane.labels + [("state", state.rawValue)], UInt64(state == current ? 1 : 0))
                    }
                })
            add(
                "vendor_rate", .gauge, "The bound of requests per second, reduced after the vendor's complaints.",
                gauge(lanes) { UInt64($0.pace.rate) })
            add(
                "vendor_accepted_age_seconds", .gauge, "Time since the vendor last accepted a message.",
                gauge(lanes.filter { $0.acceptedAt != nil }) { (now - min(now, $0.acceptedAt ?? now)) / 1_000 })
            add(
                "token_requests_total", .counter, "Requests for access tokens.",
                senders.map { ([("channel", $0.vendor.rawValue)], $0.metrics.tokenRequests) })
            add(
                "token_failures_total", .counter, "Requests for access tokens that failed.",
                senders.map { ([("channel", $0.vendor.rawValue)], $0.metrics.tokenFailures) })
        }

        mutating func addReceipts(_ metrics: ReceiptIntake.Metrics, _ figures: ReceiptRelay.Figures) {
            add(
                "receipts_total", .counter, "Receipts of vendors that were taken.",
                Vendor.allCases.compactMap { vendor in
                    metrics.taken[vendor].map { ([("channel", vendor.rawValue)], $0) }
                })
            add(
                "receipt_calls_refused_total", .counter, "Calls with receipts that were refused, by reason.",
                metrics.refused.sorted { $0.key < $1.key }.map { ([("reason", $0.key)], $0.value) })
            add("receipts_waiting", .gauge, "Receipts that wait for the gateway.", UInt64(figures.waiting))
            add("receipts_passed_total", .counter, "Receipts that the gateway took.", figures.passedOn)
            add(
                "receipt_failures_total", .counter, "Calls with receipts that the gateway did not take.",
                figures.failures)
            add("receipts_dropped_total", .counter, "Receipts that the gateway never took.", figures.dropped)
        }

        mutating func addLinks(_ links: [(channel: Channel, link: GatewayLink)]) {
            let all = links.map { (channel: $0.channel.name, figures: $0.link.figures) }
            func figure(_ value: (GatewayLink.Figures) -> UInt64) -> [Sample] {
                all.map { ([("channel", $0.channel)], value($0.figures)) }
            }
            add(
                "jobs_held", .gauge, "Jobs in the sender, unreported results included.",
                figure { UInt64(max(0, $0.held)) })
            add("results_waiting", .gauge, "Results that wait for the gateway.", figure { UInt64($0.waiting) })
            add("leases_total", .counter, "Answers of the gateway to leases.", figure { $0.leases })
            add("lease_failures_total", .counter, "Leases that failed.", figure { $0.leaseFailures })
            add("reports_total", .counter, "Results that the gateway accepted, in batches.", figure { $0.reports })
            add("report_failures_total", .counter, "Reports that failed.", figure { $0.reportFailures })
            add(
                "outcomes_dropped_total", .counter, "Results that the gateway never accepted.",
                figure { $0.outcomesDropped })
            add(
                "verdicts_total", .counter, "Late results, by the gateway's verdict.",
                all.flatMap { channel, figures in
                    figures.verdicts.sorted { $0.key < $1.key }.map {
                        ([("channel", channel), ("verdict", $0.key)], $0.value)
                    }
                })
        }
    }

    /// The duration of a failure, in milliseconds, from which the sender counts as unready.
    ///
    /// A shorter failure may end with the next connection.
    private static let failingMilliseconds: UInt64 = 10_000

    /// Returns whether the sender is ready, and the reasons if not.
    ///
    /// A sender is ready if the gateway is reachable and at least one channel can send. A lane has a problem while it backs off,
    /// or after ten seconds of failures. Apple's channel can send if no lane has a problem. Another channel can send if at least
    /// one lane has no problem, or no lane exists yet.
    static func readiness(
        _ senders: SenderProgram.Senders, leases: Bool, now: UInt64
    ) -> (isReady: Bool, text: String) {
        if senders.apple.isStopping { return (false, "the sender stops") }
        // All links have the same gateway.
        let gatewayProblems = leases ? Array(Set(senders.links.compactMap { $0.link.figures.problem })).sorted() : []
        func problems(_ name: String, rest: String?, failsSince: UInt64?, _ failure: String) -> [String] {
            var found: [String] = []
            if let rest { found.append("\(name) rests: \(rest)") }
            if let since = failsSince, now >= since + failingMilliseconds {
                found.append("\(name) fails for \((now - since) / 1_000) s: \(failure)")
            }
            return found
        }
        let apple = senders.apple.allLanes.flatMap { lane in
            problems(
                lane.name, rest: lane.isResting(now) ? lane.restReason : nil, failsSince: lane.failsSince, lane.failure)
        }
        let isApple = senders.links.contains { $0.channel == .apns }
        var (canSend, laneProblems) = (isApple && apple.isEmpty, apple)
        for sender in senders.vendors {
            let lanes = sender.allLanes.map { lane in
                problems(
                    lane.name, rest: lane.isResting(now) ? lane.restReason : nil, failsSince: lane.failsSince,
                    lane.failure)
            }
            canSend = canSend || lanes.isEmpty || lanes.contains(where: \.isEmpty)
            laneProblems += lanes.flatMap { $0 }
        }
        let missing = Self.missing(senders, now).map(\.description)
        // The sender serves its other apps, so it stays ready.
        if gatewayProblems.isEmpty, canSend { return (true, (["ready"] + missing).joined(separator: "\n")) }
        return (false, (gatewayProblems + laneProblems + missing).joined(separator: "\n"))
    }

    private static func missing(_ senders: SenderProgram.Senders, _ now: UInt64) -> [MissingCredential] {
        var all: [MissingCredential] = []
        senders.forEach { all += $0.register.missing(now) }
        return all
    }

    /// Returns all lanes with their states, and the apps that no credential serves, as JSON.
    static func status(_ senders: SenderProgram.Senders, now: UInt64) -> [UInt8] {
        let apple: [JSONObject] = senders.apple.allLanes.map { lane in
            let state = lane.isResting(now) ? "refused" : lane.failsSince == nil ? "ready" : "failing"
            return [
                "channel": "apns", "credential": lane.credential.name, "environment": lane.environment.rawValue,
                "state": state, "reason": reason(state, lane.restReason, lane.failure), "waiting": lane.waitingCount,
                "requests": lane.streamCount, "connections": lane.openCount,
            ]
        }
        let vendors: [JSONObject] = senders.vendors.flatMap(\.allLanes).map { lane in
            let state = lane.state(now).rawValue
            return [
                "channel": lane.account.vendor.rawValue, "credential": lane.account.name,
                "service": lane.scope.unlessEmpty, "state": state,
                "reason": reason(state, lane.restReason, lane.failure), "waiting": lane.waitingCount,
                "requests": lane.underWayCount, "requestsPerSecond": Int(lane.pace.rate),
                "secondsSinceAccepted": lane.acceptedAt.map { Int((now - min(now, $0)) / 1_000) },
            ]
        }
        let unserved: [JSONObject] = missing(senders, now).map { missing in
            [
                "channel": missing.channel, "app": missing.app, "text": missing.description,
                "secondsSinceJob": Int((now - min(now, missing.lastAt)) / 1_000),
            ]
        }
        return (["lanes": apple + vendors, "unserved": unserved] as JSONObject).bytes
    }

    private static func reason(_ state: String, _ rest: String, _ failure: String) -> String? {
        switch state {
        case "refused", "quota": rest
        case "failing": failure
        default: nil
        }
    }
}

extension VendorLane {
    /// The labels of the lane's metrics; `service` is the origin of a push service of Web Push.
    fileprivate var labels: [(String, String)] {
        [("channel", account.vendor.rawValue), ("credential", account.name)]
            + (scope.isEmpty ? [] : [("service", scope)])
    }
}
