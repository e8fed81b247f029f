/// The heartbeat learnt on one network, as stored in the state.
struct NetworkHeartbeat: Equatable, Sendable {
    /// The name passed to `networkChanged(named:)`; empty for an unnamed network.
    var network: String
    var plan: HeartbeatPlan

    var line: String {
        "heartbeat -\(ClientState.hex(Array(network.utf8))) \(plan.learnt ?? 0) \(plan.ceiling) \(plan.failed ?? 0)"
    }

    init(network: String, plan: HeartbeatPlan) { (self.network, self.plan) = (network, plan) }

    /// Reads the form that `line` writes; returns `nil` for anything else.
    init?(values: [Substring]) {
        guard values.count == 4, values[0].first == "-", let name = ClientState.bytes(hex: values[0].dropFirst()),
            let learnt = UInt32(values[1]), let ceiling = UInt32(values[2]), let failed = UInt32(values[3])
        else { return nil }
        network = String(decoding: name, as: UTF8.self)
        plan = HeartbeatPlan(learnt: learnt, ceiling: ceiling, failed: failed)
    }
}

extension ClientState {
    func heartbeat(on network: String) -> HeartbeatPlan {
        heartbeats.first { $0.network == network }?.plan ?? HeartbeatPlan()
    }

    /// Stores the plan of a network; the current network is last, and the oldest entries are evicted.
    mutating func keep(_ plan: HeartbeatPlan, on network: String) {
        heartbeats.removeAll { $0.network == network }
        // An unnamed network is stored only if something was learnt.
        guard !network.isEmpty || plan.learnt != nil || plan.failed != nil else { return }
        heartbeats.append(NetworkHeartbeat(network: network, plan: plan))
        heartbeats.removeFirst(max(0, heartbeats.count - Limits.networkCount))
    }
}
