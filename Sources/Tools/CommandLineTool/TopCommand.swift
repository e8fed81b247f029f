internal import Foundation
internal import TextForms

enum TopCommand {
    static let syntax = CommandSyntax(
        name: "top", summary: "Shows a gateway live: connections, rates, queues, jobs, memory.",
        options: [
            .value("interval", "TIME", "Time between two samples, 500ms to 1h. Default: 2s."),
            .value("count", "N", "End after N samples. Default: until Ctrl-C."),
        ] + Display.options + AdminClient.options,
        notes: ["The figures come from /metrics. In a pipe each sample is a line of JSON."]
    ) { arguments, context in
        let interval = try arguments.duration("interval", in: 500...3_600_000) ?? 2_000
        let count = try arguments.number("count", in: 1...1_000_000_000) ?? .max
        let client = try AdminClient(Credentials(arguments, context))
        let display = Display(arguments, context)
        var before: Look?
        for number in 1...count {
            let look = Look(MetricsText(try client.send(.get, "/metrics").text))
            context.write(display.isJSON ? look.json(since: before) : look.screen(since: before, display, context))
            before = look
            if number < count { usleep(useconds_t(interval * 1_000)) }
        }
        return .done
    }

    struct Look {
        let metrics: MetricsText
        let at = DispatchTime.now().uptimeNanoseconds

        init(_ metrics: MetricsText) { self.metrics = metrics }

        /// Gauges, shown unchanged.
        static let levels: [(String, String)] = [
            ("connections", "longwire_connections"), ("connected devices", "longwire_sessions"),
            ("reachable devices", "longwire_devices_reachable"), ("pending messages", "longwire_messages_pending"),
            ("jobs due", "longwire_handoff_jobs_due"), ("jobs held", "longwire_handoff_jobs_held"),
            ("jobs leased", "longwire_handoff_jobs_under_lease"), ("journal bytes", "longwire_store_journal_bytes"),
            ("takes writes", "longwire_store_accepts_writes"), ("resident bytes", "process_resident_memory_bytes"),
        ]
        /// Counters, shown as rates per second.
        static let rates: [(String, String)] = [
            ("accepted", "longwire_messages_accepted_total"), ("delivered frames", "longwire_delivers_sent_total"),
            ("ended", "longwire_messages_ended_total"), ("refused", "longwire_publishes_refused_total"),
            ("HTTP requests", "longwire_http_requests_total"), ("jobs leased", "longwire_handoff_jobs_leased_total"),
            ("commits", "longwire_store_commits_total"), ("bytes sent", "longwire_sent_bytes_total"),
        ]

        private func known(_ names: [(String, String)]) -> [(String, String)] {
            let present = Set(metrics.samples.map(\.name))
            return names.filter { present.contains($0.1) }
        }

        private func rate(_ name: String, since before: Look) -> Double {
            let seconds = Double(at &- before.at) / 1e9
            return seconds > 0 ? max(0, metrics.sum(name) - before.metrics.sum(name)) / seconds : 0
        }

        func json(since before: Look?) -> String {
            var members = known(Self.levels).map { label, name in
                (label, JSONText.verbatim(MetricsText.number(metrics.sum(name))))
            }
            if let before {
                let rates = known(Self.rates).map { label, name in
                    (label, JSONText.verbatim(MetricsText.number((rate(name, since: before) * 10).rounded() / 10)))
                }
                members.append(("perSecond", .members(rates)))
            }
            return JSONText.members(members).text
        }

        func screen(since before: Look?, _ display: Display, _ context: CommandContext) -> String {
            var lines = [(context.isTerminal ? Display.clearScreen : "") + display.paint("longwire top", .strong)]
            lines += display.table(
                [["now", ""]] + known(Self.levels).map { [$0.0, MetricsText.number(metrics.sum($0.1))] })
            if let before {
                let rows = known(Self.rates).map { [$0.0, String(format: "%.1f", rate($0.1, since: before))] }
                lines += [""] + display.table([["a second", ""]] + rows)
            }
            let ended = metrics.values("longwire_messages_ended_total", by: "state").filter { $0.1 > 0 }
            if !ended.isEmpty {
                lines += [""] + display.table([["ended so far", ""]] + ended.map { [$0.0, MetricsText.number($0.1)] })
            }
            return lines.joined(separator: "\n")
        }
    }
}
