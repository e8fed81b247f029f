/// What a run does. Each case has its own file under Modes.
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
        let percentiles = ["p50", "p90", "p99", "p99.9", "max"]
        let generator = ["generatorCPU", "generatorBusy"]
        let latencies = { (name: String) in percentiles.map { "\(name).\($0)" } }
        switch self {
        case .idle:
            return ["connections", "failed", "lost", "connectRate", "rssPerConnection", "pssPerConnection",
                "kernelPerConnection", "socketMemoryPerConnection", "serverCPUCores"] + latencies("connect") + generator
        case .live:
            return ["rate", "accepted", "delivered", "acks", "refused", "unanswered", "loss", "repeats", "disordered",
                "serverCPU", "serverCPUCores"] + latencies("deliver") + latencies("result") + generator
        case .http:
            return ["rate", "accepted", "refused", "failed", "serverCPU", "serverCPUCores"] + latencies("answer")
                + generator
        case .offline:
            return ["enqueueRate", "drainRate", "accepted", "delivered", "refused", "unanswered", "loss", "repeats",
                "disordered", "drainSeconds", "enqueueServerCPU", "drainServerCPU"] + latencies("result")
                + latencies("connect") + generator
        }
    }
}
