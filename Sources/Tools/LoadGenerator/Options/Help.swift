internal import TextForms

enum Help {
    static var text: String {
        var lines = [
            "Usage: longwire bench MODE [OPTIONS]",
            "",
            "Loads a running gateway and reports what it did. Everything is bounded in time. The table goes to standard",
            "output, progress and errors to standard error; there is no progress bar when that is no terminal.",
            "",
            "Modes",
        ]
        for mode in Mode.allCases { lines += HelpText.entry(mode.rawValue, mode.summary, column: 14) }
        lines += ["", "The gateway and its app"] + BenchOptions.gateway.flatMap(\.lines)
        lines += ["", "The load"]
        for (option, modes) in BenchOptions.load {
            lines += option.adding(" [\(modes.map(\.rawValue).joined(separator: ", "))]").lines
        }
        lines += ["", "The run"] + (BenchOptions.run + [.help]).flatMap(\.lines)
        lines += [
            "",
            "Meaning of the figures",
            "  Latencies count from the moment a message was due to be sent, so a generator that is held up makes them",
            "  worse, not better. With --rate, messages fall due together in ticks of 250 µs. Loss counts accepted",
            "  messages that never came; repeats count those that came again. CPU is user and system time together,",
            "  divided by accepted messages. The gateway's process is found by its data folder's lock or by its port",
            "  when it runs on this machine; elsewhere its CPU and memory are not measured.",
            "  generatorBusy is the busiest generator thread's share of a core, sendLag how late paced messages were",
            "  encoded. The report's bottleneck is generator, machine (all cores of it in use), server, or none (a paced",
            "  run that kept its pace); the first two come with a note, because such figures are not the gateway's.",
            "",
            "Devices",
            "  Registering is a durable write, so devices are kept in a file (mode 0600: it holds their secrets) and used",
            "  again by later runs. The gateway removes devices that do not reconnect within a day; those are registered",
            "  again. One thread holds at most as many connections as the hard limit of open files, less a few; more are",
            "  shared out to several threads, each with a separate table of files. To a loopback address, connections",
            "  come from many addresses of 127.0.0.0/8, a thousand from each. handoff gives its devices a vendor token,",
            "  makes jobs with strategy 2 for them and settles all jobs it is given as accepted: never run it where real",
            "  jobs wait.",
            "",
            "Conditions for --require",
            "  METRIC<VALUE with <, <=, >, >= or =; units ns, us, ms, s, min, B, KiB, MiB, GiB, %, k, M; /s for rates.",
            "  A bare p50, p90, p99, p99.9 or max is the mode's main latency, the one in brackets. The names are also the",
            "  keys under metrics of the JSON report, where times are in nanoseconds and sizes in bytes.",
        ]
        for mode in Mode.allCases {
            let main = mode.primaryLatency.isEmpty ? "" : " (\(mode.primaryLatency))"
            let names = "\(mode.rawValue)\(main): " + mode.metricNames.joined(separator: " ")
            lines += HelpText.wrap(names).enumerated().map { ($0 == 0 ? "  " : "      ") + $1 }
        }
        lines += [
            "",
            "Exit codes: 0 done; 1 a condition does not hold; 64 usage; 69 gateway not reachable; 70 internal.",
            "",
            "Examples",
            "  longwire bench idle --connections 15000 --hold 20 --require 'rssPerConnection<=450B'",
            "  longwire bench live --devices 10000 --in-flight 2000 --require 'rate>=50k/s' --require 'loss=0'",
            "  longwire bench live --devices 10000 --rate 20000 --require 'p99<10ms'",
            "  longwire bench offline --devices 10000 --messages 20 --json report.json",
            "  longwire bench storm --devices 19000 --messages 5 --handshakes 1000 --require 'drainedSeconds<15s'",
            "  longwire bench broadcast --devices 15000 --registered 1000000 --require 'answer.p99<50ms'",
            "  longwire bench handoff --devices 1000 --messages 100 --connections 8 --in-flight 2000",
            "  longwire bench http --connections 32 --devices 1000 --connected --batch 20",
        ]
        return lines.joined(separator: "\n") + "\n"
    }
}
