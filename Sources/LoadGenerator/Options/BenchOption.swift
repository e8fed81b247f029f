/// One option of the command line; `--help` is made of the same table that parsing uses, so neither can forget one.
struct BenchOption {
    var name: String
    /// `nil` for a switch.
    var placeholder: String?
    var help: String
    /// `nil`: every mode.
    var modes: [Mode]?
    var apply: (inout BenchOptions, String) throws(UsageError) -> Void

    static func named(_ name: String) -> BenchOption? { all.first { $0.name == name } }

    static var all: [BenchOption] { gateway + load + run }

    static var gateway: [BenchOption] {
        [
            text(
                "--data", "DIR", "the gateway's data folder, whose demo.json has the rest (longwire-data)", \.dataFolder
            ),
            optional("--device-address", "HOST:PORT", "the listener for devices (127.0.0.1:7000)", \.deviceAddress),
            optional(
                "--senders-address", "ADDRESS", "the listener for senders, tls://HOST:PORT with TLS (127.0.0.1:7001)",
                \.sendersAddress),
            optional(
                "--http-address", "ADDRESS", "the push API, https://HOST:PORT with TLS (127.0.0.1:7080)", \.httpAddress),
            optional(
                "--admin-address", "ADDRESS", "the admin listener, https://HOST:PORT with TLS (127.0.0.1:7081)",
                \.adminAddress),
            toggle("--tls", "devices connect with TLS; the port is that of device.tls.listen", \.isSecure),
            optional("--ca", "FILE", "PEM certificates to trust instead of the system's", \.authoritiesFile),
            optional("--cert", "FILE", "PEM certificate to show to a listener that asks for one", \.certificateFile),
            optional("--key", "FILE", "the certificate's PEM key (in the file of --cert)", \.keyFile),
            optional("--app-id", "ID", "the app", \.appID),
            optional("--app-key", "KEY", "its key; the modes http and broadcast need it", \.appKey),
            optional("--app-secret", "SECRET", "its secret for registering devices", \.appSecret),
            optional("--master-secret", "SECRET", "its secret for publishing", \.masterSecret),
            optional(
                "--admin-token", "TOKEN", "a credential that may handoff; better in LONGWIRE_ADMIN_TOKEN",
                \.adminToken),
            optional(
                "--devices-file", "FILE", "registered devices, kept for later runs (DIR/bench-devices)", \.devicesFile),
            BenchOption(
                name: "--server-pid", placeholder: "PID",
                help: "the gateway's process, for its CPU and memory (on this machine: found)"
            ) { options, value throws(UsageError) in
                options.processID = Int32(try whole("--server-pid", value, 1...Int(Int32.max)))
            },
        ]
    }

    static var load: [BenchOption] {
        [
            BenchOption(
                name: "--connections", placeholder: "N", help: "how many connections (idle 1,000; http 32; handoff 8)",
                modes: [.idle, .http, .handoff]
            ) { options, value throws(UsageError) in
                options.connectionWish = try whole("--connections", value, 1...1_000_000)
            },
            seconds("--hold", "how long to hold them (10)", \.hold, [.idle]),
            number("--heartbeat", "S", "the heartbeat to ask for, in seconds (300)", 30...1_800, \.heartbeat, [.idle]),
            number(
                "--devices", "N", "how many devices (1,000)", 1...1_000_000, \.devices,
                [.live, .offline, .storm, .broadcast, .handoff, .http]),
            toggle(
                "--websocket", "devices speak through a WebSocket", \.isWebSocket,
                [.idle, .live, .offline, .storm, .broadcast, .http]),
            BenchOption(
                name: "--registered", placeholder: "N",
                help: "registered devices in all, absent ones among them (--devices)",
                modes: [.broadcast]
            ) { options, value throws(UsageError) in
                options.registeredWish = try whole("--registered", value, 1...1_000_000)
            },
            seconds("--duration", "how long to measure (10)", \.duration, [.live, .http]),
            seconds("--warmup", "how long to run before measuring (2)", \.warmup, [.live, .http]),
            number(
                "--payload", "BYTES", "payload of a message, 8 to 16,384 (256)",
                Limits.smallestPayloadByteCount...Limits.payloadByteCount, \.payloadByteCount,
                [.live, .offline, .storm, .broadcast, .handoff]),
            number(
                "--in-flight", "K", "messages not yet finished at any time (1,000)", 1...Limits.outstandingCount,
                \.inFlight,
                [.live, .offline, .storm, .handoff]),
            BenchOption(
                name: "--rate", placeholder: "R", help: "messages a second at a fixed pace, instead of --in-flight",
                modes: [.live]
            ) { options, value throws(UsageError) in
                options.rate = try decimal("--rate", value, 1...10_000_000)
            },
            number(
                "--senders", "C", "connections on the senders' listener, 1 to 4 (2)", 1...4, \.senders,
                [.live, .offline, .storm, .handoff]),
            BenchOption(
                name: "--drain", placeholder: "S",
                help: "longest wait for what is under way (10; some modes 60)",
                modes: [.live, .offline, .storm, .broadcast, .handoff, .http]
            ) { options, value throws(UsageError) in
                options.drainWish = try decimal("--drain", value, 0...Limits.longestSeconds)
            },
            number(
                "--pipeline", "P", "requests outstanding on a connection (1)", 1...Limits.pipelineDepth, \.pipeline,
                [.http]),
            toggle(
                "--connected", "hold the devices connected, acking; without it they are absent", \.isConnected, [.http]),
            number(
                "--batch", "N", "messages in a request; above 1: push/single/batch/cid (1)", 1...200, \.batch, [.http]),
            BenchOption(
                name: "--messages", placeholder: "M",
                help: "messages for each, or broadcasts (offline, handoff 20; else 5)",
                modes: [.offline, .storm, .broadcast, .handoff]
            ) { options, value throws(UsageError) in
                options.messageWish = try whole("--messages", value, 0...1_000)
            },
            number("--lease", "N", "jobs asked for in one lease (500)", 1...500, \.leaseCount, [.handoff]),
        ]
    }

    static var run: [BenchOption] {
        [
            BenchOption(
                name: "--threads", placeholder: "T",
                help: "threads of the generator (1, or as many as the limit of open files asks for)"
            ) { options, value throws(UsageError) in
                options.threadWish = try whole("--threads", value, 1...Limits.threadCount)
            },
            BenchOption(
                name: "--handshakes", placeholder: "H",
                help: "connections being opened at any time (256; storm 1,000)"
            ) { options, value throws(UsageError) in
                options.handshakeWish = try whole("--handshakes", value, 1...20_000)
            },
            seconds("--timeout", "longest time for connecting all, and for enqueueing (120)", \.timeout),
            BenchOption(
                name: "--require", placeholder: "CONDITION",
                help: "e.g. 'p99<10ms', 'loss=0', 'rate>=50000'; may be repeated; exit code 1 if one does not hold"
            ) { _, _ in },
            optional(
                "--json", "FILE", "write the report as one JSON object; - prints it instead of the table", \.jsonFile),
            toggle("--quiet", "no progress line", \.isQuiet),
        ]
    }

    private static func text(
        _ name: String, _ placeholder: String, _ help: String, _ path: WritableKeyPath<BenchOptions, String>
    ) -> BenchOption {
        BenchOption(name: name, placeholder: placeholder, help: help) { options, value in options[keyPath: path] = value
        }
    }

    private static func optional(
        _ name: String, _ placeholder: String, _ help: String, _ path: WritableKeyPath<BenchOptions, String?>
    ) -> BenchOption {
        BenchOption(name: name, placeholder: placeholder, help: help) { options, value in options[keyPath: path] = value
        }
    }

    private static func toggle(
        _ name: String, _ help: String, _ path: WritableKeyPath<BenchOptions, Bool>, _ modes: [Mode]? = nil
    ) -> BenchOption {
        BenchOption(name: name, help: help, modes: modes) { options, _ in options[keyPath: path] = true }
    }

    private static func number(
        _ name: String, _ placeholder: String, _ help: String, _ allowed: ClosedRange<Int>,
        _ path: WritableKeyPath<BenchOptions, Int>, _ modes: [Mode]? = nil
    ) -> BenchOption {
        BenchOption(name: name, placeholder: placeholder, help: help, modes: modes) {
            options, value throws(UsageError) in
            options[keyPath: path] = try whole(name, value, allowed)
        }
    }

    private static func seconds(
        _ name: String, _ help: String, _ path: WritableKeyPath<BenchOptions, Double>, _ modes: [Mode]? = nil
    ) -> BenchOption {
        BenchOption(name: name, placeholder: "S", help: help, modes: modes) { options, value throws(UsageError) in
            options[keyPath: path] = try decimal(name, value, 0...Limits.longestSeconds)
        }
    }

    private static func whole(_ name: String, _ text: String, _ allowed: ClosedRange<Int>) throws(UsageError) -> Int {
        // 20_000 and 20,000 are how people write large numbers; neither can mean anything else here.
        guard let value = Int(text.filter { $0 != "_" && $0 != "," }), allowed.contains(value) else {
            throw UsageError("\(name) “\(text)”: a whole number from \(allowed.lowerBound) to \(allowed.upperBound)")
        }
        return value
    }

    private static func decimal(
        _ name: String, _ text: String, _ allowed: ClosedRange<Double>
    ) throws(UsageError) -> Double {
        guard let value = Double(text.filter { $0 != "_" && $0 != "," }), allowed.contains(value) else {
            throw UsageError("\(name) “\(text)”: a number from \(allowed.lowerBound) to \(allowed.upperBound)")
        }
        return value
    }
}
