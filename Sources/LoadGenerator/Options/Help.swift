/// The text of `longwire bench --help`, made of the option table.
enum Help {
    static var text: String {
        var lines = [
            "Usage: longwire bench MODE [OPTIONS]",
            "",
            "Loads a running gateway and reports what it did. Everything is bounded in time. The table (or --json)",
            "goes to standard output, progress to standard error.",
            "",
            "Modes",
        ]
        for mode in Mode.allCases { lines.append(row(mode.rawValue, mode.summary, 10)) }
        lines += ["", "The gateway and its app"] + BenchOption.gateway.map(row)
        lines += ["", "The load"] + BenchOption.load.map(row)
        lines += ["", "The run"] + BenchOption.run.map(row)
        lines += [
            "",
            "What the figures mean",
            "  Latencies count from the moment a message was due to be sent, so a generator that is held up makes them",
            "  worse, not better. With --rate, messages fall due together in ticks of 250 µs. Loss counts accepted",
            "  messages that never came; repeats count those that came again. CPU is user and system time together,",
            "  divided by accepted messages; the gateway's needs --pid, and it must run on this machine.",
            "  generatorBusy is the busiest generator thread's share of a core: from 90 % on, the generator is what was",
            "  measured, and the report says so.",
            "",
            "Devices",
            "  Registering is a durable write, so devices are kept in a file (mode 0600: it holds their secrets) and used",
            "  again by later runs. The gateway forgets devices that never came back within a day; those are registered",
            "  anew. One process holds at most as many connections as its hard limit of open files allows, less a few;",
            "  beyond that raise the limit (LimitNOFILE, ulimit -Hn) or run several processes with files of their own.",
            "  To a loopback address, connections come from many addresses of 127.0.0.0/8.",
            "",
            "Conditions for --require",
            "  METRIC<VALUE with <, <=, >, >= or =; units ns, us, ms, s, B, KiB, MiB, %, k, M. A bare p50, p90, p99, p99.9",
            "  or max is the mode's main latency.",
        ]
        for mode in Mode.allCases {
            lines += wrapped("\(mode.rawValue): " + mode.metricNames.joined(separator: " "))
        }
        lines += [
            "",
            "Exit codes: 0 done; 1 a condition does not hold; 64 usage; 69 gateway not reachable; 70 internal.",
            "",
            "Examples",
            "  longwire bench idle --connections 15000 --hold 20 --pid $(pidof longwired)",
            "  longwire bench live --devices 10000 --in-flight 2000 --require 'rate>=50000' --require 'loss=0'",
            "  longwire bench live --devices 10000 --rate 20000 --require 'p99<10ms'",
            "  longwire bench http --connections 32 --devices 1000 --connected",
            "  longwire bench offline --devices 10000 --messages 20 --json",
        ]
        return lines.joined(separator: "\n") + "\n"
    }

    private static func row(_ option: BenchOption) -> String {
        let left = option.placeholder.map { "\(option.name) \($0)" } ?? option.name
        let modes = option.modes.map { " [\($0.map(\.rawValue).joined(separator: ", "))]" } ?? ""
        return row(left, option.help + modes, 28)
    }

    private static func row(_ left: String, _ right: String, _ width: Int) -> String {
        "  \(left)\(String(repeating: " ", count: max(1, width - left.count)))\(right)"
    }

    private static func wrapped(_ text: String) -> [String] {
        var lines: [String] = []
        var line = " "
        for word in text.split(separator: " ") {
            if line.count + word.count > 110 {
                lines.append(line)
                line = "     "
            }
            line += " \(word)"
        }
        return lines + [line]
    }
}
