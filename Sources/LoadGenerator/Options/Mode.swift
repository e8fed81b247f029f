/// What a run does.
///
/// Each case has its own file under Modes.
enum Mode: String, CaseIterable {
    case idle, live, http, offline

    var summary: String {
        switch self {
        case .idle: "connect and authenticate many devices, hold them, report memory per connection"
        case .live: "publish, deliver, ack: rate, latencies, loss and repeats"
        case .http: "POST /v2/{appId}/push/single/cid over keep-alive connections"
        case .offline: "enqueue for absent devices, then let them return and drain"
        }
    }

    /// The latency that a bare `p99` means in `--require`; empty where the mode has none.
    var primaryLatency: String {
        switch self {
        case .idle: ""
        case .live: "deliver"
        case .offline: "result"
        case .http: "answer"
        }
    }

    /// The metrics of this mode that `--require` may name, so that a misspelt one is refused before the run.
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
            latencies = ["deliver", "result"]
        case .http:
            own = "rate accepted refused failed serverCPU serverCPUCores"
            latencies = ["answer"]
        case .offline:
            own = """
                enqueueRate drainRate drainSeconds accepted delivered acks refused unanswered loss repeats \
                disordered enqueueServerCPU drainServerCPU
                """
            latencies = ["result", "connect"]
        }
        let percentiles = latencies.flatMap { name in ["p50", "p90", "p99", "p99.9", "max"].map { "\(name).\($0)" } }
        return own.split(separator: " ").map(String.init) + percentiles + ["generatorCPU", "generatorBusy"]
    }
}
