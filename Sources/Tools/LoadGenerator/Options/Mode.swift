/// The mode of a run; each mode has a function in an extension of `Run`.
enum Mode: String, CaseIterable {
    case idle, live, offline, storm, broadcast, handoff, http

    var summary: String {
        switch self {
        case .idle: "connect and authenticate many devices, hold them, report memory per connection"
        case .live: "publish, deliver, ack: rate, latencies, loss and repeats"
        case .offline: "enqueue for absent devices, then let them return and drain"
        case .storm: "all devices reconnect at once, each with queued messages: time until all are back and drained"
        case .broadcast: "push/all to many registered devices, some of them connected"
        case .handoff: "create jobs, then lease and settle them over the admin API"
        case .http: "POST /v2/{appId}/push/single/cid (or batch/cid) over keep-alive connections"
        }
    }

    /// The latency that a bare `p99` stands for in `--require`, or empty.
    var primaryLatency: String {
        switch self {
        case .idle: ""
        case .live: "deliver"
        case .offline: "result"
        case .storm: "connect"
        case .broadcast: "deliver"
        case .handoff: "lease"
        case .http: "answer"
        }
    }

    /// The metrics in the report's headline, if measured.
    var headlineNames: [String] {
        switch self {
        case .idle: ["connections", "connectRate", "rssPerConnection", "kernelPerConnection"]
        case .live: ["rate", "deliver.p50", "deliver.p99", "loss"]
        case .offline: ["enqueueRate", "drainRate", "loss"]
        case .storm: ["authenticatedSeconds", "drainedSeconds", "loss"]
        case .broadcast: ["slowestRoundSeconds", "deliver.p99", "loss"]
        case .handoff: ["createRate", "rate", "lease.p99", "loss"]
        case .http: ["rate", "answer.p50", "answer.p99", "loss"]
        }
    }

    /// The metrics that `--require` may name in this mode.
    ///
    /// A misspelled name is refused before the run. The names are also the keys of the JSON report, so they must not change.
    var metricNames: [String] {
        let own: String
        let latencies: [String]
        switch self {
        case .idle:
            own = """
                connections failed lost connectRate rssPerConnection pssPerConnection kernelPerConnection \
                socketMemoryPerConnection serverCPUCores
                """
            latencies = ["connect"]
        case .live:
            own = """
                rate accepted delivered acks refused unanswered loss repeats disordered serverCPU serverCPUCores
                """
            latencies = ["deliver", "result", "sendLag"]
        case .http:
            own = """
                rate requestRate accepted delivered acks refused failed unanswered loss repeats disordered \
                serverCPU serverCPUCores
                """
            latencies = ["answer", "deliver"]
        case .offline:
            own = """
                enqueueRate drainRate drainSeconds accepted delivered acks refused busy unanswered loss repeats \
                disordered enqueueServerCPU drainServerCPU serverCPUCores
                """
            latencies = ["result", "connect"]
        case .storm:
            own = """
                connections failed lost helloRate authenticatedSeconds drainedSeconds drainRate accepted delivered \
                acks refused busy unanswered loss repeats disordered helloServerCPU serverCPUCores
                """
            latencies = ["connect"]
        case .broadcast:
            own = """
                connections failed lost rate slowestRoundSeconds broadcasts delivered acks loss repeats serverCPU \
                serverCPUCores
                """
            latencies = ["answer", "deliver"]
        case .handoff:
            own = """
                rate jobs leased settled stale refused busy unanswered loss repeats createRate createServerCPU serverCPU \
                serverCPUCores
                """
            latencies = ["lease", "settle"]
        }
        let percentiles = latencies.flatMap { name in ["p50", "p90", "p99", "p99.9", "max"].map { "\(name).\($0)" } }
        return own.split(separator: " ").map(String.init) + percentiles
            + ["handshakes", "failedHandshakes", "generatorCPU", "generatorBusy", "generatorCPUCores"]
    }
}
